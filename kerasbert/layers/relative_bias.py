"""The bias of the attention scores that depends on the distance between query and key, in buckets."""

import functools
import math

import numpy as np
from keras import ops

from .composite import Layer


@functools.cache
def distance_buckets(num_buckets, max_distance):
    """Returns the bucket of each distance from 0 to `max_distance`, int32 (max_distance + 1,).

    The first half of the buckets hold one distance each. The bounds of the other buckets grow by a constant factor. The
    last bucket also holds all distances above `max_distance`.

    For example, with 32 buckets and max_distance=128, the first 16 buckets hold the distances 0 to 15, the next bucket
    holds 16, 17 and 18, and the last bucket holds 113 and more.
    """
    exact, distances = num_buckets // 2, np.arange(max_distance + 1)
    # Single precision, as in the original training code, because some bounds are whole numbers.
    growth = np.log(np.maximum(distances, 1).astype("float32") / np.float32(exact))
    growth = growth / np.float32(math.log(max_distance / exact)) * np.float32(num_buckets - exact)
    wide = np.minimum(exact + growth.astype("int32"), num_buckets - 1)
    return np.where(distances < exact, distances, wide).astype("int32")


def relative_buckets(distances, num_buckets, max_distance, bidirectional=True):
    """Returns the bucket of each distance between query and key.

    Buckets are those of Raffel et al. 2019 (arXiv 1910.10683, section 2.1) and their code. For the distances in each
    bucket, see `distance_buckets`.

    Args:
        distances: int32, any shape, the position of the key minus the position of the query.
        num_buckets: number of buckets.
        max_distance: distance from which all distances share the last bucket.
        bidirectional: if True, the first half of the buckets is for keys before the query, and the second half for keys
            after it. If False, all buckets are for keys before the query, and keys after it have bucket 0.

    Returns: int32 in the shape of `distances`, values in [0, num_buckets).
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
    """A learned bias of the attention scores for each head and each bucket of distances (T5, MPNet).

    Args:
        num_heads: number of attention heads h.
        num_buckets, max_distance: see `relative_buckets`.
        initializer: initializer of the table of biases (num_buckets, h).

    Call:
        distances: int32 (q, k) or (b, q, k), the position of the key minus the position of the query.
        bidirectional: see `relative_buckets`.

    Returns: float (1, h, q, k) or (b, h, q, k).
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
        bias = ops.moveaxis(ops.take(self.embeddings, buckets, axis=0), -1, -3)
        return bias[None] if len(distances.shape) == 2 else bias
