"""Evaluation of search: a collection in BEIR format, a first stage, and a second one that reorders its results."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..data.text.folders import folder_at
from ..data.text.tables import jsonl_values, text_lines
from ..metrics import retrieval
from .bm25 import BM25
from .search import Best, check_top_k, order_of, rows_of, search


@dataclasses.dataclass(frozen=True)
class Collection:
    """Documents, queries, and judgments of which document answers which query.

    Args:
        documents: {id: text}.
        queries: {id: text}.
        relevant: {query: {document: grade}}. A grade above 0 is relevant. {query: documents} stands for a grade of 1
            for each of them.

    Raises:
        ValueError: if there are no documents, a text is no str, a grade no number, no query has a relevant document, or
            a judgment has an unknown id.

    Example:
        >>> from kerasbert.retrieval import Collection, retrieve
        >>> documents = {"d1": "The cat sat on the mat.", "d2": "A dog ran home."}
        >>> collection = Collection(documents, queries={"q1": "a sleeping cat"}, relevant={"q1": {"d1": 1}})
        >>> list(retrieve(collection, "bm25", top_k=1)["q1"])
        ['d1']
    """

    documents: Mapping[str, str]
    queries: Mapping[str, str]
    relevant: Mapping[str, Any]

    def __post_init__(self) -> None:
        for name in ("documents", "queries", "relevant"):
            given = getattr(self, name)
            if not isinstance(given, Mapping):
                raise ValueError(
                    f"`{name}` of a collection must be a dict by ids. Received: a {type(given).__name__}. "
                    "Use {str(i): text for i, text in enumerate(texts)}."
                )
        for query, grades in self.relevant.items():
            if isinstance(grades, str) or not isinstance(grades, Iterable):
                raise ValueError(f"Judgments must be {{document: grade}}. Received: {grades!r:.60} for {query!r}.")
        graded = {
            query: grades if isinstance(grades, Mapping) else dict.fromkeys(grades, 1)
            for query, grades in self.relevant.items()
        }
        object.__setattr__(self, "relevant", graded)
        for query, grades in graded.items():
            wrong = next((grade for grade in grades.values() if not isinstance(grade, (int, float, np.number))), None)
            if wrong is not None:
                raise ValueError(f"Grades must be numbers. Received: {wrong!r:.40} for the query {query!r}.")
        for what, texts in (("document", self.documents), ("query", self.queries)):
            wrong = next((name for name, text in texts.items() if not isinstance(text, str)), None)
            if wrong is not None:
                raise ValueError(f"Texts must be str. Received: {texts[wrong]!r:.60} for the {what} {wrong!r}.")
        if not self.documents or not self.judged:
            raise ValueError(
                "A collection needs documents, and a query with a relevant document. Received: "
                f"{len(self.documents)} documents and {len(self.judged)} queries with one."
            )
        for query, grades in self.relevant.items():
            if query not in self.queries:
                raise ValueError(f"Judgments must be about queries of the collection. Received: the query {query!r}.")
            unknown = next((one for one in grades if one not in self.documents), None)
            if unknown is not None:
                raise ValueError(
                    f"Judgments must be about documents of the collection. Received: the document {unknown!r} for the "
                    f"query {query!r}."
                )

    @property
    def judged(self) -> list[str]:
        """The queries with a relevant document, in order. Others are not searched."""
        return [query for query, grades in self.relevant.items() if any(grade > 0 for grade in grades.values())]


# === Files ===


def read_beir(folder: str | Path, split: str = "test") -> Collection:
    """Reads a folder in BEIR format (Thakur et al. 2021, arXiv 2104.08663).

    `corpus.jsonl` has a document per line, {"_id", "title", "text"}. The text of a document is title and text with a
    space between them. `queries.jsonl` has {"_id", "text"}. `qrels/SPLIT.tsv` has the judgments. The first two may end
    in .gz.

    Raises:
        FileNotFoundError: if one of the files is missing.
        ValueError: if a line has another form, an id occurs twice, or a judgment has an unknown id.
    """
    folder = folder_at(folder)
    documents = _texts(_file(folder, "corpus"), titled=True)
    return Collection(documents, _texts(_file(folder, "queries")), read_judgments(_judgments(folder, split)))


def is_beir(folder: str | Path) -> bool:
    """Whether a folder is in BEIR format."""
    return any((Path(folder) / f"corpus.jsonl{end}").is_file() for end in ("", ".gz"))


def _file(folder, name):
    found = [folder / f"{name}.jsonl{end}" for end in ("", ".gz")]
    for path in found:
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"A collection is a folder with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv. Received: {folder} without "
        f"{found[0].name}."
    )


def _judgments(folder, split):
    path = folder / "qrels" / f"{split}.tsv"
    if not path.is_file():
        splits = ", ".join(sorted(file.stem for file in path.parent.glob("*.tsv"))) or "none"
        raise FileNotFoundError(f"`split` must be one of {folder}: {splits}. Received: {split!r}.")
    return path


def _texts(path: Path, titled: bool = False) -> dict[str, str]:
    """Reads {id: text}, with the titles of documents before their texts."""
    found: dict[str, str] = {}
    for number, value in jsonl_values(text_lines(path), path):
        where, row = f"{path} line {number}", value if isinstance(value, dict) else {}
        name = row.get("_id")
        if isinstance(name, bool) or not isinstance(name, (str, int)):
            raise ValueError(f'Every line must be an object with an "_id". Received: {where}: {value!r:.60}.')
        parts = [row.get("title", "") if titled else "", row.get("text")]
        parts[0] = "" if parts[0] is None else parts[0]
        if not all(isinstance(part, str) for part in parts):
            raise ValueError(f'Every line must have a "text", which is a str. Received: {where}: {row!r:.60}.')
        if str(name) in found:
            raise ValueError(f"Ids must differ. Received: {where} with {name!r}, as an earlier line.")
        found[str(name)] = " ".join(parts).strip() if titled else parts[1]
    return found


def read_judgments(path: str | Path) -> dict[str, dict[str, float]]:
    """Reads {query: {document: grade}} from a file of judgments.

    Lines have the three columns of BEIR (query, document, grade) or the four of TREC (query, 0, document, grade), with
    tabs or spaces between them. A first line of names is skipped.

    Raises:
        ValueError: for other lines, and for pairs that are judged twice with different grades.
    """
    found: dict[str, dict[str, float]] = {}
    for number, line in enumerate(text_lines(path), start=1):
        cells = [cell.strip() for cell in line.split("\t")] if "\t" in line else line.split()
        if not any(cells):
            continue
        grade = _number(cells[-1])
        if grade is None and number == 1 and len(cells) in (3, 4):
            continue
        if len(cells) not in (3, 4) or grade is None:
            raise ValueError(
                "A judgment must have the columns query, document and grade, or query, 0, document and grade. "
                f"Received: {path} line {number}: {line.strip()!r:.60}."
            )
        query, document = cells[0], cells[-2]
        before = found.setdefault(query, {}).setdefault(document, grade)
        if before != grade:
            raise ValueError(
                f"A pair must have one grade. Received: {path} line {number}: {grade:g} for {query!r} and "
                f"{document!r}, which had {before:g}."
            )
    return found


def _number(cell):
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


# === Stages ===


def evaluate_retrieval(
    collection: Collection,
    first: Any,
    second: Any = None,
    top_k: int = 100,
    cutoffs: Mapping[str, Sequence[int]] | None = None,
    batch_size: int = 32,
) -> dict[str, float]:
    """Searches a collection, and returns the metrics of `metrics.retrieval`.

    A grade above 0 is relevant, and grades do not differ otherwise, as in sentence-transformers.

    Args:
        collection, first, second, top_k, batch_size: see `retrieve`.
        cutoffs: see `metrics.retrieval`.

    Raises:
        ValueError: if `first` or `second` is no model of its stage, `top_k` is below 1, or a cutoff is unknown.

    Example:
        >>> import kerasbert
        >>> from kerasbert.retrieval import Collection, evaluate_retrieval
        >>> documents = {"d1": "The parcel has not arrived.", "d2": "How do I reset my password?"}
        >>> collection = Collection(documents, {"q1": "I forgot my password."}, {"q1": {"d2": 1}})
        >>> scores = evaluate_retrieval(collection, kerasbert.load("modernbert_mini_en_embedder"))
        >>> scores["ndcg@10"], scores["recall@1"]
        (1.0, 1.0)
    """
    return retrieval(collection.relevant, retrieve(collection, first, second, top_k, batch_size), cutoffs)


def retrieve(
    collection: Collection, first: Any, second: Any = None, top_k: int = 100, batch_size: int = 32
) -> dict[str, dict[str, float]]:
    """Searches the documents of a collection for the queries that have relevant ones.

    Args:
        collection: documents and queries.
        first: the first stage: "bm25", or an embedder of any kind, whose vectors are searched exactly.
        second: reorders the documents of the first stage: a reranker (`score(pairs)`), or an embedder. Default: none.
        top_k: number of documents of the first stage per query. A smaller collection is searched whole.
        batch_size: texts per step.

    Returns: {query: {document: score}}, with the scores of the last stage.

    Raises:
        ValueError: if `first` is neither "bm25" nor an embedder, `second` is neither a reranker nor an embedder,
            `top_k` is below 1, or the reranker gives several scores per pair.
        ImportError: if "bm25" needs a package that is not installed.
    """
    if first != "bm25" and not is_embedder(first):
        raise ValueError(
            'A first stage must be "bm25" or an embedder. Received: '
            f"{first if isinstance(first, str) else type(first).__name__}. A reranker is a second stage."
        )
    if second is not None and not is_embedder(second) and not hasattr(second, "score"):
        raise ValueError(f"A second stage must be a reranker or an embedder. Received: a {type(second).__name__}.")
    queries = {query: collection.queries[query] for query in collection.judged}
    documents = collection.documents
    top_k = check_top_k(min(top_k, len(documents)), len(documents))
    if first == "bm25":
        ids = list(documents)
        found = BM25(list(documents.values()), ids).search(list(queries.values()), top_k)
        results = found.named(list(queries), ids)
    else:
        results = _by_vectors(first, queries, documents, top_k, batch_size)
    if second is None or not any(results.values()):
        return results
    reorder = _by_second_vectors if is_embedder(second) else _by_pairs
    return reorder(second, queries, documents, results, batch_size)


def is_embedder(model: Any) -> bool:
    """Whether an object has the methods of embedders."""
    return all(hasattr(model, name) for name in ("embed_queries", "embed_documents", "similarity"))


def pair_scores(reranker: Any, pairs: Sequence[tuple[str, str]], batch_size: int = 32) -> np.ndarray:
    """Scores pairs of a query and a document by a reranker, or by a function of the pairs.

    Returns: float64 (number of pairs,).

    Raises:
        ValueError: unless the model gives one score per pair.
    """
    found = reranker.score(pairs, batch_size=batch_size) if hasattr(reranker, "score") else reranker(pairs)
    scores = np.asarray(found, float)
    if scores.shape != (len(pairs),):
        raise ValueError(
            f"A reranker must give one score per pair. Received: scores of the shape {scores.shape} for {len(pairs)} "
            "pairs. Use a model with one output."
        )
    return scores


CHUNK = 5_000  # documents whose vectors are kept at once


def _by_vectors(model, queries, documents, top_k, batch_size):
    """Results of an exact search; the vectors of the documents are computed and searched in chunks."""
    ids, texts, order = list(documents), list(documents.values()), order_of(list(documents), len(documents))
    vectors = model.embed_queries(list(queries.values()), batch_size=batch_size)
    best = Best(len(queries), top_k, order)
    for start in range(0, len(texts), CHUNK):
        part = texts[start : start + CHUNK]
        found = search(
            vectors,
            model.embed_documents(part, batch_size=batch_size),
            min(top_k, len(part)),
            model.similarity,
            ids[start : start + CHUNK],
        )
        best.merge(found, start)
    return best.found().named(list(queries), ids)


def _by_second_vectors(model, queries, documents, results, batch_size):
    """Scores of an embedder for the results of a first stage."""
    candidates = list(dict.fromkeys(one for found in results.values() for one in found))
    number = {one: i for i, one in enumerate(candidates)}
    vectors = model.embed_queries(list(queries.values()), batch_size=batch_size)
    theirs = model.embed_documents([documents[one] for one in candidates], batch_size=batch_size)
    scored = {}
    for i, query in enumerate(queries):
        found = list(results[query])
        own = rows_of(theirs, np.array([number[one] for one in found], "int64"))
        scores = model.similarity(rows_of(vectors, slice(i, i + 1)), own)[0] if found else []
        scored[query] = {one: float(score) for one, score in zip(found, scores, strict=True)}
    return scored


def _by_pairs(model, queries, documents, results, batch_size):
    """Scores of a reranker for the results of a first stage."""
    pairs = [(query, one) for query, found in results.items() for one in found]
    scores = pair_scores(model, [(queries[q], documents[d]) for q, d in pairs], batch_size)
    scored: dict[str, dict[str, float]] = {query: {} for query in results}
    for (query, document), score in zip(pairs, scores, strict=True):
        scored[query][document] = float(score)
    return scored
