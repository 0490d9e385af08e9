"""Similarities and distances of vectors, and of texts that have one vector per token."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from ..backend.chunks import recomputed_blocks

BLOCK = 1 << 24  # number of products of token vectors that are in memory at a time, 64 MB
HIDDEN = -1e9  # the score of what must not be chosen; minus infinity would make gradients nan


def unit(x):
    """Scales vectors along the last axis to length 1; vectors of zeros stay zeros."""
    # The bound is inside the root, whose gradient is infinite at 0: the vectors of empty rows would make it nan.
    return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), axis=-1, keepdims=True), 1e-24))


def root(x):
    """The square root, whose gradient is taken as 0 where x is at most 0, in place of infinity."""
    positive = x > 0
    return ops.where(positive, ops.sqrt(ops.where(positive, x, 1.0)), 0.0)


# === Rows: (b, m) and (b, m) to (b,) ===


def dot(one, other):
    """Dot product along the last axis."""
    return ops.sum(one * other, axis=-1)


def cosine(one, other):
    """Cosine similarity along the last axis; 0 for a vector of zeros."""
    return dot(unit(one), unit(other))


def euclidean(one, other):
    """Euclidean distance along the last axis."""
    return root(ops.sum(ops.square(one - other), axis=-1))


def manhattan(one, other):
    """Manhattan distance along the last axis."""
    return ops.sum(ops.abs(one - other), axis=-1)


def angle_similarity(one, other):
    """|Re z + Im z| for the inner product z = <x, y> of unit vectors, whose halves are real and imaginary parts.

    Paper: Li, Li 2023, arXiv 2309.12871, section 3.3. A vector of odd width gets a component of 0.
    """
    x, y = unit(one), unit(other)
    half = math.ceil(x.shape[-1] / 2)
    (a, b), (c, d) = ((v[..., :half], _padded(v[..., half:], half)) for v in (x, y))
    return ops.abs(ops.sum(a * c + b * d + b * c - a * d, axis=-1))


def _padded(x, width):
    return x if x.shape[-1] == width else ops.concatenate([x, ops.zeros_like(x[..., :1])], axis=-1)


# === All pairs: (a, m) and (b, m) to (a, b) ===


def all_dots(one, other):
    """Dot products of all rows of one with all rows of the other."""
    return ops.matmul(one, ops.transpose(other))


def all_cosines(one, other):
    """Cosine similarities of all rows of one with all rows of the other."""
    return all_dots(unit(one), unit(other))


def all_euclidean(one, other):
    """Euclidean distances of all rows of one to all rows of the other; exactly 0 from a row to itself."""
    products = all_dots(one, other)
    if one is other:  # of the same rounding as the products
        first = second = ops.diagonal(products)
    else:
        first, second = (ops.sum(ops.square(x), axis=-1) for x in (one, other))
    return root(first[:, None] - 2 * products + second[None])


def all_manhattan(one, other):
    """Manhattan distances of all rows of one to all rows of the other."""
    return manhattan(one[:, None], other[None])


# === Late interaction ===


def max_sim(
    queries: Any,
    documents: Any,
    query_mask: Any = None,
    document_mask: Any = None,
    mean: bool = False,
    exclude_padding: bool = True,
) -> Any:
    """MaxSim of all queries with all documents: the sum over query tokens of the best product with a document token.

    Paper: Khattab, Zaharia 2020 (ColBERT), arXiv 2004.12832, section 3.2.

    Args:
        queries: float (a, s, m), one vector per token.
        documents: float (b, t, m), compared with every query; or (a, n, t, m), the n documents of each query.
        query_mask, document_mask: bool, in the shapes of the arrays without m. True = scored. Default: all.
        mean: whether the sum is divided by the number of the query's tokens.
        exclude_padding: False gives the scores of tokens that are not scored the value 0, as PyLate does, where they
            exceed negative ones.

    Returns: float32 (a, b), or (a, n). A document without scored tokens has the score -1e9, before a division.

    Example:
        >>> import numpy as np
        >>> from kerasbert.retrieval import max_sim
        >>> query = np.array([[[1.0, 0.0], [0.0, 1.0]]], "float32")
        >>> documents = np.array([[[1.0, 0.0], [0.6, 0.8]], [[-1.0, 0.0], [0.0, 0.5]]], "float32")
        >>> [round(float(score), 2) for score in max_sim(query, documents)[0]]
        [1.8, 0.5]
    """
    queries, documents = (ops.cast(x, "float32") for x in (queries, documents))
    query_mask, document_mask = (
        ops.ones(ops.shape(x)[:-1], "bool") if mask is None else ops.cast(mask, "bool")
        for x, mask in ((queries, query_mask), (documents, document_mask))
    )
    own = len(documents.shape) == 4
    sizes = (*queries.shape[:2], *documents.shape[:2])
    if not own and None not in sizes and math.prod(sizes) > BLOCK:
        total = _total_in_blocks(queries, query_mask, documents, document_mask, exclude_padding)
    else:
        total = _total(queries, query_mask, documents, document_mask, exclude_padding)
    if exclude_padding:
        empty = ~ops.any(document_mask, axis=-1)
        total = ops.where(empty if own else empty[None], HIDDEN, total)
    return total / ops.maximum(ops.sum(ops.cast(query_mask, "float32"), axis=-1), 1.0)[:, None] if mean else total


def _total(queries, query_mask, documents, document_mask, exclude_padding):
    """The sums of `max_sim`, float32 (a, b) or (a, n)."""
    own = len(documents.shape) == 4
    scores = ops.einsum("asm,antm->anst" if own else "asm,btm->abst", queries, documents)
    mask = document_mask[:, :, None] if own else document_mask[None, :, None]
    best = ops.max(ops.where(mask, scores, HIDDEN if exclude_padding else 0.0), axis=-1)  # (a, b or n, s)
    return ops.sum(ops.where(query_mask[:, None], best, 0.0), axis=-1)


def _total_in_blocks(queries, query_mask, documents, document_mask, exclude_padding):
    """The same for all pairs, with the scores of a few queries at a time, which the backward pass computes again."""
    count, length = queries.shape[:2]
    rows = max(1, BLOCK // (length * math.prod(documents.shape[:2])))
    blocks = -(-count // rows)
    missing = blocks * rows - count
    query_mask, document_mask = (ops.cast(mask, "float32") for mask in (query_mask, document_mask))
    parts = [ops.pad(x, [(0, missing), *[(0, 0)] * (len(x.shape) - 1)]) for x in (queries, query_mask)]
    parts = [ops.reshape(x, (blocks, rows, *x.shape[1:])) for x in parts]

    def function(queries, query_mask, documents, document_mask):  # of floats: TensorFlow differentiates them all
        return _total(queries, query_mask > 0, documents, document_mask > 0, exclude_padding)

    found = recomputed_blocks(function, parts, [documents, document_mask])
    return ops.reshape(found, (blocks * rows, -1))[:count]


def _late(mean, own):
    """MaxSim of columns (vectors (b, s, m), mask (b, s)): of the rows, or of all pairs of rows."""

    def function(one, other):
        (queries, query_mask), (documents, document_mask) = one, other
        if not own:
            return max_sim(queries, documents, query_mask, document_mask, mean)
        document_mask = None if document_mask is None else document_mask[:, None]
        return max_sim(queries, documents[:, None], query_mask, document_mask, mean)[:, 0]

    return function


def _negated(function):
    return lambda one, other: -function(one, other)


def _complement(function):
    return lambda one, other: 1 - function(one, other)


class Measure(NamedTuple):
    """A similarity or distance: `of_rows` compares rows with rows, (b,); `of_all` all pairs of rows, (a, b)."""

    of_rows: Callable[[Any, Any], Any]
    of_all: Callable[[Any, Any], Any]


# Columns are (b, m); those of the last two are pairs of vectors (b, s, m) and a mask (b, s) or None.
SIMILARITIES = {
    "cosine": Measure(cosine, all_cosines),
    "dot": Measure(dot, all_dots),
    "euclidean": Measure(_negated(euclidean), _negated(all_euclidean)),
    "manhattan": Measure(_negated(manhattan), _negated(all_manhattan)),
    "max_sim": Measure(_late(False, own=True), _late(False, own=False)),
    "mean_max_sim": Measure(_late(True, own=True), _late(True, own=False)),
}
OF_TOKENS = ("max_sim", "mean_max_sim")  # those that compare the vectors of tokens
DISTANCES = {
    "cosine": Measure(_complement(cosine), _complement(all_cosines)),
    "euclidean": Measure(euclidean, all_euclidean),
    "manhattan": Measure(manhattan, all_manhattan),
}
