"""Converts the labels of texts to arrays of targets."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..columns import columns_of, table_names, values_of
from .labels import indices_of


def encoded_classes(names: Sequence, labels: Any) -> np.ndarray:
    """Encodes one label for each text, int32 (n,), or rows of probabilities, float32 (n, number of labels).

    Args:
        names: the names of all labels.
        labels: a name or an index for each text, or a row of probabilities.
    """
    labels = values_of(labels, "targets")
    width = _width(labels)
    if width == 1:
        labels = [row[0] for row in labels]
    elif width is not None:
        return _as_rows(names, labels)
    return indices_of(names, labels)


def encoded_sets(names: Sequence, labels: Any) -> np.ndarray:
    """Encodes any number of labels for each text as rows of 0 and 1, float32 (n, number of labels).

    names "x", "y": ["x", "y"], [] -> [1, 1], [0, 0]

    Args:
        names: the names of all labels.
        labels: a list of names or indices for each text, or a row with 0 or 1 for every label.
    """
    labels = values_of(labels, "targets")
    if isinstance(labels, np.ndarray) and labels.ndim == 2:
        return _as_rows(names, labels)
    found = [_label_set(row, number) for number, row in enumerate(labels)]
    are_rows = all(
        not isinstance(labels[number], (str, set, frozenset)) and _is_row(row, len(names))
        for number, row in enumerate(found)
    )
    if are_rows and len(names) > 1:
        if found and all(_are_labels(row, names) for row in found):
            raise ValueError(
                f"Targets must be lists of labels in {list(names)}, or rows of 0 and 1. Received: {found[0]}, which "
                "may be either. Pass rows as an array, and labels as sets."
            )
        return _as_rows(names, found)
    rows = np.zeros((len(found), len(names)), "float32")
    for number, (row, label_set) in enumerate(zip(rows, found, strict=True)):
        try:
            places = indices_of(names, label_set)
        except ValueError as error:
            raise ValueError(f"Target {number}: {error}") from None
        wrong = places[(places < 0) | (places >= len(names))]
        if len(wrong):
            raise ValueError(
                f"Indices of labels must be from 0 to {len(names) - 1}. Received: {wrong[0]} in target {number}."
            )
        row[places] = 1.0
    return rows


def encoded_scores(scores: Any) -> np.ndarray:
    """Encodes a number for each text, float32 (n, 1)."""
    values = values_of(scores, "targets")
    try:
        found = np.asarray(values, "float32").reshape(-1, 1)
    except (TypeError, ValueError):
        wrong = next((value for value in values if not _is_number(value)), values)
        raise ValueError(f"Scores must be numbers, one for each text. Received: {wrong!r:.60}.") from None
    wrong = np.flatnonzero(~np.isfinite(found))
    if len(wrong):
        raise ValueError(f"Scores must be finite numbers. Received: {found[wrong[0], 0]}, as score {wrong[0]}.")
    return found


def rows_of_table(names: Sequence, table: Any) -> np.ndarray:
    """Converts a table with a column of 0 and 1 for each label to rows, float32 (n, number of labels).

    Args:
        names: the names of all labels, in the order of the result.
        table: the table, whose columns are called like the labels.
    """
    if set(table_names(table) or ()) != set(names):
        raise ValueError(
            f"A table of targets must have a column for each label, {list(names)}. Received: the columns "
            f"{table_names(table)}."
        )
    columns = columns_of(table)
    return _as_rows(names, list(zip(*(columns[name] for name in names), strict=True)))


def _as_rows(names: Sequence, labels: Any) -> np.ndarray:
    """Converts rows with one value for every label to an array."""
    try:
        rows = np.asarray(labels, "float32")
    except (TypeError, ValueError):
        raise ValueError(
            f"A target must be one label, or a row of {len(names)} numbers, one for each label. Received: "
            f'{labels[0]!r:.60}. If texts have several labels, use problem="labels".'
        ) from None
    if rows.shape[-1] != len(names):
        raise ValueError(
            f"A row of targets must have one value for each of the {len(names)} labels. Received: "
            f"{rows.shape[-1]} in each row, for {list(names)}."
        )
    return rows


def _width(labels: Any) -> int | None:
    """Returns the number of values in the first row, or None if the labels are no rows."""
    if isinstance(labels, np.ndarray):
        return labels.shape[1] if labels.ndim == 2 else None
    rows = hasattr(labels, "__len__") and len(labels) and not isinstance(labels, (str, Mapping, set, frozenset))
    return len(labels[0]) if rows and isinstance(labels[0], (list, tuple, np.ndarray)) else None


def _label_set(row: Any, number: int) -> list:
    """Returns the labels of one text as a list."""
    if isinstance(row, str):
        return [row]
    if isinstance(row, Mapping) or not hasattr(row, "__len__") or not hasattr(row, "__iter__"):
        raise ValueError(
            f"Every text needs a list of labels, which may be empty. Received: {row!r:.60}, as target {number}."
        )
    return row.tolist() if isinstance(row, np.ndarray) else list(row)


def _is_row(row: Sequence, count: int) -> bool:
    return len(row) == count and all(not isinstance(entry, str) and entry in (0, 1) for entry in row)


def _are_labels(row: Sequence, names: Sequence) -> bool:
    """Whether the numbers of a row can be labels, each of them once: names, or the indices of names that are str."""
    if isinstance(names[0], str):
        return all(type(entry) is int and entry < len(names) for entry in row) and len({*row}) == len(row)
    return {*row} <= {*names} and len({*row}) == len(row)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
