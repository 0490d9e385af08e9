"""Scores by the content of one token and the distance to another (He et al. 2020, arXiv 2006.03654, section 3.1)."""

import numpy as np
from keras import ops

from .relative_attention import relative_shift


def log_buckets(num_buckets, max_distance):
    """The bucket of each of the distances -n, ..., n, where n is the first that is in the last bucket or beyond.

    Distances up to half of `num_buckets` are their own bucket, further ones share them evenly by their logarithm.

    num_buckets 8, max_distance 16, distances 0 to 15 -> 0 1 2 3 4 5 5 6 6 6 7 7 7 7 7 7, mirrored for those below 0
    """
    middle = num_buckets // 2
    # Odd numbers of buckets have one more behind `max_distance`.
    beyond = ((max_distance - 1) / middle) ** ((num_buckets - middle - 1) / max(middle - 1, 1))
    distances = np.arange(1, int(middle * beyond) + 3)
    far = np.maximum(distances, middle).astype("float32") / np.float32(middle)
    steps = np.log(far) / np.log(np.float32((max_distance - 1) / middle)) * np.float32(middle - 1)
    buckets = np.where(distances <= middle, distances, np.ceil(steps).astype("int64") + middle)
    return np.concatenate([-buckets[::-1], [0], buckets])


def distances_in_use(rows, length):
    """What `length` tokens need of a table of distances.

    rows [0 1 2 3 4], for distances -2 to 2, with 2 tokens -> ids [1 2 3], rows [0 1 2]

    Call:
        rows: numpy int32 (2 n + 1), the row of the table for each of the distances -n, ..., n and all beyond.
        length: s, a number, or a tensor in a TensorFlow graph that does not know it.

    Returns: the ids of the rows of the table in use, int32 (r,), and which of these r each of the distances
        -(s - 1), ..., s - 1 has, int32 (2 s - 1).
    """
    limit = len(rows) // 2
    if not isinstance(length, int):
        distances = ops.arange(1 - length, length, dtype="int32")
        return np.arange(rows.max() + 1), ops.take(rows, ops.clip(distances, -limit, limit) + limit)
    rows = rows[np.clip(np.arange(1 - length, length), -limit, limit) + limit]
    return np.arange(rows.min(), rows.max() + 1, dtype="int32"), rows - rows.min()


def disentangled_bias(query, key, distances, project_key, project_query, scale):
    """Scores of content by distance and of distance by content (He et al. 2020, arXiv 2006.03654, section 3.1).

    Query i and key j meet the vector of i - j in both: so in the official code, where the paper's formula has j - i in
    the second.

    Call:
        query, key: float (b, s, h, d).
        distances: the vectors in use, float (r, m), and which of them each of -(s - 1), ..., s - 1 has, int32
            (2 s - 1); or None.
        project_key, project_query: functions (r, m) -> (r, h * d), one for each term; None without the term.
        scale: of the scores.

    Returns: float (b, h, s, s); zero (1, 1, 1, 1) without terms.
    """
    bias = None
    if distances is not None and project_key is not None:
        bias = _scores_by_distance(query, project_key(distances[0]) * scale, ops.flip(distances[1]))
    if distances is not None and project_query is not None:
        y = ops.swapaxes(_scores_by_distance(key, project_query(distances[0]) * scale, distances[1]), -1, -2)
        bias = y if bias is None else bias + y
    return ops.zeros((1, 1, 1, 1), query.dtype) if bias is None else bias


def _scores_by_distance(x, vectors, rows):
    """x (b, s, h, d) by vectors (r, h * d), of which each of 2 s - 1 distances has one -> (b, h, s, s)."""
    vectors = ops.take(ops.reshape(vectors, (-1, *x.shape[2:])), rows, axis=0)
    return relative_shift(ops.einsum("bshd,rhd->bhsr", x, vectors), ops.shape(x)[1])
