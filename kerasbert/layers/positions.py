"""Positions of tokens in their sequences, sinusoidal position encodings and rotary positions."""

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from .masks import real_tokens


def token_positions(inputs, prefix="", counted=False):
    """Returns the position of each token in its sequence, counted from 0.

    In packed rows (`sequence_ids`), positions start again from 0 at each sequence.

    Args:
        inputs: a batch with `token_ids` (b, s), and optionally `position_ids`, which are returned unchanged,
            `sequence_ids`, `padding_mask` or `lengths`.
        prefix: prefix of these keys, such as "decoder_".
        counted: whether to count only real tokens, so that padding on the left does not change positions (RoBERTa).
            Otherwise padding is counted too (BERT).

    Returns: int32 (b, s) or (1, s). With `counted`, padding has the position of the last real token before it, or -1.
    """
    if inputs.get(prefix + "position_ids") is not None:
        return inputs[prefix + "position_ids"]
    length = ops.shape(inputs[prefix + "token_ids"])[-1]
    columns = ops.arange(length, dtype="int32")[None, :]
    sequences = inputs.get(prefix + "sequence_ids")
    if sequences is not None:
        sequences = ops.convert_to_tensor(sequences)
        same_sequence = sequences[:, :, None] == sequences[:, None, :]
        earlier = columns[:, :, None] > columns[:, None, :]
        positions = ops.sum(ops.cast(same_sequence & earlier, "int32"), axis=-1)
        return ops.where(sequences > 0, positions, 0)
    if counted:
        real = real_tokens(inputs, prefix)
        if real is not None:
            return ops.cumsum(ops.cast(real, "int32"), axis=-1) - 1
    return columns


@dataclasses.dataclass(frozen=True)
class Rotation:
    """Rotary positions: rotates queries and keys by angles that depend on their positions.

    Attention scores then depend on the distance between query and key (Su et al. 2021, arXiv 2104.09864). The angles
    are passed in an object, because Keras would cast tensor arguments of a layer to half precision.

    Args:
        cosines, sines: float32 (b, s, 1, d / 2) or (1, s, 1, d / 2), the cosine and sine of the angle by which each
            pair of dimensions is rotated.

    Call:
        x: float (b, s, h, d), queries or keys. Dimensions i and i + d / 2 form a pair.

    Returns: the rotated x, in its dtype. The rotation is computed in float32.
    """

    cosines: Any
    sines: Any

    @classmethod
    def at(cls, positions, head_dim, theta, factor=1.0):
        """Returns the rotation by position * theta ** (-2 i / head_dim) / factor, where i is the index of the pair.

        Args:
            positions: int32 (b, s) or (1, s).
            head_dim: size of each attention head. Must be even.
            theta: base of the angles.
            factor: by which the period of every pair is multiplied.
        """
        if head_dim % 2:
            raise ValueError(
                f"Rotary positions rotate pairs of dimensions, so the head size, hidden_dim / num_heads, must be even. "
                f"Received: {head_dim}."
            )
        frequencies = 1 / np.float32(theta) ** (np.arange(0, head_dim, 2, dtype="float32") / head_dim)
        frequencies = frequencies / np.float32(factor)
        angles = ops.cast(positions, "float32")[:, :, None, None] * ops.convert_to_tensor(frequencies)
        return cls(ops.cos(angles), ops.sin(angles))

    def __call__(self, x):
        first, second = ops.split(ops.cast(x, "float32"), 2, axis=-1)
        rotated = first * self.cosines - second * self.sines, second * self.cosines + first * self.sines
        return ops.cast(ops.concatenate(rotated, axis=-1), x.dtype)
