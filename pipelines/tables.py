"""Rows of tables in every format, and the text of files."""

import codecs
import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

TABLES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet")
OTHERS = (".txt", ".conll", ".iob", ".bio", ".annotated")


def suffix_of(path: str | Path) -> str:
    """The ending that says what a file holds; "" for a data set of the hub.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: an ending that is not known.
    """
    if str(path).startswith("hf://"):
        return ""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    suffix = Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    if suffix not in TABLES + OTHERS:
        raise ValueError(f"Labelled texts come in {', '.join(TABLES + OTHERS)}. Received: {path}.")
    return suffix


def read_rows(path: str | Path, encoding: str = "utf-8", header: bool = True, whole: bool = True) -> list[dict]:
    """The rows of a table (`TABLES`; `.gz` allowed) or of a data set of the hub, `hf://name#split`.

    Without a header the columns are named "0", "1", ... A name of the hub may end in a configuration: `hf://glue:mrpc`.
    Rows of a CSV or TSV that end early are refused; not `whole`, their last cells are None.
    """
    suffix = suffix_of(path)
    if suffix == "":
        return _hub_rows(str(path))
    if suffix == ".parquet":
        return list(parquet_rows(Path(path)))
    if suffix not in TABLES:
        raise ValueError(f"A table has one of the endings {', '.join(TABLES)}. Received: {path}.")
    text = open_text(Path(path), encoding)
    if suffix in (".jsonl", ".ndjson", ".json"):
        return json_rows(Path(path), text)
    return list(table_rows(io.StringIO(text, newline=""), path, header, whole))


def table_rows(lines: Iterable[str], path: str | Path, header: bool = True, whole: bool = True) -> Iterator[dict]:
    """The rows of a CSV or TSV, as they come; those of a TSV have no quotes. `whole`: see `read_rows`."""
    names, rows = None, filter(None, cells_of(lines, path))
    for number, row in enumerate(rows, start=0 if header else 1):
        if names is None:
            names = row if header else [str(i) for i in range(len(row))]
            twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
            if twice is not None:
                raise ValueError(f"Columns must have different names. Received: {path} with {twice!r} twice.")
        if not whole:
            row += [None] * (len(names) - len(row))
        if len(row) != len(names):
            raise ValueError(f"{path} row {number} has {len(row)} cells. The table has {len(names)}: {names}.")
        if number:
            yield dict(zip(names, row, strict=True))


def cells_of(lines: Iterable[str], path: str | Path, strict: bool = True) -> Iterator[list[str]]:
    """The cells of every line of a CSV or TSV; a blank line has none. Not `strict`, it may end within quotes."""
    csv.field_size_limit(max(csv.field_size_limit(), (1 << 31) - 1))
    dialect = dict(delimiter="\t", quoting=csv.QUOTE_NONE) if suffix_of(path) == ".tsv" else {}
    reader = csv.reader(lines, strict=strict, **dialect)
    try:
        yield from reader
    except csv.Error as error:
        raise ValueError(
            f"{path} is not valid CSV: {error}, at line {reader.line_num}. A quote inside a cell that is quoted must "
            "be doubled, and a quote that opens a cell must be closed."
        ) from None


def likely_encoding(start: bytes) -> str:
    """Of a file that begins so, and is not what it was said to be."""
    return "utf-16" if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "latin-1"


def open_text(path: Path, encoding: str = "utf-8") -> str:
    """The whole text of a file, gzipped or not."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix.lower() == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a whole gzip file: {error}.") from None
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        likely = likely_encoding(data[:2])
        raise ValueError(
            f"{path} is not valid {encoding}: line {line}, byte {error.start} (0x{data[error.start]:02x}). Name the "
            f"file's encoding, such as --encoding {likely}; a file of several encodings must be converted first."
        ) from None
    except LookupError:
        raise ValueError(f"`encoding` must be one that Python knows, such as utf-8. Received: {encoding!r}.") from None


def json_rows(path: Path, text: str) -> list[dict]:
    """The rows of a text that is JSON: one value, or one a line."""
    whole = whole_json(text) if text.lstrip().startswith("{") else None
    if isinstance(whole, dict):  # one object over several lines, perhaps with the rows under "data"
        rows = whole["data"] if isinstance(whole.get("data"), list) else [whole]
    else:
        rows = []
        lines = [text] if text.lstrip().startswith("[") else text.split("\n")
        for number, line in enumerate(lines, start=1):
            try:
                found = json.loads(line) if line.strip() else []
            except json.JSONDecodeError as error:
                where = "" if lines == [text] else f" line {number}"
                raise ValueError(f"{path}{where} is not valid JSON: {error}.") from None
            rows += found if isinstance(found, list) else [found]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} must hold JSON objects, one an example.")
    return rows


def whole_json(text: str):
    """What a file holds that is one JSON value; None for lines of JSON, and for mistakes."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def parquet_rows(path: Path) -> Iterator[dict]:
    """The rows of a Parquet file, as they come."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise ImportError('Parquet files need pyarrow: pip install "kerasbert[data]"') from None
    with pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(1_024):
            yield from batch.to_pylist()


def _hub_rows(source: str) -> list[dict]:
    try:
        import datasets
    except ImportError:
        raise ImportError('Data sets of the hub need datasets: pip install "kerasbert[data]"') from None
    name, _, split = source.removeprefix("hf://").partition("#")
    name, *configuration = name.split(":")
    found = datasets.load_dataset(name, *configuration, split=split or "train")
    names = {}
    for key, feature in found.features.items():
        feature = getattr(feature, "feature", feature)  # of a list, that of its elements
        if hasattr(feature, "names"):
            names[key] = feature.names

    def named(key, value):
        if key not in names or value is None:
            return value
        return [_name(names[key], v) for v in value] if isinstance(value, (list, tuple)) else _name(names[key], value)

    return [{key: named(key, value) for key, value in row.items()} for row in found]


def _name(names: list, value: int) -> str | None:
    return names[value] if value >= 0 else None  # -1: a hidden label, or one that annotators did not agree on
