"""Exact search: the documents whose vectors are most similar to those of queries."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..data.counts import check_counts

DOUBLED = 4096  # documents that are copied to float64 at once
NO_TOKENS = -1e9  # the score of a query token with a document that has no tokens, as in `similarity.max_sim`
Vectors = Any  # numpy (n, m), scipy CSR (n, m), or a list of n arrays (tokens, m)


class Found(NamedTuple):
    """The best documents of queries, in descending order of their scores.

    Where fewer than `top_k` documents are found, the number is -1 and the score minus infinity. An exact search of
    vectors always finds `top_k`; BM25 finds documents that share a word with the query.

    Attributes:
        numbers: int64 (queries, top_k), the places of the documents.
        scores: float32 (queries, top_k).
    """

    numbers: np.ndarray
    scores: np.ndarray

    def named(self, queries: Sequence[str], ids: Sequence[str]) -> dict[str, dict[str, float]]:
        """Returns {query: {document: score}}, as `metrics.retrieval` takes it.

        Args:
            queries: the ids of the queries.
            ids: the ids of the documents.

        Raises:
            ValueError: if the number of queries is not the number of results.
        """
        found: dict[str, dict[str, float]] = {}
        for query, numbers, scores in zip(queries, self.numbers.tolist(), self.scores.tolist(), strict=True):
            found[query] = {ids[n]: score for n, score in zip(numbers, scores, strict=True) if n >= 0}
        return found


def search(
    queries: Vectors,
    documents: Vectors,
    top_k: int | None = None,
    similarity: str | Callable[[Vectors, Vectors], np.ndarray] = "cosine",
    ids: Sequence[str] | None = None,
    memory: int = 2**27,
) -> Found:
    """Finds the documents that are most similar to queries, exactly and in bounded memory.

    Documents with equal scores are in ascending order of their ids as str ("d10" before "d2"), or without ids in their
    order.

    Args:
        queries, documents: vectors of an embedder: numpy (n, m); scipy CSR (n, m); or lists of arrays (tokens, m).
        top_k: number of documents to find for each query, at most the number of documents. Default: 10, or all
            documents if there are fewer.
        similarity: "cosine", "dot", "euclidean" or "manhattan", the last two as negative distances. For lists, it is
            "max_sim" or "mean_max_sim". A function from a queries and b documents to scores (a, b), such as the
            `similarity` of an embedder, is accepted, too.
        ids: the ids of the documents.
        memory: bytes of the scores, of texts or of their tokens, that are computed at once, and of the vectors of
            documents that are copied for them.

    Returns: a `Found`, with `numbers` and `scores` (queries, top_k) of the best documents, the best first.

    Raises:
        ValueError: if vectors are empty, not finite, or of different kinds or widths, `top_k` is not from 1 to the
            number of documents, `similarity` is unknown or does not return scores (a, b), `ids` are not different, or
            `memory` is below 1.

    Example:
        >>> import numpy as np
        >>> from kerasbert.retrieval import search
        >>> documents = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
        >>> found = search(np.array([[0.0, 2.0]]), documents, top_k=2)
        >>> found.numbers.tolist()
        [[2, 1]]
        >>> [round(float(score), 2) for score in found.scores[0]]
        [1.0, 0.8]
    """
    check_vectors(documents, "documents", similarity)
    check_vectors(queries, "queries", similarity, documents)
    check_counts(memory=memory)
    count, function = size(documents), similarity if callable(similarity) else SIMILARITIES[similarity]
    best = Best(size(queries), check_top_k(top_k, count), order_of(ids, count))
    for rows, columns in _chunks(queries, documents, similarity == "manhattan", memory):
        best.add(rows, columns, function(rows_of(queries, rows), rows_of(documents, columns)))
    return best.found()


class Best:
    """The best documents of queries, collected from blocks of scores.

    Args:
        queries: number of queries.
        top_k: number of documents to keep for each.
        order: int (documents,), the place of each document among documents with equal scores.
    """

    def __init__(self, queries: int, top_k: int, order: np.ndarray):
        self.top_k, self.order = top_k, order
        self._kept = [(np.zeros(0, "int64"), np.zeros(0, "float32")) for _ in range(queries)]

    def add(self, rows: slice, columns: slice, scores: Any) -> None:
        """Adds the scores (a, b) of some queries with some documents. Minus infinity leaves a document out."""
        scores, expected = np.asarray(scores, "float32"), (rows.stop - rows.start, columns.stop - columns.start)
        if scores.shape != expected or np.isnan(scores).any():
            received = f"the shape {scores.shape}" if scores.shape != expected else "nan"
            raise ValueError(f"A similarity must return scores of the shape {expected}. Received: {received}.")
        places, width = np.arange(columns.start, columns.stop), scores.shape[1]
        least = np.full(len(scores), -np.inf, "float32")
        if self.top_k < width:
            least = np.partition(scores, width - self.top_k, axis=1)[:, width - self.top_k]
        for row, one, bound in zip(range(rows.start, rows.stop), scores, least, strict=True):
            chosen = (one >= bound) & (one > -np.inf)
            self._keep(row, places[chosen], one[chosen])

    def merge(self, found: Found, start: int) -> None:
        """Adds the results of a search of some documents, of which the first has the number `start`."""
        for row, (numbers, scores) in enumerate(zip(*found, strict=True)):
            self._keep(row, numbers[numbers >= 0] + start, scores[numbers >= 0])

    def _keep(self, row, numbers, scores):
        numbers, scores = (np.append(*pair) for pair in zip(self._kept[row], (numbers, scores), strict=True))
        first = np.lexsort((self.order[numbers], -scores))[: self.top_k]
        self._kept[row] = numbers[first], scores[first]

    def found(self) -> Found:
        """The best documents so far."""
        numbers = np.full((len(self._kept), self.top_k), -1, "int64")
        scores = np.full((len(self._kept), self.top_k), -np.inf, "float32")
        for row, (kept, values) in enumerate(self._kept):
            numbers[row, : len(kept)], scores[row, : len(kept)] = kept, values
        return Found(numbers, scores)


# === Vectors ===


def is_sparse(vectors: Vectors) -> bool:
    """Whether vectors are a sparse matrix of scipy."""
    return hasattr(vectors, "tocsr")


def size(vectors: Vectors) -> int:
    """The number of texts."""
    return vectors.shape[0] if hasattr(vectors, "shape") else len(vectors)


def rows_of(vectors: Vectors, rows: Any) -> Vectors:
    """Some of the vectors: a slice, or an array of numbers."""
    if hasattr(vectors, "shape"):
        return vectors[rows]
    return vectors[rows] if isinstance(rows, slice) else [vectors[row] for row in rows]


def _width(vectors):
    return vectors.shape[-1] if hasattr(vectors, "shape") else vectors[0].shape[-1]


def check_vectors(vectors: Vectors, what: str, similarity: Any = None, documents: Vectors | None = None) -> None:
    """Raises a ValueError for vectors that cannot be searched, or that do not fit the documents or the similarity."""
    if not isinstance(vectors, list) and len(getattr(vectors, "shape", ())) != 2:
        raise ValueError(
            f"The vectors of {what} must be an array or a CSR matrix (n, m), or a list of arrays (tokens, m). "
            f"Received: {getattr(vectors, 'shape', type(vectors).__name__)}."
        )
    if not size(vectors):
        raise ValueError(f"A search needs {what}. Received: none.")
    is_list = isinstance(vectors, list)
    shapes = {getattr(one, "shape", ())[1:] for one in vectors} if is_list else set()
    if is_list and (len(shapes) != 1 or {len(shape) for shape in shapes} != {1}):
        raise ValueError(f"Lists of vectors must hold arrays (tokens, m) of one width. Received: {what}, {shapes}.")
    values = vectors if is_list else [vectors.data if is_sparse(vectors) else vectors]
    if not all(np.isfinite(part).all() for part in values):
        raise ValueError(f"Vectors must be finite. Received: {what} with nan or infinity.")
    if documents is not None and (is_list, _width(vectors)) != (isinstance(documents, list), _width(documents)):
        raise ValueError(
            f"The vectors of queries and documents must be of one kind and width. Received: {described(vectors)} and "
            f"{described(documents)}. Compute both with the same model."
        )
    known = LATE if is_list else SIMILARITIES.keys() - LATE - ({"manhattan"} if is_sparse(vectors) else set())
    if isinstance(similarity, str) and similarity not in known:
        raise ValueError(
            f"`similarity` of {described(vectors)} must be a function or one of {', '.join(sorted(known))}. Received: "
            f"{similarity!r}."
        )


def described(vectors: Vectors) -> str:
    """Kind and width of vectors, for messages."""
    kind = "lists of" if isinstance(vectors, list) else "sparse" if is_sparse(vectors) else "dense"
    return f"{kind} vectors of width {_width(vectors)}"


def check_top_k(top_k: int | None, documents: int) -> int:
    """Returns `top_k`, or raises a ValueError unless it is from 1 to the number of documents.

    None stands for 10, or for all documents if there are fewer.
    """
    if top_k is None:
        return min(10, documents)
    if isinstance(top_k, bool) or not isinstance(top_k, (int, np.integer)) or not 1 <= top_k <= documents:
        raise ValueError(
            f"`top_k` must be from 1 to the number of documents, {documents}. Received: {top_k!r}. Lower it, or add "
            "documents."
        )
    return int(top_k)


def order_of(ids: Sequence[str] | None, count: int) -> np.ndarray:
    """The place of each document in the order of the ids as str, int64 (count,)."""
    if ids is None:
        return np.arange(count)
    names = [str(one) for one in ids]
    if len(names) != count or len(set(names)) < count:
        raise ValueError(
            f"`ids` must be one per document, and different. Received: {len(names)} ids, of which {len(set(names))} "
            f"differ, for {count} documents."
        )
    order = np.empty(count, "int64")
    order[sorted(range(count), key=names.__getitem__)] = np.arange(count)
    return order


def _chunks(queries: Vectors, documents: Vectors, all_components: bool, memory: int) -> Iterator[tuple[slice, slice]]:
    """Yields blocks of queries and documents, in which neither the scores nor a copy of the documents exceed `memory`.

    The scores are those of tokens or components. The documents of a block are copied to scale them to length 1.
    """
    tokens = [max(1, max(map(len, x))) if isinstance(x, list) else 1 for x in (queries, documents)]
    cost = 4 * tokens[0] * tokens[1] * (_width(documents) if all_components else 1)
    most = max(1, memory // cost)
    rows = min(size(queries), 256, most)
    copied = 0 if is_sparse(documents) else 4 * tokens[1] * _width(documents)  # bytes of a document
    columns = min(size(documents), max(1, most // rows), max(1, memory // copied) if copied else size(documents))
    for start in range(0, size(documents), columns):
        for first in range(0, size(queries), rows):
            end = min(first + rows, size(queries))
            yield slice(first, end), slice(start, min(start + columns, size(documents)))


# === Similarities, in numpy ===


def unit_rows(vectors: Vectors) -> Vectors:
    """Scales vectors (n, m) to length 1; vectors of zeros stay zeros."""
    if is_sparse(vectors):
        lengths = np.sqrt(np.asarray(vectors.multiply(vectors).sum(axis=1), "float32")).reshape(-1, 1)
        return vectors.multiply(1 / np.maximum(lengths, 1e-12)).tocsr()
    vectors = np.asarray(vectors, "float32")
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _dots(queries, documents, dtype="float32"):
    if is_sparse(queries) or is_sparse(documents):
        found = queries @ documents.T
        return found.toarray() if is_sparse(found) else np.asarray(found)
    return np.asarray(queries, dtype) @ np.asarray(documents, dtype).T


def _doubled(vectors):
    return vectors.astype("float64") if is_sparse(vectors) else np.asarray(vectors, "float64")


def _squares(vectors):
    if is_sparse(vectors):
        return np.asarray(vectors.multiply(vectors).sum(axis=1)).reshape(-1)
    return np.square(vectors).sum(axis=1)


def _euclidean(queries, documents):
    """Negative distances, from |q|² - 2qd + |d|² in float64, in parts: in float32, it loses small distances."""
    queries, scores = _doubled(queries), np.empty((size(queries), size(documents)), "float32")
    own = _squares(queries)[:, None]
    for start in range(0, size(documents), DOUBLED):
        part = _doubled(documents[start : start + DOUBLED])
        squares = own - 2 * _dots(queries, part, "float64") + _squares(part)
        scores[:, start : start + DOUBLED] = -np.sqrt(np.maximum(squares, 0))
    return scores


def _manhattan(queries, documents):
    queries, documents = (np.asarray(x, "float32") for x in (queries, documents))
    return -np.abs(queries[:, None] - documents[None]).sum(axis=2)


def _max_sim(queries, documents, mean=False):
    """MaxSim of lists of arrays; see `similarity.max_sim`. Tokens are put side by side, without padding."""
    counts, lengths = np.array([len(q) for q in queries]), np.array([len(d) for d in documents])
    scores = np.full((counts.sum(), len(documents)), NO_TOKENS, "float32")
    full = np.flatnonzero(lengths)
    if len(full) and len(scores):
        products = _dots(np.concatenate(queries), np.concatenate([documents[i] for i in full]))
        starts = np.concatenate([[0], np.cumsum(lengths[full])[:-1]])
        scores[:, full] = np.maximum.reduceat(products, starts, axis=1)
    sums = np.zeros((len(queries), len(documents)), "float32")
    full = np.flatnonzero(counts)
    if len(full):
        sums[full] = np.add.reduceat(scores, np.concatenate([[0], np.cumsum(counts[full])[:-1]]), axis=0)
    return sums / np.maximum(counts, 1)[:, None] if mean else sums


LATE = {"max_sim", "mean_max_sim"}
SIMILARITIES: dict[str, Callable[[Vectors, Vectors], np.ndarray]] = {
    "cosine": lambda queries, documents: _dots(unit_rows(queries), unit_rows(documents)),
    "dot": _dots,
    "euclidean": _euclidean,
    "manhattan": _manhattan,
    "max_sim": _max_sim,
    "mean_max_sim": lambda queries, documents: _max_sim(queries, documents, mean=True),
}
