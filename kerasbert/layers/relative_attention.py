"""Attention scores that depend on the distance between query and key."""

from keras import ops


def relative_shift(scores, key_length):
    """Scores by distance, moved to where their keys are (Dai et al. 2019, arXiv 1901.02860, appendix B).

    The queries are the last of the keys: query i is i + (k - q) - j away from key j, less than 0 from a later one.

    query 0 [a0 a1 a2], query 1 [b0 b1 b2], for distances 2, 1, 0 of 3 keys -> [a1 a2 .], [b0 b1 b2]

    Call:
        scores: float (b, h, q, r), one for each of the distances k - 1, k - 2, ..., at least to 0.
        key_length: k.

    Returns: float (b, h, q, k). Where a distance has no score (`.`: later keys, when r = k), it means nothing: mask it.
    """
    batch, num_heads, queries, distances = (-1 if size is None else size for size in ops.shape(scores))
    x = ops.pad(scores, ((0, 0), (0, 0), (0, 0), (1, 0)))
    x = ops.reshape(x, (batch, num_heads, distances + 1, queries))[:, :, 1:]
    return ops.reshape(x, (batch, num_heads, queries, distances))[:, :, :, :key_length]


def relative_sinusoids(distances, dim):
    """Sines of distances, then their cosines, at wavelengths from 2 pi to 10,000 * 2 pi.

    Unlike `sinusoidal_table` in halves, not in turn: Dai et al. 2019 and Yang et al. 2019 (arXiv 1906.08237) do so.

    Call:
        distances: numbers (r,), below 0 for later keys.
        dim: m, even.

    Returns: float32 (r, m).
    """
    frequencies = 10_000 ** (-ops.arange(0, dim, 2, dtype="float32") / dim)
    angles = ops.cast(distances, "float32")[:, None] * frequencies
    return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)
