"""Training objectives for sentence vectors (Reimers, Gurevych 2019, arXiv 1908.10084, section 3).

Each loss function takes vectors float32 (b, c, m), for c texts per example, and returns one loss per example, float32
(b,).
"""

from keras import ops


def cosine(one, other):
    """Cosine similarity along the last axis; 0 for a vector of zeros."""
    return ops.sum(unit(one) * unit(other), axis=-1)


def unit(x):
    return x / ops.maximum(ops.sqrt(ops.sum(ops.square(x), axis=-1, keepdims=True)), 1e-12)


def pair_features(vectors):
    """[u; v; |u - v|] of pairs, float (b, 3 m). [1, 0] and [0, 1] -> [1, 0, 0, 1, 1, 1]"""
    u, v = vectors[:, 0], vectors[:, 1]
    return ops.concatenate([u, v, ops.abs(u - v)], axis=-1)


def cosine_losses(vectors, scores):
    """Squared error between the cosine similarity of each pair and its score from -1 to 1, (b,) or (b, 1)."""
    scores = ops.reshape(ops.cast(scores, "float32"), (-1,))
    return ops.square(cosine(vectors[:, 0], vectors[:, 1]) - scores)


def triplet_losses(vectors, margin=1.0):
    """max(|a - p| - |a - n| + margin, 0), with Euclidean norms, for (anchor, positive, negative)."""
    near, far = (_distance(vectors[:, 0], vectors[:, i]) for i in (1, 2))
    return ops.maximum(near - far + margin, 0.0)


def _distance(one, other):
    # The gradient of a square root at 0 is infinite: equal vectors get a gradient of 0.
    squares = ops.sum(ops.square(one - other), axis=-1)
    apart = squares > 0
    return ops.where(apart, ops.sqrt(ops.where(apart, squares, 1.0)), 0.0)


def ranking_losses(vectors, token_ids, weights, scale=20.0):
    """-log softmax of scale * cosine of an anchor and its positive, over all candidates in the batch.

    The candidates are the positives of all rows, then their other texts (hard negatives). Rows of weight 0, and other
    texts equal to the anchor's positive, are excluded.

    Call:
        token_ids: int32 (b, c, s), to detect equal texts.
        weights: float32 (b,).
    """
    rows, texts = vectors.shape[0], vectors.shape[1]
    if rows is None:
        rows = ops.shape(vectors)[0]

    def candidates(x):  # (b, c, ...) -> the second texts of all rows, then the third ones ...: ((c - 1) b, ...)
        return ops.concatenate([x[:, i] for i in range(1, texts)], axis=0)

    scores = scale * ops.matmul(unit(vectors[:, 0]), ops.transpose(unit(candidates(vectors))))
    is_positive = ops.arange(rows)[:, None] == ops.arange((texts - 1) * rows)
    equal = ops.all(token_ids[:, 1][:, None] == candidates(token_ids)[None], axis=-1)
    is_counted = ops.concatenate([weights > 0] * (texts - 1))
    scores = ops.where(is_positive | (is_counted[None] & ops.logical_not(equal)), scores, -1e9)
    return ops.logsumexp(scores, axis=-1) - ops.sum(ops.where(is_positive, scores, 0.0), axis=-1)
