"""Reads labeled texts from tables and lines. Columns are guessed from their names where possible."""

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from .cells import LABEL_NAMES, PAIR_NAMES, QUOTED, TEXT_NAMES, is_missing, name_of, written_out
from .tables import Reading, rows_of


@dataclass(frozen=True)
class Columns:
    """Columns of text, pair and label: names, indices in a table without header, or None to guess them by name.

    Args:
        text: name of the column of the text.
        pair: name of the column of the second text, or of the context of a question.
        label: name of the column of the label.
    """

    text: str | None = None
    pair: str | None = None
    label: str | None = None

    @property
    def are_numbers(self) -> bool:
        return any(name is not None and name.isdecimal() for name in (self.text, self.pair, self.label))

    def among(self, names: Iterable[str]) -> "Columns":
        """Returns the columns to read from a table whose columns have the given names."""
        return self


GUESSED = Columns()


class TrainedColumns(Columns):
    """The columns that a model was trained on.

    If a file lacks one of the texts, the columns are guessed. The label is only read where there is one.
    """

    def among(self, names: Iterable[str]) -> Columns:
        if not {name for name in (self.text, self.pair) if name is not None} <= {*names}:
            return GUESSED
        return Columns(self.text, self.pair, self.label if self.label in names else None)


class UsualColumns(Columns):
    """The column names of a known data set.

    If a file uses other names, the columns are guessed. Rows with a missing text, as in QQP, are skipped.
    """

    def among(self, names: Iterable[str]) -> Columns:
        return Columns(*(name if name in names else None for name in (self.text, self.pair, self.label)))


@dataclass(frozen=True)
class Labeled:
    """Texts (or pairs of texts), each with a label name or a list of label names."""

    texts: list[str | tuple[str, str]]
    labels: list[str] | list[list[str]]

    def __len__(self):
        return len(self.texts)


def read_labeled(
    path: str | Path, columns: Columns | None = None, reading: Reading | None = None, several: bool = False
) -> Labeled:
    """Reads labeled examples. Labels are stripped of white space, and whole numbers become integers: 1.0 -> "1".

    A data set on the hub is `hf://name` or `hf://name#split`; the default split is "train". A `.txt` file has a label,
    white space and the text in each line, or is a tab-separated table with a header. Tables (`.csv`, `.tsv`, `.json`,
    `.jsonl`, `.parquet`; `.gz` allowed) have named columns, or numbered ones if `columns` gives numbers.

    Some rows are skipped with a warning: rows whose annotators did not agree on a label ("-" in SNLI's `gold_label`),
    unlabeled rows of a data set on the hub, and, with `UsualColumns`, rows with an empty cell.

    Args:
        path: the file, or a data set on the hub.
        columns: names of the columns that cannot be guessed.
        reading: encoding, format and layouts.
        several: whether a text has any number of labels: in a list, which a table may hold as text ("['x', 'y']"),
            separated by "|", or as a row with 0 or 1 for each of the labels LABEL_0, LABEL_1, ...

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if columns are missing or cannot be guessed, or if cells or the file are empty.
    """
    asked, reading = columns or Columns(), reading or Reading()
    if asked.are_numbers:
        reading = replace(reading, header=False, layouts=())
    lenient = isinstance(asked, UsualColumns)
    texts, labels, open_rows, broken, missing, names, number, lists = [], [], 0, [], [], None, 0, several
    for place, row in rows_of(path, reading, whole=not lenient):
        number += 1
        if names is None:
            names = find_columns(asked, list(row), path)
            reading.say_columns(path, filter(None, (names.text, names.pair)), names.label)
        where = f"{path} {place}"
        if _is_open(row, names.label, path):
            open_rows += 1
        elif lenient and any(is_missing(row.get(name)) for name in vars(names).values() if name is not None):
            broken.append(where)
        elif lacks := _lacks(row, names, several):
            missing.append(f"{place} without {lacks!r}")
        else:
            texts.append(text_or_pair(row, names, where))
            labels.append(_label(row, names.label, where, several))
            lists = lists and isinstance(written_out(row[names.label]), list)
    if not number:
        raise ValueError(f"{path} has no rows.")
    if missing:
        raise ValueError(_incomplete(path, missing, number))
    if open_rows == number:
        raise ValueError(f"Examples need labels. Received: {path} without a label in any row. Use a labeled split.")
    if not texts:
        raise ValueError(f"Every row needs a text and a label. Received: {path}, where no row has both.")
    _warn_of_skipped(path, open_rows, broken, number)
    if several and not lists:
        _warn_of_separators(path, {name for names in labels for name in names})
    return Labeled(texts, _named_rows(labels) if lists else labels)


def _warn_of_skipped(path: str | Path, open_rows: int, broken: list[str], number: int) -> None:
    """Warns about rows without a label, and about rows that lack a cell, of `number` rows."""
    if open_rows:
        warnings.warn(f"{open_rows} of {number} rows of {path} have no label and are skipped.", stacklevel=4)
    if broken:
        warnings.warn(
            f"{len(broken)} of {number} rows of {path} lack a text or a label and are skipped. The first is "
            f"{broken[0].removeprefix(f'{path} ')}.",
            stacklevel=4,
        )


def _warn_of_separators(path: str | Path, names: set[str]) -> None:
    """Warns about a name that seems to be several ones: "pos, short" beside "pos"."""
    for name in sorted(names):
        parts = {part.strip() for part in re.split("[,;]", name)}
        if len(parts) > 1 and parts & names:
            warnings.warn(
                f"Several labels of a text are separated by |. Received: {path}, where {name!r} is one label beside "
                f"{sorted(parts & names)[0]!r}. If it is several, write {'|'.join(sorted(parts))!r}.",
                stacklevel=4,
            )
            return


def _incomplete(path: str | Path, missing: list[str], number: int) -> str:
    """The error message about the rows in `missing`, of `number` rows."""
    more = f", ...: {len(missing)} of {number} rows" if len(missing) > 3 else ""
    return (
        f"Every row needs a text and a label. Received: {path} {', '.join(missing[:3])}{more}. Complete or drop "
        f"{'these rows' if len(missing) > 1 else 'the row'}."
    )


def _lacks(row: dict, columns: Columns, several: bool) -> str | None:
    """Returns the first column whose cell is missing. With `several`, an empty cell is a list of no labels."""
    for name in filter(None, (columns.text, columns.pair, columns.label)):
        value = row.get(name)
        if is_missing(value) and not (several and name == columns.label and isinstance(value, str)):
            return name
    return None


def text_or_pair(row: dict, columns: Columns, where: str) -> str | tuple[str, str]:
    """Returns the text of a row, or its two texts."""
    parts = []
    for name in filter(None, (columns.text, columns.pair)):
        value = row.get(name)
        if is_missing(value):
            raise ValueError(f"Every row needs a text and a label. Received: {where} without {name!r}.")
        if not isinstance(value, str):
            fix = f" {QUOTED}" if isinstance(value, (int, float)) else ""
            raise ValueError(f"Texts must be strings. Received: {where}, column {name!r}: {value!r:.60}.{fix}")
        parts.append(value)
    return parts[0] if columns.pair is None else tuple(parts)


def _label(row: dict, name: str, where: str, several: bool) -> str | list[str]:
    value = written_out(row.get(name))
    listed = isinstance(value, (list, tuple))
    names = [_name(one) for one in (value if listed else _split(value) if several else [value])]
    if None in names:
        raise ValueError(f"Every row needs a text and a label. Received: {where} without {name!r}.")
    if isinstance(value, dict) or (listed and (not several or any(isinstance(one, (list, dict)) for one in value))):
        raise ValueError(
            f"A label must be one name. Received: {where}, column {name!r}: {value!r:.60}. If texts have several "
            "labels, use --task labels."
        )
    return names if several else names[0]


def _named_rows(labels: list[list[str]]) -> list[list[str]]:
    """Converts rows of 0 and 1, with one value for every label, to lists of LABEL_0, LABEL_1, ...

    Other labels are returned unchanged.
    """
    sizes, values = {len(row) for row in labels}, {name for row in labels for name in row}
    if len(sizes) != 1 or sizes <= {0, 1} or not (values <= {"0", "1"} or values <= {"False", "True"}):
        return labels
    return [[f"LABEL_{place}" for place, name in enumerate(row) if name in ("1", "True")] for row in labels]


def _is_open(row: dict, label: str, path: str | Path) -> bool:
    """Whether the label of a row is marked as unknown."""
    value = row.get(label)
    return (value == "-" and str(label).strip().lower() == "gold_label") or (
        value is None and str(path).startswith("hf://")
    )


def _split(cell) -> list:
    """Splits a cell into label names. An empty cell has no names. A missing cell becomes one missing name."""
    return [name for name in cell.split("|") if name.strip()] if isinstance(cell, str) else [cell]


def _name(value) -> str | None:
    """Normalizes a label, or returns None if it is missing: " good" -> "good", 1.0 -> "1"."""
    return None if is_missing(value) else name_of(value).strip()


def find_columns(columns: Columns, names: list[str], path: str | Path, labeled: bool = True) -> Columns:
    """Guesses the columns that are not given from their names. In a table of two columns, one known name is enough.

    Args:
        columns: the columns that are given.
        names: names of all columns of the table.
        path: the table, for error messages.
        labeled: whether the label is required.
    """
    columns = columns.among(names)
    for part, name in vars(columns).items():
        if name is not None and name not in names and (labeled or part != "label"):
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
    if not labeled and len(names) == 1:
        text, label = names[0], None
    if text is None or (label is None and labeled):
        missing = "label" if label is None and labeled else "text"
        raise ValueError(
            f"The column of {path} that holds the {missing} cannot be guessed from the column names. Received: "
            f"{', '.join(map(str, names))}. Pass --columns.{missing} NAME (an index from 0 if there is no header), or "
            "--task if the file belongs to a data set that is known by name."
            + (" `predict` reads files without labels." if missing == "label" else "")
        )
    pair = columns.pair if columns.text is not None else guess(PAIR_NAMES, columns.pair)
    return Columns(text, pair, label)
