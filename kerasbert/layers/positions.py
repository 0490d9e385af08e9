"""Positions of tokens in their sequences, sinusoidal tables and rotary positions."""

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from .masks import real_tokens


def token_positions(inputs, prefix="", counted=False):
    """Position of every token within its sequence, from 0.

    In packed rows (`sequence_ids`), positions restart at each sequence. `counted=True` counts only real tokens, so that
    padding on the left does not change positions (RoBERTa); otherwise columns are counted (BERT).

    Call:
        inputs: a batch with `token_ids` (b, s) and, optionally, `position_ids`, `sequence_ids` or a padding key.

    Returns: int32 (b, s) or (1, s). With `counted`, padding repeats the last real position (-1 before any).
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


def sinusoidal_table(length, dim):
    """Sines in the even columns, cosines in the odd ones, of wavelengths from 2 pi to 10,000 * 2 pi.

    Vaswani et al. 2017, arXiv 1706.03762, section 3.5.

    Returns: numpy float32 (length, dim).
    """
    columns = np.arange(dim)
    angles = np.arange(length)[:, None] / 10_000 ** (2 * (columns // 2) / dim)
    return np.where(columns % 2 == 0, np.sin(angles), np.cos(angles)).astype("float32")


@dataclasses.dataclass(frozen=True)
class Rotation:
    """Rotates queries and keys by position, so that scores depend on distances (Su et al. 2021, arXiv 2104.09864).

    This is a class, not a tensor, because Keras would cast a tensor argument of a layer to half precision.

    Args:
        cosines, sines: float32 (b, s, 1, d / 2) or (1, s, 1, d / 2), of the angle of each pair of dimensions.

    Call:
        x: float (b, s, h, d); dimension i makes a pair with dimension i + d / 2.

    Returns: `x`, rotated in float32, in the dtype of `x`.
    """

    cosines: Any
    sines: Any

    @classmethod
    def at(cls, positions, head_dim, theta):
        """For int32 `positions` (b, s) or (1, s): pair i is rotated by position * theta ** (-2 i / head_dim)."""
        if head_dim % 2:
            raise ValueError(
                f"Rotary positions rotate pairs of dimensions, so the head size, hidden_dim / num_heads, must be even. "
                f"Received: {head_dim}."
            )
        frequencies = 1 / np.float32(theta) ** (np.arange(0, head_dim, 2, dtype="float32") / head_dim)
        angles = ops.cast(positions, "float32")[:, :, None, None] * ops.convert_to_tensor(frequencies)
        return cls(ops.cos(angles), ops.sin(angles))

    def __call__(self, x):
        first, second = ops.split(ops.cast(x, "float32"), 2, axis=-1)
        rotated = first * self.cosines - second * self.sines, second * self.cosines + first * self.sines
        return ops.cast(ops.concatenate(rotated, axis=-1), x.dtype)
