"""Functions and layers for attention scores that depend on the distance between query and key."""

from keras import ops


def relative_shift(scores, key_length):
    """Rearranges scores from one column per distance to one column per key.

    Dai et al. 2019, arXiv 1901.02860, appendix B. The queries are the last q of k tokens, so the distance between query
    i and key j is i + (k - q) - j. It is negative for keys after the query.

    For example, two queries have the scores [a0, a1, a2] and [b0, b1, b2] for the distances 2, 1 and 0, and there are 3
    keys. The rearranged scores are [a1, a2, .] and [b0, b1, b2], because the first query is at the distances 1, 0 and
    -1 from the keys. The entry `.` is undefined.

    Args:
        scores: float (b, h, q, r), one column for each of the distances k - 1, k - 2, ..., down to 0 or below.
        key_length: number of keys k.

    Returns: float (b, h, q, k). Entries whose distance has no score are undefined, and must be masked. If the distances
        end at 0, these are the entries of all keys after the query.
    """
    batch, num_heads, queries, distances = (-1 if size is None else size for size in ops.shape(scores))
    x = ops.pad(scores, ((0, 0), (0, 0), (0, 0), (1, 0)))
    x = ops.reshape(x, (batch, num_heads, distances + 1, queries))[:, :, 1:]
    return ops.reshape(x, (batch, num_heads, queries, distances))[:, :, :, :key_length]


def relative_sinusoids(distances, dim):
    """Returns sinusoidal encodings of distances, with wavelengths from 2 pi to 10,000 * 2 pi.

    The first half of the columns holds sines, the second half cosines, as in Dai et al. 2019 (arXiv 1901.02860) and
    Yang et al. 2019 (arXiv 1906.08237). In `sinusoidal_table`, by contrast, sines and cosines alternate.

    Args:
        distances: numbers (r,), negative for keys after the query.
        dim: width m of the encodings, even.

    Returns: float32 (r, m).
    """
    frequencies = 10_000 ** (-ops.arange(0, dim, 2, dtype="float32") / dim)
    angles = ops.cast(distances, "float32")[:, None] * frequencies
    return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)
