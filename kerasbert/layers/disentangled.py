"""Disentangled attention: scores from content and distance (He et al. 2020, arXiv 2006.03654, section 3.1)."""

from typing import Any

import keras
import numpy as np
from keras import ops

from .relative_attention import relative_shift


def log_buckets(num_buckets, max_distance):
    """Maps distances between query and key to buckets.

    Each distance up to `num_buckets // 2` has a separate bucket. Larger distances share buckets, whose size grows on a
    logarithmic scale. The bucket of a negative distance is the negative bucket of its absolute value.

    For example, with num_buckets=8 and max_distance=16, the buckets of the distances 0 to 15 are
    0 1 2 3 4 5 5 6 6 6 7 7 7 7 7 7.

    Returns: numpy int (2 n + 1), the buckets of the distances -n, ..., n, where n is the first distance in the last
        bucket or beyond it.
    """
    middle = num_buckets // 2
    # If the number of buckets is odd, there is one more bucket after `max_distance`.
    beyond = ((max_distance - 1) / middle) ** ((num_buckets - middle - 1) / max(middle - 1, 1))
    distances = np.arange(1, int(middle * beyond) + 3)
    far = np.maximum(distances, middle).astype("float32") / np.float32(middle)
    steps = np.log(far) / np.log(np.float32((max_distance - 1) / middle)) * np.float32(middle - 1)
    buckets = np.where(distances <= middle, distances, np.ceil(steps).astype("int64") + middle)
    return np.concatenate([-buckets[::-1], [0], buckets])


def distances_in_use(rows, length):
    """Selects the rows of a table of distance embeddings that a sequence of s tokens needs.

    For example, with rows=[0, 1, 2, 3, 4] for the distances -2 to 2, a sequence of 2 tokens has distances from -1 to 1
    only: it uses the table rows [1, 2, 3], and the indices into them are [0, 1, 2].

    Args:
        rows: numpy int32 (2 n + 1), the table row of each distance -n, ..., n. Distances beyond n use the row of n or
            -n.
        length: s, an int, or a tensor in a TensorFlow graph where the length is unknown.

    Returns: the indices of the r table rows in use, int32 (r,), and for each of the distances -(s - 1), ..., s - 1 the
        index into these r rows, int32 (2 s - 1).
    """
    limit = len(rows) // 2
    if not isinstance(length, int):
        distances = ops.arange(1 - length, length, dtype="int32")
        return np.arange(rows.max() + 1), ops.take(rows, ops.clip(distances, -limit, limit) + limit)
    rows = rows[np.clip(np.arange(1 - length, length), -limit, limit) + limit]
    return np.arange(rows.min(), rows.max() + 1, dtype="int32"), rows - rows.min()


def disentangled_bias(query, key, distances, project_key, project_query, scale):
    """Computes content-to-position and position-to-content scores (He et al. 2020, arXiv 2006.03654, section 3.1).

    For query i and key j, both terms use the embedding of the distance i - j, as in the official code. The formula of
    the paper has j - i in the second term.

    Args:
        query, key: float (b, s, h, d).
        distances: None, or a tuple of the distance embeddings in use, float (r, m), and for each of the distances
            -(s - 1), ..., s - 1 the index of its embedding, int32 (2 s - 1).
        project_key: function that maps distance embeddings (r, m) to keys (r, h * d), for the content-to-position
            term. None leaves the term out.
        project_query: function that maps them to queries, for the position-to-content term. None leaves the term out.
        scale: factor by which the scores are multiplied.

    Returns: float (b, h, s, s), or zeros (1, 1, 1, 1) if both terms are left out.
    """
    bias = None
    if distances is not None and project_key is not None:
        bias = _scores_by_distance(query, project_key(distances[0]) * scale, ops.flip(distances[1]))
    if distances is not None and project_query is not None:
        y = ops.swapaxes(_scores_by_distance(key, project_query(distances[0]) * scale, distances[1]), -1, -2)
        bias = y if bias is None else bias + y
    return ops.zeros((1, 1, 1, 1), query.dtype) if bias is None else bias


def cached_disentangled_bias(query, key, distances, project_key, project_query, scale):
    """Computes the scores of `disentangled_bias` for queries whose keys include those of earlier tokens.

    Args:
        query: float (b, q, h, d).
        key: float (b, k, h, d).
        distances: tuple of distance embeddings, float (r, m), and for each query and key the index of the embedding of
            their distance, int32 (q, k).
        project_key, project_query, scale: as in `disentangled_bias`, both terms.

    Returns: float (b, h, q, k).
    """
    vectors, rows = distances
    keys, queries = (
        ops.reshape(project(vectors) * scale, (-1, *query.shape[2:])) for project in (project_key, project_query)
    )
    rows = ops.broadcast_to(rows, (*query.shape[:1], query.shape[2], *rows.shape))
    of_query: Any = ops.take_along_axis(ops.einsum("bqhd,rhd->bhqr", query, keys), rows, axis=3)
    return of_query + ops.take_along_axis(ops.einsum("bkhd,rhd->bhrk", key, queries), rows, axis=2)


def _scores_by_distance(x, vectors, rows):
    """Multiplies each token with the vector of its distance from every other token: float (b, h, s, s).

    Args:
        x: float (b, s, h, d), queries or keys.
        vectors: float (r, h * d), projected distance embeddings.
        rows: int32 (2 s - 1), the index of the vector of each distance.
    """
    sizes: Any = ops.shape(x)
    length, vectors = sizes[1], ops.reshape(vectors, (-1, *x.shape[2:]))
    if keras.backend.backend() == "torch" and isinstance(length, int):
        # Torch gathers fast, so that each vector is multiplied once, even if many distances share it.
        places = np.arange(length)
        columns: Any = ops.take(rows, places - places[:, None] + length - 1, axis=0)
        return ops.take_along_axis(ops.einsum("bshd,rhd->bhsr", x, vectors), columns[None, None], axis=-1)
    vectors = ops.take(vectors, rows, axis=0)
    return relative_shift(ops.einsum("bshd,rhd->bhsr", x, vectors), length)
