"""Finds the labels of training data, and checks that other examples have no other labels."""

import math
import re
import warnings
from collections import Counter
from collections.abc import Sequence

from .examples import Examples

MOST_LABELS = 12  # labels that are written with their counts
FEW_EXAMPLES = 10  # with fewer, each may well have a label of its own


def label_names(kind: str, training: Examples, order: Sequence[str] = (), where: str = "") -> list[str] | None:
    """The labels of the training data: numbers in numerical, names in alphabetical order; for tags, "O" is first.

    If all names are in `order`, they keep that order.

    Raises:
        ValueError: if a classifier would have fewer than two labels (for kind "labels", none), or if labels of kind
            "classes" that are not in `order` are scores: decimals, or one for each example.
    """
    if kind not in ("classes", "labels", "tags"):
        return None
    names = {name for label in training.y for name in _names(label)}
    if len(names) < 2 and not (kind == "labels" and names):
        raise ValueError(
            f"A classifier needs two or more labels. Received: {sorted(names)}{where}. Add examples with other labels, "
            "or name the column of labels with --columns.label."
        )
    if names <= set(order):
        return [name for name in order if name in names]
    if kind == "classes":
        _check_no_scores(names, training.y, where)
    if kind == "tags" and all(name.isdecimal() for name in names):
        warnings.warn(
            f"Tags are numbers{where}: each of them, including 0, counts as an entity type in precision, recall and "
            "F1. Write their names instead, such as O and B-PER.",
            stacklevel=2,
        )
    if kind == "tags":
        return sorted(names, key=lambda name: (name != "O", name.partition("-")[2], name))
    return sorted(names, key=int) if all(re.fullmatch(r"-?\d+", name) for name in names) else sorted(names)


def _check_no_scores(names: set[str], labels: list[str], where: str) -> None:
    """Raises a ValueError for labels that are numbers to predict, or different in every example."""
    are_numbers = all(map(_is_number, names))
    decimal = next((name for name in labels if not float(name).is_integer()), None) if are_numbers else None
    if decimal is not None:
        raise ValueError(
            f"Labels of classes must be names or whole numbers. Received: {decimal}{where}. Did you mean --task score? "
            "If the numbers are names, write them with a letter, such as v1.5."
        )
    if len(names) < len(labels) or len(labels) < FEW_EXAMPLES:
        return
    fix = "Did you mean --task score?" if are_numbers else "Name the column of labels with --columns.label."
    raise ValueError(
        f"Several examples must have the same label. Received: {len(labels):,} examples with {len(labels):,} labels"
        f"{where}, such as {labels[0]!r:.40}. {fix}"
    )


def _is_number(name: str) -> bool:
    try:
        return math.isfinite(float(name))
    except ValueError:
        return False


def counted_labels(names: Sequence[str], training: Examples) -> str:
    """Writes labels, with the number of texts that have each of them: "no 12, yes 8". Tags are not counted.

    Of more than MOST_LABELS labels, those with most texts are written.
    """
    if isinstance(training.x[0], list):
        return ", ".join(names)
    counts = Counter(name for label in training.y for name in _names(label))
    shown = sorted(names, key=lambda name: -counts[name])[:MOST_LABELS] if len(names) > MOST_LABELS else names
    text = ", ".join(f"{name} {counts[name]:,}" for name in shown)
    rarest = min(names, key=lambda name: counts[name])
    return (
        text if shown is names else f"{text} and {len(names) - len(shown)} more, the rarest {rarest} {counts[rarest]:,}"
    )


def check_labels(known: list[str], examples: Examples, where: str) -> None:
    """Raises a ValueError if examples have a label that the model does not know.

    For tags, this happens only if the model knows none of them. Otherwise, unknown tags count as prediction errors.
    """
    if examples.y and isinstance(examples.x[0], list):
        found = {name for tags in examples.y for name in tags}
        if found and not found & set(known):
            raise ValueError(
                f"Tags must be of the set that the model knows, {known}. Received: {where} with {sorted(found)[:9]}. "
                "Name the columns with --columns.text and --columns.label."
            )
        return
    for number, label in enumerate(examples.y, start=1):
        for name in _names(label):
            if name not in known:
                raise ValueError(
                    f"Labels must be those of the training data, {known}. Received: {where} row {number}: {name!r}. "
                    "Drop the row, or train on data that has this label."
                )


def typed(labels: list, names: list) -> list:
    """Converts labels, or lists of labels, to the names of a model, which may be numbers: "1" -> 1."""
    found = {str(name): name for name in names}
    return [found[one] if isinstance(one, str) else [found[name] for name in one] for one in labels]


def _names(label: str | list) -> list[str]:
    return [label] if isinstance(label, str) else label
