"""Classification with few labels, or with none: pairs for contrastive training, and scores from entailment."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data.counts import check_counts

SAMPLINGS = ("unique", "oversampling", "undersampling")


@dataclasses.dataclass(frozen=True)
class PairRules:
    """Which pairs of examples SetFit trains on (Tunstall et al. 2022, arXiv 2209.11055).

    Args:
        sampling: "unique" takes every pair once. "oversampling" repeats the rarer kind until both are equally frequent.
            "undersampling" takes as many of the other kind as of the rarer one.
        iterations: if given, there are `iterations` pairs of each kind for every example, repeated where there are too
            few, whatever `sampling` is. The paper has 20.
        limit: maximum number of different pairs, half of each kind; `iterations` may repeat them. Default: no limit.
        include_identical: whether an example forms a pair with itself, as in the `setfit` package. The paper has none
            of these pairs.
        seed: of the order of the pairs.

    Raises:
        ValueError: if `sampling` is unknown, or a number is no integer, or too small.
    """

    sampling: str = "oversampling"
    iterations: int | None = None
    limit: int | None = None
    include_identical: bool = True
    seed: int = 42

    def __post_init__(self) -> None:
        if self.sampling not in SAMPLINGS:
            raise ValueError(f"`sampling` must be one of {', '.join(SAMPLINGS)}. Received: {self.sampling!r}.")
        check_counts(or_none=True, iterations=self.iterations)
        check_counts(2, or_none=True, limit=self.limit)
        check_counts(0, seed=self.seed)


def contrastive_pairs(labels: Sequence[Any], rules: PairRules | None = None) -> list[tuple[int, int, float]]:
    """Pairs of examples, 1.0 for those of the same class and 0.0 for others.

    Pairs of the same class and others take turns until one kind ends.

    Args:
        labels: a class for each example; or a set or list of labels, where examples that share one are similar.
        rules: which pairs. Default: `PairRules()`.

    Returns: (number of an example, number of another, 1.0 or 0.0).
    """
    rules = rules or PairRules()
    kinds = [set(label) if isinstance(label, (set, list, tuple)) else {label} for label in labels]
    first, second = np.triu_indices(len(kinds), k=0 if rules.include_identical else 1)
    similar: list[tuple[int, int, float]] = []
    other: list[tuple[int, int, float]] = []
    most = len(first) if rules.limit is None else rules.limit // 2
    for number in np.random.default_rng(rules.seed).permutation(len(first)):
        i, j = int(first[number]), int(second[number])
        share = bool(kinds[i] & kinds[j])
        side = similar if share else other
        if len(side) < most:
            side.append((i, j, float(share)))
        elif min(len(similar), len(other)) >= most:
            break
    if rules.iterations is not None:
        similar, other = (_repeated(side, rules.iterations * len(kinds)) for side in (similar, other))
    elif rules.sampling != "unique" and similar and other:
        count = (max if rules.sampling == "oversampling" else min)(len(similar), len(other))
        similar, other = (_repeated(side, count) for side in (similar, other))
    turns = min(len(similar), len(other))
    mixed = [pair for both in zip(similar, other, strict=False) for pair in both]
    return mixed + similar[turns:] + other[turns:]


def _repeated(pairs, count):
    return [pairs[i % len(pairs)] for i in range(count)] if pairs else []


def entailment_of(labels: Sequence[Any]) -> int:
    """The index of entailment: the first label that begins with "entail", and otherwise the last one."""
    found = (i for i, name in enumerate(labels) if str(name).lower().startswith("entail"))
    return next(found, len(labels) - 1)


def contradiction_of(labels: Sequence[Any]) -> int:
    """The index of contradiction: the first label that begins with "contra", and otherwise the first or last one.

    It is the last one if the first is entailment.
    """
    found = (i for i, name in enumerate(labels) if str(name).lower().startswith("contra"))
    return next(found, len(labels) - 1 if entailment_of(labels) == 0 else 0)


def entailment_scores(logits: np.ndarray, labels: Sequence[str], multi_label: bool = False) -> np.ndarray:
    """The probability of each candidate label, from whether a text entails its hypothesis.

    Yin, Hay, Roth 2019, arXiv 1909.00161.

    Args:
        logits: float (number of candidates, 3), of a model for natural language inference.
        labels: its label names; see `entailment_of` and `contradiction_of`.
        multi_label: whether several candidates may be right. Each then has the probability of entailment rather than
            contradiction. The same holds for a single candidate.

    Returns: float (number of candidates,).

    Raises:
        ValueError: if the logits do not have a column for each label.
    """
    logits = np.asarray(logits, float)
    if logits.ndim != 2 or logits.shape[1] != len(labels) or not len(logits):
        raise ValueError(f"The logits must be (candidates, {len(labels)}). Received: {logits.shape}.")
    entailment = entailment_of(labels)
    if multi_label or len(logits) == 1:
        contradiction = contradiction_of(labels)
        return 1 / (1 + np.exp(logits[:, contradiction] - logits[:, entailment]))
    scores = np.exp(logits[:, entailment] - logits[:, entailment].max())
    return scores / scores.sum()
