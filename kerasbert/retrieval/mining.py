"""Hard negatives: documents that a model finds similar to a query, but that are not its positives."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

LAYOUTS = ("triplet", "n-tuple", "labeled-pair", "labeled-list")


@dataclasses.dataclass(frozen=True)
class NegativeRules:
    """Which documents are negatives of a query.

    The candidates are the most similar documents. Of those that pass the limits, the first `range_min` are left out,
    and the others up to `range_max` are chosen from. s is the lowest score of the query's positives.

    Args:
        num_negatives: number of negatives per query.
        range_min, range_max: ranks of the candidates. Default of the last: enough for all negatives, and ten times as
            many if there are limits.
        absolute_margin: documents with a score above s - absolute_margin are left out, as they may be positives.
        relative_margin: documents with a score above s - relative_margin * |s| are left out.
        max_score, min_score: limits of the scores.
        sampling: "top" for the most similar documents, or "random".
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
    encode: Callable[[list[str]], np.ndarray],
    corpus: Sequence[str] = (),
    rules: NegativeRules = NegativeRules(),
    layout: str = "triplet",
    rerank: Callable[[list[tuple[str, str]]], np.ndarray] | None = None,
    include_positives: bool = False,
    seed: int = 0,
) -> list[tuple[Any, ...]]:
    """Returns training examples with hard negatives.

    Args:
        pairs: (query, positive). A query may have several positives.
        encode: function that returns the vectors of texts, such as `TextEmbedder.embed`. Scores are cosines.
        corpus: more documents.
        rules: which documents are negatives.
        layout: "triplet": (query, positive, negative). "n-tuple": (query, positive, negative, ...), for queries with
            all negatives only. "labeled-pair": (query, document, 1 or 0). "labeled-list": (query, documents, labels).
        rerank: function that scores pairs, such as those of a cross-encoder. Its scores replace the cosines if the
            rules have limits on scores.
        include_positives: whether the positives are candidates, too. This needs the layout "n-tuple".
        seed: of random choices.

    Returns: a list of tuples, in the order of the first occurrence of the queries.
    """
    if layout not in LAYOUTS or (include_positives and layout != "n-tuple"):
        raise ValueError(
            f"`layout` must be one of {', '.join(LAYOUTS)}, and n-tuple with include_positives. Received: {layout!r}."
        )
    if not len(pairs):
        raise ValueError("There must be pairs of a query and a positive. Received: none.")
    documents = list(dict.fromkeys([*corpus, *(positive for _, positive in pairs)]))
    number = {document: i for i, document in enumerate(documents)}
    positives: dict[str, dict[int, None]] = {}
    for query, positive in pairs:
        positives.setdefault(query, {})[number[positive]] = None
    queries, vectors = _unit(encode(list(positives))), _unit(encode(documents))
    most = max(map(len, positives.values()))
    last, rng, rows = rules.last_rank(most, rerank is not None), np.random.default_rng(seed), []
    for (query, own), vector in zip(positives.items(), queries, strict=True):
        similarity = vectors @ vector
        found = np.argsort(-similarity, kind="stable")[: last + most]
        scores, own_scores = similarity[found], similarity[list(own)]
        if rerank is not None and rules.reads_scores:
            scores, own_scores = (
                np.asarray(rerank([(query, documents[i]) for i in part]), float) for part in (found, list(own))
            )
        if not include_positives:
            scores = np.where(np.isin(found, list(own)), -np.inf, scores)
        chosen = [documents[found[i]] for i in rules.choose(scores, own_scores.min(), last, rng)]
        rows += _examples(query, [documents[i] for i in own], chosen, layout, rules.num_negatives)
    return rows


def _examples(query, positives, negatives, layout, count):
    if layout == "triplet":
        return [(query, positive, negative) for positive in positives for negative in negatives]
    if layout == "n-tuple":
        return [(query, positive, *negatives) for positive in positives if len(negatives) == count]
    if layout == "labeled-pair":
        return [(query, text, 1) for text in positives] + [(query, text, 0) for text in negatives]
    labels = [1] + [0] * len(negatives)
    return [(query, [positive, *negatives], labels) for positive in positives if negatives]


def _unit(vectors):
    vectors = np.asarray(vectors, "float64")
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
