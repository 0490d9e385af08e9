"""Where a token stands in its sequence."""

import numpy as np
from keras import ops

from .masks import real_tokens


def token_positions(inputs, prefix="", counted=False):
    """Position of every token within its sequence, from 0.

    Packed rows (`sequence_ids`) start again at each sequence. `counted=True` numbers real tokens only, so that padding
    on the left moves nothing (RoBERTa); otherwise columns are numbered (BERT).

    Call:
        inputs: a batch with `token_ids` (b, s) and, optionally, `position_ids`, `sequence_ids` or a padding key.

    Returns: int32 (b, s) or (1, s). With `counted`, the positions of padding repeat the last real one (-1 before any).
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


def rotary_angles(positions, head_dim, theta):
    """(cosines, sines) of the angles by which `rotate` turns each pair of dimensions at each position.

    Su et al. 2021, arXiv 2104.09864: pair i turns by position * theta ** (-2 i / head_dim).

    Call:
        positions: int32 (b, s) or (1, s).

    Returns: two of float32 (b, s, 1, d / 2) or (1, s, 1, d / 2).
    """
    frequencies = 1 / np.float32(theta) ** (np.arange(0, head_dim, 2, dtype="float32") / head_dim)
    angles = ops.cast(positions, "float32")[:, :, None, None] * ops.convert_to_tensor(frequencies)
    return ops.cos(angles), ops.sin(angles)


def rotate(x, angles):
    """`x` (b, s, h, d) turned by `rotary_angles`, in float32; dimension i makes a pair with dimension i + d / 2."""
    cosines, sines = angles
    first, second = ops.split(ops.cast(x, "float32"), 2, axis=-1)
    turned = ops.concatenate([first * cosines - second * sines, second * cosines + first * sines], axis=-1)
    return ops.cast(turned, x.dtype)
