"""Attention scores that depend on the distance between query and key."""

import functools
import math

import numpy as np
from keras import ops

from .composite import Layer


def relative_shift(scores, key_length):
    """Rearranges scores with one column per distance to one column per key (Dai et al. 2019, 1901.02860, appendix B).

    The queries are the last q of k tokens, so query i is at distance i + (k - q) - j from key j: negative if the key is
    later.

    query 0 [a0 a1 a2], query 1 [b0 b1 b2], for distances 2, 1, 0 of 3 keys -> [a1 a2 .], [b0 b1 b2]

    Call:
        scores: float (b, h, q, r), one for each of the distances k - 1, k - 2, ..., down to 0 or further.
        key_length: k.

    Returns: float (b, h, q, k). Entries whose distance has no score are undefined and must be masked: all later keys
        (`.` above) if the distances end at 0.
    """
    batch, num_heads, queries, distances = (-1 if size is None else size for size in ops.shape(scores))
    x = ops.pad(scores, ((0, 0), (0, 0), (0, 0), (1, 0)))
    x = ops.reshape(x, (batch, num_heads, distances + 1, queries))[:, :, 1:]
    return ops.reshape(x, (batch, num_heads, queries, distances))[:, :, :, :key_length]


def relative_sinusoids(distances, dim):
    """Sines of distances, then their cosines, at wavelengths from 2 pi to 10,000 * 2 pi.

    Unlike in `sinusoidal_table`, they do not alternate, as in Dai et al. 2019 and Yang et al. 2019 (arXiv 1906.08237).

    Call:
        distances: numbers (r,), negative for later keys.
        dim: m, even.

    Returns: float32 (r, m).
    """
    frequencies = 10_000 ** (-ops.arange(0, dim, 2, dtype="float32") / dim)
    angles = ops.cast(distances, "float32")[:, None] * frequencies
    return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)


@functools.cache
def distance_buckets(num_buckets, max_distance):
    """The bucket of each distance 0, ..., max_distance; the last also holds larger ones: int32 (max_distance + 1).

    Half of the buckets hold one distance each; the bounds of the others grow by a constant factor.

    32 buckets up to 128: the first 16 hold 0 to 15, the next one holds 16, 17 and 18, the last one 113 and more.
    """
    exact, distances = num_buckets // 2, np.arange(max_distance + 1)
    # Single precision, as in the original training code, because some bounds are whole numbers.
    growth = np.log(np.maximum(distances, 1).astype("float32") / np.float32(exact))
    growth = growth / np.float32(math.log(max_distance / exact)) * np.float32(num_buckets - exact)
    wide = np.minimum(exact + growth.astype("int32"), num_buckets - 1)
    return np.where(distances < exact, distances, wide).astype("int32")


def relative_buckets(distances, num_buckets, max_distance, bidirectional=True):
    """The bucket of each distance (Raffel et al. 2019, arXiv 1910.10683, section 2.1, and its code).

    With `bidirectional`, keys before the query have the first half of the buckets, keys after it the second half.
    Otherwise keys before the query have all buckets, and keys after it share the bucket of distance 0.

    Call:
        distances: int32, position of the key minus that of the query.

    Returns: int32 of the same shape, in [0, num_buckets).
    """
    later = 0
    if bidirectional:
        num_buckets = num_buckets // 2
        later = ops.where(distances > 0, num_buckets, 0)
        distances = ops.abs(distances)
    else:
        distances = ops.maximum(-distances, 0)
    return later + ops.take(distance_buckets(num_buckets, max_distance), ops.minimum(distances, max_distance))


class BucketedBias(Layer):
    """A learned score for every head and every bucket of distances (T5).

    Args:
        num_heads: h.
        num_buckets, max_distance: see `relative_buckets`.
        initializer: of the table (num_buckets, h).

    Call:
        distances: int32 (q, k), position of the key minus that of the query.
        bidirectional: see `relative_buckets`.

    Returns: float (1, h, q, k).
    """

    def __init__(self, num_heads, num_buckets=32, max_distance=128, initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.num_heads, self.num_buckets, self.max_distance = num_heads, num_buckets, max_distance
        self.initializer = initializer

    def build(self, distances_shape):
        shape = (self.num_buckets, self.num_heads)
        self.embeddings = self.add_weight(name="embeddings", shape=shape, initializer=self.initializer)

    def call(self, distances, bidirectional=True):
        buckets = relative_buckets(distances, self.num_buckets, self.max_distance, bidirectional)
        return ops.transpose(ops.take(self.embeddings, buckets, axis=0), (2, 0, 1))[None]
