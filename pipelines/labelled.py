"""Labelled texts out of tables and plain files, with their columns guessed where the names allow it."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .cells import is_missing
from .tables import open_text, read_rows, suffix_of

TEXT_NAMES = (
    "text", "sentence1", "premise", "question", "question1", "sentence", "review", "content", "document", "#1 string",
)  # fmt: skip
PAIR_NAMES = ("text_pair", "pair", "sentence2", "hypothesis", "sentence", "question2", "passage", "answer", "#2 string")
LABEL_NAMES = (
    "label", "labels", "class", "category", "target", "sentiment", "score", "stars", "gold_label", "is_duplicate",
    "quality",
)  # fmt: skip


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
    path: str | Path, columns: Columns | None = None, encoding: str = "utf-8", several: bool = False
) -> Labelled:
    """Reads labelled examples. White space around labels is no part of them, and a whole number is written as one.

    A data set of the hub is `hf://name`, or `hf://name#split`; its split is "train" unless named. A `.txt` file has a
    label, white space and the text in each line. Tables (`.csv`, `.tsv`, `.json`, `.jsonl`, `.parquet`; `.gz` allowed)
    have named columns, or numbered ones when `columns` gives numbers.

    Left out with a warning are rows on whose label the annotators did not agree, "-" under SNLI's `gold_label`, those
    that a data set of the hub has no label for, and with `UsualColumns` those that lack a cell.

    Args:
        several: a text has any number of labels, in a list or with "|" between them.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: columns that are missing or cannot be guessed, empty cells and files.
    """
    columns = columns or Columns()
    if suffix_of(path) == ".txt":
        return _plain_lines(Path(path), encoding, several)
    rows = read_rows(path, encoding, header=not columns.are_numbers, whole=not isinstance(columns, UsualColumns))
    return _from_rows(rows, columns, path, several)


def _from_rows(rows: list[dict], columns: Columns, path: str | Path, several: bool) -> Labelled:
    if not rows:
        raise ValueError(f"{path} has no rows.")
    lenient = isinstance(columns, UsualColumns)
    columns = _found(columns, list(rows[0]), path)
    texts, labels = [], []
    kept = [(number, row) for number, row in enumerate(rows, start=1) if not _is_open(row, columns.label, path)]
    if not kept:
        raise ValueError(f"Every row of {path} is without a label. Use a part of the data that has them.")
    if len(kept) < len(rows):
        warnings.warn(f"{len(rows) - len(kept)} of {len(rows)} rows of {path} have no label: left out.", stacklevel=4)
    if lenient:
        needed = [name for name in vars(columns).values() if name is not None]
        broken = {number for number, row in kept if any(is_missing(row.get(name)) for name in needed)}
        if 0 < len(broken) < len(kept):
            warnings.warn(
                f"{len(broken)} of {len(rows)} rows of {path} lack a text or a label: left out. The first is row "
                f"{min(broken)}.",
                stacklevel=4,
            )
            kept = [(number, row) for number, row in kept if number not in broken]
    for number, row in kept:
        parts = []
        for name in filter(None, (columns.text, columns.pair)):
            value = row.get(name)
            if is_missing(value):
                raise ValueError(f"Every row needs a text and a label. Received: {path} row {number} without {name!r}.")
            if isinstance(value, (list, dict)):
                raise ValueError(f"Texts are strings. Received: {path} row {number}, column {name!r}: {value!r:.60}.")
            parts.append(str(value))
        texts.append(parts[0] if columns.pair is None else tuple(parts))
        value = row.get(columns.label)
        listed = isinstance(value, (list, tuple))
        names = [_name(name) for name in (value if listed else _split(value) if several else [value])]
        if None in names:
            raise ValueError(
                f"Every row needs a text and a label. Received: {path} row {number} without {columns.label!r}."
            )
        if isinstance(value, dict) or (listed and not several):
            raise ValueError(
                f"A label is one name. Received: {path} row {number}, column {columns.label!r}: {value!r:.60}. Several "
                "labels of a text are --task labels."
            )
        labels.append(names if several else names[0])
    return Labelled(texts, labels)


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


def _found(columns: Columns, names: list[str], path: str | Path) -> Columns:
    """Completes the columns by their names; a table of two columns needs only one of them to be known."""
    columns = columns.among(names)
    for name in vars(columns).values():
        if name is not None and name not in names:
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
    if label is None or text is None:
        missing = "label" if label is None else "text"
        raise ValueError(
            f"Which column of {path} holds the {missing} cannot be told from its name. It has: "
            f"{', '.join(map(str, names))}. Pass --columns.{missing} NAME (a number, from 0, if there is no header)."
        )
    pair = columns.pair if columns.text is not None else guess(PAIR_NAMES, columns.pair)
    return Columns(text, pair, label)


def _plain_lines(path: Path, encoding: str, several: bool) -> Labelled:
    texts, labels = [], []
    for number, line in enumerate(open_text(path, encoding).split("\n"), start=1):
        parts = line.split(maxsplit=1)
        if not parts:
            continue
        if len(parts) == 1:
            raise ValueError(f"A line must read `label text`. Received: {path} line {number}: {line.strip()[:60]!r}.")
        labels.append(_split(parts[0]) if several else parts[0])
        texts.append(parts[1].strip())
    if not texts:
        raise ValueError(f"{path} has no lines.")
    return Labelled(texts, labels)
