"""Classification with few labels, or with none: pairs for contrastive training, and scores from entailment."""

from collections.abc import Sequence
from typing import Any

import numpy as np

SAMPLINGS = ("unique", "oversampling", "undersampling")


def contrastive_pairs(
    labels: Sequence[Any], sampling: str = "oversampling", include_identical: bool = True, seed: int = 42
) -> list[tuple[int, int, float]]:
    """Pairs of examples, 1.0 for those of the same class and 0.0 for others (SetFit: Tunstall et al. 2022, 2209.11055).

    Similar and other pairs take turns until one kind ends.

    Args:
        labels: a class for each example; or a set or list of labels, where examples that share one are similar.
        sampling: "unique" takes every pair once; "oversampling" repeats the rarer kind until both are equally
            frequent; "undersampling" takes as many of the other kind as of the rarer one.
        include_identical: whether an example forms a pair with itself. The paper has none of these pairs.
        seed: of the order of the pairs.

    Returns: (number of an example, number of another, 1.0 or 0.0).
    """
    if sampling not in SAMPLINGS:
        raise ValueError(f"`sampling` must be one of {', '.join(SAMPLINGS)}. Received: {sampling!r}.")
    kinds = [set(label) if isinstance(label, (set, list, tuple)) else {label} for label in labels]
    first, second = np.triu_indices(len(kinds), k=0 if include_identical else 1)
    order = np.random.default_rng(seed).permutation(len(first))
    pairs = [(int(first[i]), int(second[i])) for i in order]
    similar = [(i, j, 1.0) for i, j in pairs if kinds[i] & kinds[j]]
    other = [(i, j, 0.0) for i, j in pairs if not kinds[i] & kinds[j]]
    if sampling != "unique" and similar and other:
        function = max if sampling == "oversampling" else min
        count = function(len(similar), len(other))
        similar, other = ([side[i % len(side)] for i in range(count)] for side in (similar, other))
    turns = min(len(similar), len(other))
    mixed = [pair for both in zip(similar, other, strict=False) for pair in both]
    return mixed + similar[turns:] + other[turns:]


def entailment_scores(logits: np.ndarray, labels: Sequence[str], multi_label: bool = False) -> np.ndarray:
    """The probability of each candidate label, from whether a text entails its hypothesis (arXiv 1909.00161).

    Args:
        logits: float (number of candidates, 3), of a model for natural language inference.
        labels: its label names. Entailment is the first that begins with "entail", and otherwise the last.
        multi_label: whether several candidates may be right. Each then has the probability of entailment rather than
            contradiction. The same holds for a single candidate.

    Returns: float (number of candidates,).
    """
    logits = np.asarray(logits, float)
    if logits.ndim != 2 or logits.shape[1] != len(labels) or not len(logits):
        raise ValueError(f"The logits must be (candidates, {len(labels)}). Received: {logits.shape}.")
    found = (i for i, name in enumerate(labels) if str(name).lower().startswith("entail"))
    entailment = next(found, len(labels) - 1)
    if multi_label or len(logits) == 1:
        contradiction = len(labels) - 1 if entailment == 0 else 0
        return 1 / (1 + np.exp(logits[:, contradiction] - logits[:, entailment]))
    scores = np.exp(logits[:, entailment] - logits[:, entailment].max())
    return scores / scores.sum()
