"""Approximate search of dense vectors, by the graphs of faiss or usearch."""

import importlib
from collections.abc import Sequence

import numpy as np

from ..core.packages import required
from ..data.counts import check_counts
from .search import Found, check_top_k, check_vectors, described, is_sparse, order_of, unit_rows


class ApproximateIndex:
    """An index that finds similar documents without comparing all of them, and may miss some of the best.

    Args:
        vectors: numpy float (n, m).
        similarity: "cosine", "dot" or "euclidean".
        ids: the ids of the documents, which order equal scores; see `search`.
        library: "faiss" or "usearch", each an extra of kerasbert. Both build a graph of neighbors (HNSW).
        connections: number of neighbors of a document, at least 2. More find more, and take more memory.
        effort: number of documents that a search looks at. Default: four times `top_k`, at least 64.

    Raises:
        ValueError: if `library` or `similarity` is unknown, `connections` or `effort` is too small, vectors are not
            dense and finite, or `ids` are not unique.
        ImportError: if the library is not installed.
    """

    def __init__(
        self,
        vectors: np.ndarray,
        similarity: str = "cosine",
        ids: Sequence[str] | None = None,
        library: str = "faiss",
        connections: int = 32,
        effort: int | None = None,
    ):
        if library not in _LIBRARIES or similarity not in ("cosine", "dot", "euclidean"):
            raise ValueError(
                "`library` must be faiss or usearch, and `similarity` cosine, dot or euclidean. Received: "
                f"{library!r} and {similarity!r}."
            )
        check_counts(2, connections=connections)
        check_counts(or_none=True, effort=effort)
        if isinstance(vectors, list) or is_sparse(vectors):
            raise ValueError(f"An approximate index needs dense vectors. Received: {described(vectors)}. Use search().")
        package = required(library, library)
        check_vectors(vectors, "documents", similarity)
        self.similarity, self.order, self.width = similarity, order_of(ids, len(vectors)), vectors.shape[1]
        self.size, self.effort = len(vectors), effort
        self._search = _LIBRARIES[library](package, self._prepared(vectors), similarity == "euclidean", connections)

    def _prepared(self, vectors):
        return np.ascontiguousarray(unit_rows(vectors) if self.similarity == "cosine" else vectors, "float32")

    def search(self, queries: np.ndarray, top_k: int | None = None) -> Found:
        """Finds documents that are similar to queries, numpy float (a, m). See `search` for `top_k`.

        Raises:
            ValueError: if the vectors are not finite or have another width than the documents, or `top_k` is not from 1
                to the number of documents.
        """
        check_vectors(queries, "queries", self.similarity, np.empty((1, self.width)))
        top_k = check_top_k(top_k, self.size)
        numbers, scores = self._search(self._prepared(queries), top_k, self.effort or max(64, 4 * top_k))
        scores = -np.sqrt(np.maximum(-scores, 0)) if self.similarity == "euclidean" else scores
        scores = np.where(numbers < 0, -np.inf, scores)
        order = np.lexsort((np.where(numbers < 0, self.size, self.order[numbers]), -scores), axis=1)
        numbers, scores = (np.take_along_axis(x, order, 1) for x in (numbers, scores))
        return Found(numbers.astype("int64"), scores.astype("float32"))


def _faiss(faiss, vectors, is_distance, connections):
    """A search in a graph of faiss: of (queries, top_k, effort), to numbers and dot products or negative squares."""
    index = faiss.IndexHNSWFlat(
        vectors.shape[1], connections, faiss.METRIC_L2 if is_distance else faiss.METRIC_INNER_PRODUCT
    )
    index.add(vectors)

    def find(queries, top_k, effort):
        index.hnsw.efSearch = effort
        scores, numbers = index.search(queries, top_k)
        return numbers, -scores if is_distance else scores

    return find


def _usearch(_, vectors, is_distance, connections):
    """A search in a graph of usearch; see `_faiss`."""
    index = importlib.import_module("usearch.index").Index(
        ndim=vectors.shape[1], metric="l2sq" if is_distance else "ip", connectivity=connections, dtype="f32"
    )
    index.add(np.arange(len(vectors)), vectors)

    def find(queries, top_k, effort):
        index.expansion_search = effort
        numbers, scores = np.full((len(queries), top_k), -1, "int64"), np.zeros((len(queries), top_k), "float32")
        for row, query in enumerate(queries):
            found = index.search(query, top_k)
            numbers[row, : len(found)] = np.asarray(found.keys, "int64")
            scores[row, : len(found)] = -found.distances if is_distance else 1 - found.distances
        return numbers, scores

    return find


_LIBRARIES = {"faiss": _faiss, "usearch": _usearch}
