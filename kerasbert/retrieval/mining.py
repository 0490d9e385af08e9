"""Hard negatives: documents that a model finds similar to a query, but that are not its positives."""

import collections
import dataclasses
import typing
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..data.text.json_files import check_types
from .bm25 import check_list
from .evaluation import is_embedder, pair_scores
from .search import SIMILARITIES, rows_of, search

LAYOUTS = ("triplet", "n-tuple", "labeled-pair", "labeled-list")


@dataclasses.dataclass(frozen=True)
class NegativeRules:
    """Which documents are negatives of a query.

    The candidates are the most similar documents that pass the limits. The first `range_min` candidates are left out.
    The negatives are chosen from the others, up to `range_max`. s is the lowest score of the query's positives.

    Args:
        num_negatives: number of negatives per query.
        range_min, range_max: ranks of the candidates. Default of the last: enough for all negatives, and ten times as
            many if there are limits.
        absolute_margin: documents with a score above s - absolute_margin are left out, as they may be positives.
        relative_margin: documents with a score above s - relative_margin * |s| are left out.
        max_score, min_score: limits of the scores.
        sampling: "top" for the most similar documents, or "random".

    Raises:
        ValueError: if `num_negatives` is below 1, `range_min` is below 0, `range_max` leaves fewer candidates than
            `num_negatives`, `sampling` is unknown, or a number has the wrong type or is NaN.
    """

    num_negatives: int = 3
    range_min: int = 0
    range_max: int | None = None
    absolute_margin: float | None = None
    relative_margin: float | None = None
    max_score: float | None = None
    min_score: float | None = None
    sampling: str = "top"

    def __post_init__(self) -> None:
        check_types(dataclasses.asdict(self), typing.get_type_hints(type(self)), "NegativeRules")
        if self.num_negatives < 1 or self.range_min < 0 or self.sampling not in ("top", "random"):
            raise ValueError(
                "`num_negatives` must be at least 1, `range_min` at least 0, and `sampling` top or random. Received: "
                f"{self}."
            )
        if self.range_max is not None and self.range_max - self.range_min < self.num_negatives:
            raise ValueError(
                f"`range_max` must be at least {self.range_min + self.num_negatives}, which is range_min + "
                f"num_negatives. Received: {self.range_max}."
            )

    def last_rank(self, most_positives: int, reranks: bool) -> int:
        """`range_max`, or its default for queries with at most so many positives."""
        if self.range_max is not None:
            return self.range_max
        limits = [self.absolute_margin, self.relative_margin, self.max_score, self.min_score if reranks else None]
        limited = any(limit is not None for limit in limits)
        return self.range_min + self.num_negatives * (10 if limited else 1) + most_positives

    @property
    def reads_scores(self) -> bool:
        """Whether a score decides more than the order."""
        limits = (self.absolute_margin, self.relative_margin, self.max_score, self.min_score)
        return any(limit is not None for limit in limits)

    def choose(self, scores: np.ndarray, positive: float, most: int, rng: np.random.Generator) -> np.ndarray:
        """Returns the places of the negatives among the candidates.

        Args:
            scores: float (n,), of the candidates; minus infinity for those that are no negatives.
            positive: the lowest score of the query's positives.
            most: the last rank that counts.
            rng: for random choices.
        """
        scores = scores.copy()
        if self.absolute_margin is not None:
            scores[scores + self.absolute_margin > positive] = -np.inf
        if self.relative_margin is not None:
            scores[scores > positive - abs(positive) * self.relative_margin] = -np.inf
        scores[scores > (np.inf if self.max_score is None else self.max_score)] = -np.inf
        scores[scores < (-np.inf if self.min_score is None else self.min_score)] = -np.inf
        order = np.argsort(-scores, kind="stable")[self.range_min : most]
        order = order[np.isfinite(scores[order])]
        if self.sampling == "random" and len(order) > self.num_negatives:
            order = order[np.sort(rng.choice(len(order), self.num_negatives, replace=False))]
        return order[: self.num_negatives]


def mine_hard_negatives(
    pairs: Sequence[tuple[str, str]],
    model: Any,
    corpus: Sequence[str] = (),
    rules: NegativeRules = NegativeRules(),
    layout: str = "triplet",
    reranker: Any = None,
    include_positives: bool = False,
    with_scores: bool = False,
    seed: int = 0,
    batch_size: int = 32,
) -> list[tuple[Any, ...]]:
    """Returns training examples with hard negatives.

    Args:
        pairs: (query, positive). A query may have several positives.
        model: an embedder, or a function that returns the vectors of texts. Scores of dense vectors are cosines;
            other vectors are compared by the `similarity` of the model.
        corpus: more documents. Documents that occur several times count once.
        rules: which documents are negatives.
        layout: "triplet": (query, positive, negative). "n-tuple": (query, positive, negative, ...), for queries with
            all negatives only. "labeled-pair": (query, document, 1 or 0). "labeled-list": (query, documents, labels).
        reranker: a `Reranker`, or a function of pairs. Its scores replace the model's `with_scores` or score limits.
        include_positives: whether the positives are candidates, too. This needs the layout "n-tuple".
        with_scores: whether triplets and n-tuples end with the list of the scores of their documents, and labels are
            scores. They are the targets of `MarginMSE` and `DistillKL`.
        seed, batch_size: the seed of random choices, and the number of texts per step.

    Returns: a list of tuples, in the order of the first occurrence of the queries.

    Raises: ValueError if a pair, `corpus`, `layout`, `reranker` or the vectors of `model` are not suitable.

    Example:
        >>> import kerasbert
        >>> from kerasbert.retrieval import mine_hard_negatives
        >>> model = kerasbert.load("modernbert_mini_en_embedder")
        >>> pairs = [("I forgot my password", "How do I change my password?")]
        >>> mine_hard_negatives(pairs, model, corpus=["Who cuts the grass?", "Where do I type my password?"])[0][2]
        'Where do I type my password?'
    """
    _check_arguments(layout, include_positives, corpus, model, reranker, rules)
    positives = _positives(pairs)
    documents = list(dict.fromkeys([*corpus, *(positive for _, positive in pairs)]))
    number = {document: i for i, document in enumerate(documents)}
    most = max(collections.Counter(query for query, _ in pairs).values())  # with pairs that occur several times
    last, rng, rows = rules.last_rank(most, reranker is not None), np.random.default_rng(seed), []
    queries, vectors, similarity = _vectors(model, list(positives), documents, batch_size)
    nearest = search(queries, vectors, min(last + most, len(documents)), similarity).numbers
    rescored = reranker is not None and (rules.reads_scores or with_scores)
    for row, (query, texts) in enumerate(positives.items()):
        own, found = np.array([number[text] for text in texts]), nearest[row]
        by_vectors = partial(_vector_scores, similarity, queries, row, vectors)
        score = partial(_pair_scores, reranker, query, documents, batch_size) if rescored else by_vectors
        scores, own_scores = score(found), score(own)
        candidates = scores if include_positives else np.where(np.isin(found, own), -np.inf, scores)
        chosen = rules.choose(candidates, own_scores.min(), last, rng)
        near = [(documents[i], 1, s) for i, s in zip(own, own_scores, strict=True)]
        far = [(documents[found[i]], 0, scores[i]) for i in chosen]
        rows += _examples(query, near, far, layout, rules.num_negatives, with_scores)
    return rows


def _check_arguments(layout, include_positives, corpus, model, reranker, rules):
    """Raises a ValueError for unknown layouts, for a corpus that is no list of str, and as `_check_models` does."""
    check_list(corpus, "corpus")
    _check_models(model, reranker, rules)
    if layout not in LAYOUTS or (include_positives and layout != "n-tuple"):
        raise ValueError(
            f"`layout` must be one of {', '.join(LAYOUTS)}, and n-tuple with include_positives. Received: {layout!r}."
        )


def _check_models(model, reranker, rules):
    """Raises a ValueError for models of other kinds, and for rules that are no `NegativeRules`."""
    if not isinstance(rules, NegativeRules):
        raise ValueError(f"`rules` must be NegativeRules(...). Received: {rules!r:.60}.")
    if not is_embedder(model) and (not callable(model) or hasattr(model, "predict")):
        advice = " A Reranker is passed as `reranker`." if hasattr(model, "score") else ""
        raise ValueError(
            f"`model` must be an embedder, or a function that returns the vectors of texts. Received: a "
            f"{type(model).__name__}.{advice}"
        )
    is_function = callable(reranker) and not hasattr(reranker, "predict")
    if reranker is not None and (is_embedder(reranker) or not (is_function or hasattr(reranker, "score"))):
        raise ValueError(
            f"`reranker` must be a Reranker, or a function of pairs. Received: a {type(reranker).__name__}. An "
            "embedder is passed as `model`."
        )


def _positives(pairs):
    """{query: its positives}, each once."""
    wrong = [pair for pair in pairs if not _is_pair(pair)]
    if wrong or not len(pairs):
        received = f"{wrong[0]!r:.60}" if wrong else "none"
        advice = " Use [(row[column], row[other]) for row in rows]." if wrong and isinstance(wrong[0], dict) else ""
        raise ValueError(f"There must be pairs (query, positive) of texts. Received: {received}.{advice}")
    positives: dict[str, list[str]] = {}
    for query, positive in pairs:
        if positive not in positives.setdefault(query, []):
            positives[query].append(positive)
    return positives


def _is_pair(pair):
    if not isinstance(pair, (tuple, list, np.ndarray)):  # a dict or a set of two texts is no pair of them
        return False
    return len(pair) == 2 and all(isinstance(text, str) for text in pair)


def _vectors(model, queries, documents, batch_size):
    """The vectors of both, and the similarity that compares them."""
    if not hasattr(model, "embed_documents"):
        return model(queries), model(documents), SIMILARITIES["cosine"]
    own = model.embed_queries(queries, batch_size=batch_size)
    theirs = model.embed_documents(documents, batch_size=batch_size)
    return own, theirs, SIMILARITIES["cosine"] if isinstance(own, np.ndarray) else model.similarity


def _vector_scores(similarity, queries, row, vectors, numbers):
    return np.asarray(similarity(rows_of(queries, slice(row, row + 1)), rows_of(vectors, numbers)), float)[0]


def _pair_scores(reranker, query, documents, batch_size, numbers):
    return pair_scores(reranker, [(query, documents[i]) for i in numbers], batch_size)


def _examples(query, positives, negatives, layout, count, with_scores):
    """The rows of a query; positives and negatives are (text, label, score)."""

    def scores(*items):
        return ([float(score) for _, _, score in items],) if with_scores else ()

    def label(item):
        return float(item[2]) if with_scores else item[1]

    if layout == "triplet":
        return [(query, p[0], n[0], *scores(p, n)) for p in positives for n in negatives]
    if layout == "n-tuple":
        complete = len(negatives) == count
        return [(query, p[0], *(n[0] for n in negatives), *scores(p, *negatives)) for p in positives if complete]
    if layout == "labeled-pair":
        return [(query, item[0], label(item)) for item in (*positives, *negatives)]
    lists = [[p, *negatives] for p in positives if negatives]
    return [(query, [item[0] for item in items], [label(item) for item in items]) for items in lists]
