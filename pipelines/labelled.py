"""Labelled texts out of tables and plain files, with their columns guessed where the names allow it."""

from dataclasses import dataclass
from pathlib import Path

from .cells import is_missing
from .tables import open_text, read_rows, suffix_of

TEXT_NAMES = ("text", "sentence1", "premise", "question", "question1", "sentence", "review", "content", "document")
PAIR_NAMES = ("text_pair", "pair", "sentence2", "hypothesis", "sentence", "question2", "passage", "answer")
LABEL_NAMES = ("label", "labels", "class", "category", "target", "sentiment", "score", "stars", "gold_label")


@dataclass(frozen=True)
class Columns:
    """Which columns hold what; None is guessed, and a number counts the columns of a table without header."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class Labelled:
    """Texts (or pairs of texts) with their labels."""

    texts: list[str | tuple[str, str]]
    labels: list[str]

    def __len__(self):
        return len(self.texts)


def read_labelled(path: str | Path, columns: Columns | None = None, encoding: str = "utf-8") -> Labelled:
    """Reads labelled examples.

    A data set of the hub is `hf://name`, or `hf://name#split`; its split is "train" unless named. A `.txt` file has a
    label, white space and the text in each line. Tables (`.csv`, `.tsv`, `.json`, `.jsonl`, `.parquet`; `.gz` allowed)
    have named columns, or numbered ones when `columns` gives numbers.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: columns that are missing or cannot be guessed, empty cells and files.
    """
    columns = columns or Columns()
    if suffix_of(path) == ".txt":
        return _plain_lines(Path(path), encoding)
    numbered = any(name is not None and name.isdecimal() for name in vars(columns).values())
    return _from_rows(read_rows(path, encoding, header=not numbered), columns, path)


def _from_rows(rows: list[dict], columns: Columns, path: str | Path) -> Labelled:
    if not rows:
        raise ValueError(f"{path} has no rows.")
    columns = _found(columns, list(rows[0]), path)
    texts, labels = [], []
    for number, row in enumerate(rows, start=1):
        cells = {name: row.get(name) for name in (columns.text, columns.pair, columns.label) if name is not None}
        wrong = [name for name, value in cells.items() if is_missing(value) or isinstance(value, (list, dict))]
        if wrong and is_missing(cells[wrong[0]]):
            raise ValueError(f"Every row needs a text and a label. Received: {path} row {number} without {wrong[0]!r}.")
        if wrong and wrong[0] != columns.label:
            value = cells[wrong[0]]
            raise ValueError(f"Texts are strings. Received: {path} row {number}, column {wrong[0]!r}: {value!r:.60}.")
        text = str(cells[columns.text])
        texts.append(text if columns.pair is None else (text, str(cells[columns.pair])))
        labels.append(str(cells[columns.label]))
    return Labelled(texts, labels)


def _found(columns: Columns, names: list[str], path: str | Path) -> Columns:
    """Completes the columns by their names; a table of two columns needs only one of them to be known."""
    for name in vars(columns).values():
        if name is not None and name not in names:
            raise ValueError(f"{path} has no column {name!r}. It has: {', '.join(map(str, names))}.")
    lower = {str(name).lower(): name for name in names}
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


def _plain_lines(path: Path, encoding: str) -> Labelled:
    texts, labels = [], []
    for number, line in enumerate(open_text(path, encoding).split("\n"), start=1):
        parts = line.split(maxsplit=1)
        if not parts:
            continue
        if len(parts) == 1:
            raise ValueError(f"A line must read `label text`. Received: {path} line {number}: {line.strip()[:60]!r}.")
        labels.append(parts[0])
        texts.append(parts[1].strip())
    if not texts:
        raise ValueError(f"{path} has no lines.")
    return Labelled(texts, labels)
