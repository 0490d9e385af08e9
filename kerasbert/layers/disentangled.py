"""Attention scores of content and distance (He et al. 2020, arXiv 2006.03654, section 3.1)."""

import numpy as np
from keras import ops

from .relative_attention import relative_shift


def log_buckets(num_buckets, max_distance):
    """The bucket of each of the distances -n, ..., n, where n is the first that is in the last bucket or beyond.

    Each distance up to half of `num_buckets` is a separate bucket; larger ones share buckets on a logarithmic scale.

    num_buckets 8, max_distance 16, distances 0 to 15 -> 0 1 2 3 4 5 5 6 6 6 7 7 7 7 7 7; negative ones are mirrored
    """
    middle = num_buckets // 2
    # An odd number of buckets has one more after `max_distance`.
    beyond = ((max_distance - 1) / middle) ** ((num_buckets - middle - 1) / max(middle - 1, 1))
    distances = np.arange(1, int(middle * beyond) + 3)
    far = np.maximum(distances, middle).astype("float32") / np.float32(middle)
    steps = np.log(far) / np.log(np.float32((max_distance - 1) / middle)) * np.float32(middle - 1)
    buckets = np.where(distances <= middle, distances, np.ceil(steps).astype("int64") + middle)
    return np.concatenate([-buckets[::-1], [0], buckets])


def distances_in_use(rows, length):
    """The rows that `length` tokens need from a table of distances.

    rows [0 1 2 3 4], for distances -2 to 2, with 2 tokens -> ids [1 2 3], rows [0 1 2]

    Call:
        rows: numpy int32 (2 n + 1), the table row of each distance -n, ..., n; larger distances share the outer rows.
        length: s, a number, or a tensor in a TensorFlow graph where it is unknown.

    Returns: the ids of the table rows in use, int32 (r,), and the index into these r rows for each of the distances
        -(s - 1), ..., s - 1, int32 (2 s - 1).
    """
    limit = len(rows) // 2
    if not isinstance(length, int):
        distances = ops.arange(1 - length, length, dtype="int32")
        return np.arange(rows.max() + 1), ops.take(rows, ops.clip(distances, -limit, limit) + limit)
    rows = rows[np.clip(np.arange(1 - length, length), -limit, limit) + limit]
    return np.arange(rows.min(), rows.max() + 1, dtype="int32"), rows - rows.min()


def disentangled_bias(query, key, distances, project_key, project_query, scale):
    """Content-to-position and position-to-content scores (He et al. 2020, arXiv 2006.03654, section 3.1).

    Both terms use the vector of the distance i - j for query i and key j, as in the official code; the paper's formula
    has j - i in the second term.

    Call:
        query, key: float (b, s, h, d).
        distances: the vectors in use, float (r, m), and the index of the vector for each of the distances
            -(s - 1), ..., s - 1, int32 (2 s - 1); or None.
        project_key, project_query: functions (r, m) -> (r, h * d), one for each term; None leaves the term out.
        scale: factor of the scores.

    Returns: float (b, h, s, s); zeros (1, 1, 1, 1) if both terms are left out.
    """
    bias = None
    if distances is not None and project_key is not None:
        bias = _scores_by_distance(query, project_key(distances[0]) * scale, ops.flip(distances[1]))
    if distances is not None and project_query is not None:
        y = ops.swapaxes(_scores_by_distance(key, project_query(distances[0]) * scale, distances[1]), -1, -2)
        bias = y if bias is None else bias + y
    return ops.zeros((1, 1, 1, 1), query.dtype) if bias is None else bias


def _scores_by_distance(x, vectors, rows):
    """x (b, s, h, d), vectors (r, h * d), the index of the vector for each of 2 s - 1 distances -> (b, h, s, s)."""
    vectors = ops.take(ops.reshape(vectors, (-1, *x.shape[2:])), rows, axis=0)
    return relative_shift(ops.einsum("bshd,rhd->bhsr", x, vectors), ops.shape(x)[1])
