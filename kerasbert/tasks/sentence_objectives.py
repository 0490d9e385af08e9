"""Training objectives for sentence vectors (Reimers, Gurevych 2019, arXiv 1908.10084, section 3).

Each loss function takes the vectors of examples that have c texts each, float32 (b, c, m), and returns one loss per
example, float32 (b,).
"""

from keras import ops

from ..data.tasks.labels import names_of

# {name: (minimum and maximum number of texts per example, {option: default})}
OBJECTIVES = {
    "cosine": (2, 2, {}),
    "classes": (2, 2, {"labels": 3}),
    "triplet": (3, 3, {"margin": 1.0}),
    "ranking": (2, None, {"scale": 20.0}),
}


def objective_options(objective):
    """Converts the `objective` of a `TextEmbedder` to a dict of its name and all of its options.

    "ranking" -> {"name": "ranking", "scale": 20.0}
    """
    given = {"name": objective} if isinstance(objective, str) else dict(objective)
    if given.get("name") not in OBJECTIVES:
        raise ValueError(
            f"`objective` must be one of {', '.join(OBJECTIVES)}, or a dict of its `name` and options. "
            f"Received: {objective!r}."
        )
    known = OBJECTIVES[given["name"]][2]
    if set(given) - {"name", *known}:
        raise ValueError(
            f"The objective {given['name']!r} has {f'the option {next(iter(known))!r}' if known else 'no options'}. "
            f"Received: {objective!r}."
        )
    options = {**known, **given}
    if "labels" in options:
        options["labels"] = names_of(options["labels"])
    return options


def cosine(one, other):
    """Cosine similarity along the last axis; 0 for a vector of zeros."""
    return ops.sum(unit(one) * unit(other), axis=-1)


def unit(x):
    """Scales vectors along the last axis to length 1; vectors of zeros stay zeros."""
    # The bound is inside the root, whose gradient is infinite at 0: the vectors of empty rows would make it nan.
    return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), axis=-1, keepdims=True), 1e-24))


def pair_features(vectors):
    """Concatenates [u; v; |u - v|] for pairs of vectors, float (b, 3 m): [1, 0] and [0, 1] -> [1, 0, 0, 1, 1, 1]"""
    u, v = vectors[:, 0], vectors[:, 1]
    return ops.concatenate([u, v, ops.abs(u - v)], axis=-1)


def cosine_losses(vectors, scores):
    """Squared error between the cosine similarity and the score, (b,) or (b, 1), from -1 to 1, of each pair."""
    scores = ops.reshape(ops.cast(scores, "float32"), (-1,))
    return ops.square(cosine(vectors[:, 0], vectors[:, 1]) - scores)


def triplet_losses(vectors, margin=1.0):
    """Triplet loss max(|a - p| - |a - n| + margin, 0) of anchor a, positive p and negative n, with Euclidean norms."""
    near, far = (_distance(vectors[:, 0], vectors[:, i]) for i in (1, 2))
    return ops.maximum(near - far + margin, 0.0)


def _distance(one, other):
    # The gradient of the square root is infinite at 0. For equal vectors, the gradient is set to 0 instead.
    squares = ops.sum(ops.square(one - other), axis=-1)
    apart = squares > 0
    return ops.where(apart, ops.sqrt(ops.where(apart, squares, 1.0)), 0.0)


def ranking_losses(vectors, token_ids, weights, scale=20.0):
    """Cross-entropy of identifying each anchor's positive among all candidates in the batch.

    The logits are scale * cosine similarity. The candidates are the positives of all rows, followed by their hard
    negatives. Rows with weight 0 are excluded, as are texts of other rows that equal the anchor's positive.

    Args:
        vectors: float32 (b, c, m), ordered as anchor, positive, hard negatives.
        token_ids: int32 (b, c, s), used to detect equal texts.
        weights: float32 (b,).
        scale: factor of the cosine similarities.
    """
    rows, texts = vectors.shape[0], vectors.shape[1]
    if rows is None:
        rows = ops.shape(vectors)[0]

    def candidates(x):  # (b, c, ...) -> ((c - 1) * b, ...): the second texts of all rows, then the third ones, ...
        return ops.concatenate([x[:, i] for i in range(1, texts)], axis=0)

    scores = scale * ops.matmul(unit(vectors[:, 0]), ops.transpose(unit(candidates(vectors))))
    is_positive = ops.arange(rows)[:, None] == ops.arange((texts - 1) * rows)
    equal = ops.all(token_ids[:, 1][:, None] == candidates(token_ids)[None], axis=-1)
    is_counted = ops.concatenate([weights > 0] * (texts - 1))
    scores = ops.where(is_positive | (is_counted[None] & ops.logical_not(equal)), scores, -1e9)
    return ops.logsumexp(scores, axis=-1) - ops.sum(ops.where(is_positive, scores, 0.0), axis=-1)
