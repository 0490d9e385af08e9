"""Labelled texts out of tables and lines, with their columns guessed where the names allow it."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from .cells import LABEL_NAMES, PAIR_NAMES, TEXT_NAMES, is_missing
from .tables import Reading, rows_of


@dataclass(frozen=True)
class Columns:
    """Which columns hold what; None is guessed, and a number counts the columns of a table without header."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None

    @property
    def are_numbers(self) -> bool:
        return any(name is not None and name.isdecimal() for name in (self.text, self.pair, self.label))

    def among(self, names: Iterable[str]) -> "Columns":
        """What is asked of a table with these names."""
        return self


GUESSED = Columns()


class UsualColumns(Columns):
    """What a data set calls its columns: a file of it that calls them otherwise is guessed at, and rows that it has
    without a text, as QQP's, are left out."""

    def among(self, names: Iterable[str]) -> Columns:
        return Columns(*(name if name in names else None for name in (self.text, self.pair, self.label)))


@dataclass(frozen=True)
class Labelled:
    """Texts (or pairs of texts) with their labels: a name each, or a list of names."""

    texts: list[str | tuple[str, str]]
    labels: list[str] | list[list[str]]

    def __len__(self):
        return len(self.texts)


def read_labelled(
    path: str | Path, columns: Columns | None = None, reading: Reading | None = None, several: bool = False
) -> Labelled:
    """Reads labelled examples. White space around labels is no part of them, and a whole number is written as one.

    A data set of the hub is `hf://name`, or `hf://name#split`; its split is "train" unless named. A `.txt` file has a
    label, white space and the text in each line, or is a table with tabs and a header. Tables (`.csv`, `.tsv`, `.json`,
    `.jsonl`, `.parquet`; `.gz` allowed) have named columns, or numbered ones when `columns` gives numbers.

    Left out with a warning are rows on whose label the annotators did not agree, "-" under SNLI's `gold_label`, those
    that a data set of the hub has no label for, and with `UsualColumns` those that lack a cell.

    Args:
        path: of the file, or a name of the hub.
        columns: names of the columns, where they cannot be guessed.
        reading: encoding, format and layouts.
        several: a text has any number of labels, in a list or with "|" between them.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: columns that are missing or cannot be guessed, empty cells and files.
    """
    asked = columns or Columns()
    reading = reading or Reading()
    if asked.are_numbers:
        reading = replace(reading, header=False, layouts=())
    lenient = isinstance(asked, UsualColumns)
    texts, labels, open_rows, broken, names, number = [], [], 0, [], None, 0
    for place, row in rows_of(path, reading, whole=not lenient):
        number += 1
        if names is None:
            names = find_columns(asked, list(row), path)
        where = f"{path} {place}"
        if _is_open(row, names.label, path):
            open_rows += 1
        elif lenient and any(is_missing(row.get(name)) for name in vars(names).values() if name is not None):
            broken.append(where)
        else:
            texts.append(text_or_pair(row, names, where))
            labels.append(_label(row, names.label, where, several))
    if not number:
        raise ValueError(f"{path} has no rows.")
    if open_rows == number:
        raise ValueError(f"Every row of {path} is without a label. Use a part of the data that has them.")
    if not texts:
        raise ValueError(f"Every row needs a text and a label. Received: {path} with none that has both.")
    if open_rows:
        warnings.warn(f"{open_rows} of {number} rows of {path} have no label: left out.", stacklevel=3)
    if broken:
        warnings.warn(
            f"{len(broken)} of {number} rows of {path} lack a text or a label: left out. The first is "
            f"{broken[0].removeprefix(f'{path} ')}.",
            stacklevel=3,
        )
    return Labelled(texts, labels)


def text_or_pair(row: dict, columns: Columns, where: str) -> str | tuple[str, str]:
    """The text of a row, or its two texts."""
    parts = []
    for name in filter(None, (columns.text, columns.pair)):
        value = row.get(name)
        if is_missing(value):
            raise ValueError(f"Every row needs a text and a label. Received: {where} without {name!r}.")
        if isinstance(value, (list, dict)):
            raise ValueError(f"Texts are strings. Received: {where}, column {name!r}: {value!r:.60}.")
        parts.append(str(value))
    return parts[0] if columns.pair is None else tuple(parts)


def _label(row: dict, name: str, where: str, several: bool) -> str | list[str]:
    value = row.get(name)
    listed = isinstance(value, (list, tuple))
    names = [_name(one) for one in (value if listed else _split(value) if several else [value])]
    if None in names:
        raise ValueError(f"Every row needs a text and a label. Received: {where} without {name!r}.")
    if isinstance(value, dict) or (listed and not several):
        raise ValueError(
            f"A label is one name. Received: {where}, column {name!r}: {value!r:.60}. Several labels of a text are "
            "--task labels."
        )
    return names if several else names[0]


def _is_open(row: dict, label: str, path: str | Path) -> bool:
    """Whether a row says that its label is not known."""
    value = row.get(label)
    return (value == "-" and str(label).strip().lower() == "gold_label") or (
        value is None and str(path).startswith("hf://")
    )


def _split(cell) -> list:
    """The names in a cell, which may be empty; a cell that is not there is one name that is not there."""
    return [name for name in cell.split("|") if name.strip()] if isinstance(cell, str) else [cell]


def _name(value) -> str | None:
    """A label as it is written, or None where there is none: " good" -> "good", 1.0 -> "1"."""
    if is_missing(value):
        return None
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def find_columns(columns: Columns, names: list[str], path: str | Path, labelled: bool = True) -> Columns:
    """Completes the columns by their names; a table of two columns needs only one of them to be known.

    Args:
        columns: those that are given.
        names: all of the table.
        path: of the table, for errors.
        labelled: False: the label may be missing.
    """
    columns = columns.among(names)
    for part, name in vars(columns).items():
        if name is not None and name not in names and (labelled or part != "label"):
            raise ValueError(f"{path} has no column {name!r}. It has: {', '.join(map(str, names))}.")
    lower = {str(name).strip().lower(): name for name in names}
    taken = {name for name in vars(columns).values() if name is not None}

    def guess(known: tuple[str, ...], given: str | None) -> str | None:
        if given is not None:
            return given
        name = next((lower[k] for k in known if k in lower and lower[k] not in taken), None)
        taken.update({name} - {None})
        return name

    label, text = guess(LABEL_NAMES, columns.label), guess(TEXT_NAMES, columns.text)
    rest = [name for name in names if name not in taken]
    if len(names) == 2 and len(rest) == 1:
        label, text = label or rest[0], text or rest[0]
    if not labelled and len(names) == 1:
        text, label = names[0], None
    if text is None or (label is None and labelled):
        missing = "label" if label is None and labelled else "text"
        raise ValueError(
            f"Which column of {path} holds the {missing} cannot be told from its name. It has: "
            f"{', '.join(map(str, names))}. Pass --columns.{missing} NAME (a number, from 0, if there is no header), "
            "or --task, if the file is one of a task that has a name."
        )
    pair = columns.pair if columns.text is not None else guess(PAIR_NAMES, columns.pair)
    return Columns(text, pair, label)
