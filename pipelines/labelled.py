"""Labelled texts out of tables and plain files, with their columns guessed where the names allow it."""

import csv
import gzip
import io
import json
from dataclasses import dataclass
from pathlib import Path

TEXT_NAMES = ("text", "sentence1", "premise", "question", "question1", "sentence", "review", "content", "document")
PAIR_NAMES = ("text_pair", "pair", "sentence2", "hypothesis", "sentence", "question2", "passage", "answer")
LABEL_NAMES = ("label", "labels", "class", "category", "target", "sentiment", "score", "stars", "gold_label")
SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".txt")


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
    if str(path).startswith("hf://"):
        return _from_rows(_hub_rows(str(path)), columns, path)
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    suffix = Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"Labelled texts come in {', '.join(SUFFIXES)}. Received: {path}.")
    if suffix == ".txt":
        return _plain_lines(path, encoding)
    numbered = [name for name in vars(columns).values() if name is not None and name.isdecimal()]
    rows = _parquet(path) if suffix == ".parquet" else _table(path, suffix, encoding, bool(numbered))
    return _from_rows(rows, columns, path)


def _from_rows(rows: list[dict], columns: Columns, path: str | Path) -> Labelled:
    if not rows:
        raise ValueError(f"{path} has no rows.")
    columns = _found(columns, list(rows[0]), path)
    texts, labels = [], []
    for number, row in enumerate(rows, start=1):
        cells = {name: row.get(name) for name in (columns.text, columns.pair, columns.label) if name is not None}
        empty = [name for name, value in cells.items() if value is None or value == ""]
        if empty:
            raise ValueError(f"Every row needs a text and a label. Received: {path} row {number} without {empty[0]!r}.")
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


def _open(path: Path, encoding: str) -> str:
    data = gzip.decompress(path.read_bytes()) if path.suffix.lower() == ".gz" else path.read_bytes()
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not valid {encoding}: byte {error.start} (0x{data[error.start]:02x}). Name the file's "
            "encoding, such as --encoding latin-1."
        ) from None


def _plain_lines(path: Path, encoding: str) -> Labelled:
    texts, labels = [], []
    for number, line in enumerate(_open(path, encoding).split("\n"), start=1):
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


def _table(path: Path, suffix: str, encoding: str, numbered: bool) -> list[dict]:
    text = _open(path, encoding)
    if suffix in (".jsonl", ".ndjson", ".json"):
        return _json_rows(path, text)
    csv.field_size_limit(max(csv.field_size_limit(), (1 << 31) - 1))
    dialect = dict(delimiter="\t", quoting=csv.QUOTE_NONE) if suffix == ".tsv" else {}
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), **dialect) if row]
    names = [str(i) for i in range(len(rows[0]))] if rows and numbered else rows.pop(0) if rows else []
    for number, row in enumerate(rows, start=1):
        if len(row) != len(names):
            raise ValueError(f"{path} row {number} has {len(row)} cells. The table has {len(names)}: {names}.")
    return [dict(zip(names, row, strict=True)) for row in rows]


def _json_rows(path: Path, text: str) -> list[dict]:
    try:
        rows = (
            json.loads(text)
            if text.lstrip().startswith("[")
            else [json.loads(line) for line in text.splitlines() if line]
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not valid JSON: {error}.") from None
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} must hold JSON objects, one an example.")
    return rows


def _parquet(path: Path) -> list[dict]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ImportError('Parquet files need pyarrow: pip install "kerasbert[data]"') from None
    return pyarrow.parquet.read_table(path).to_pylist()


def _hub_rows(source: str) -> list[dict]:
    try:
        import datasets
    except ImportError:
        raise ImportError('Data sets of the hub need datasets: pip install "kerasbert[data]"') from None
    name, _, split = source.removeprefix("hf://").partition("#")
    found = datasets.load_dataset(name, split=split or "train")
    names = {key: feature.names for key, feature in found.features.items() if hasattr(feature, "names")}
    return [{key: names[key][value] if key in names else value for key, value in row.items()} for row in found]
