"""Reads lines of text and rows of tables from files and from data sets of the hub.

Error messages give the file, and the line, row or byte.
"""

import codecs
import contextlib
import csv
import gzip
import itertools
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from .storage import opened

# Format of a file by its suffix, which `.gz` may follow.
TABLES = {
    ".csv": "csv", ".tsv": "tsv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
}  # fmt: skip
BLOCK = 1 << 20  # bytes that are decoded at once
# Byte order marks, longer ones first, because that of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip


def suffix_of(path: str | Path) -> str:
    """Returns the suffix that determines the format of a file, in lower case: ".csv" for a.csv and for a.CSV.gz."""
    path = Path(path)
    return (Path(path.stem) if is_gzip(path) else path).suffix.lower()


def is_gzip(path: str | Path) -> bool:
    return Path(path).suffix.lower() == ".gz"


# === Text ===


def text_lines(
    path: str | Path, encoding: str = "utf-8", errors: str = "strict", longest: int | None = None, advice: str = ""
) -> Iterator[str]:
    """Yields the lines of a text file, including their line breaks. A `.gz` file is decompressed.

    Args:
        path: path of the file.
        encoding: any encoding that Python knows. A byte order mark at the beginning is removed.
        errors: "strict", or "replace" or "ignore" for invalid bytes.
        longest: maximum number of characters per line. Longer lines are split at a space.
        advice: text to append to the error message about invalid bytes.

    Raises:
        ValueError: the file has invalid bytes, the encoding is unknown, or a gzip file is damaged.
    """
    with opened(path) as source, gzip.open(source) if is_gzip(path) else contextlib.nullcontext(source) as file:
        try:
            yield from decoded_lines(file, path, encoding, errors, longest, advice)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is not a complete gzip file: {error}. Download or compress it again.") from None


def decoded_lines(
    file: BinaryIO,
    name: str | Path,
    encoding: str = "utf-8",
    errors: str = "strict",
    longest: int | None = None,
    advice: str = "",
) -> Iterator[str]:
    """Like `text_lines`, but for an open binary file or stream. Error messages call it `name`."""
    try:
        decoder = codecs.getincrementaldecoder(encoding)(errors)
    except LookupError:
        raise ValueError(f"`encoding` must be one that Python knows, such as utf-8. Received: {encoding!r}.") from None
    start, position, number, rest, returns = b"", 0, 1, "", None
    while True:
        block = file.read1(BLOCK)
        start = (start + block)[:8]
        try:
            text = decoder.decode(block, not block)
        except UnicodeDecodeError as error:
            waiting = len(error.object) - len(block)  # bytes of a character that began in the previous block
            number += rest.count("\n") + decoder.decode(block[: max(0, error.start - waiting)]).count("\n")
            bad = " ".join(f"0x{byte:02x}" for byte in error.object[error.start : error.end])
            likely = likely_encoding(start + file.read1(8), error.object[error.start :], encoding)
            raise ValueError(
                f"{name} is not valid {encoding}: line {number}, byte {position - waiting + error.start} ({bad}). Give "
                f"the encoding of the file, such as --encoding {likely}. Files in different encodings must be "
                f"converted first.{advice}"
            ) from None
        if not position:
            text = text.removeprefix("\ufeff")
            if text.count("\0") * 4 > len(text):  # UTF-16 and UTF-32 without a byte order mark can be decoded as UTF-8
                raise ValueError(
                    f"{name} is not text in {encoding}: many of its characters are NUL. It looks like UTF-16 or UTF-32 "
                    "without a byte order mark: name the encoding, such as --encoding utf-16-le."
                )
        if returns is None and ("\n" in text or "\r" in text[:-1]):
            returns = "\n" not in text  # as in files of old Macintosh computers
        if returns:
            rest, text = (part.replace("\r\n", "\n").replace("\r", "\n") for part in (rest, text))
        position += len(block)
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            if longest and len(line) > longest:
                yield from _pieces(f"{line}\n", longest)
            else:
                yield f"{line}\n"
        number += len(lines)
        if longest and len(rest) > longest:
            *pieces, rest = _pieces(rest, longest)
            yield from pieces
        if not block:
            if rest:
                yield rest
            return


def _pieces(line: str, longest: int) -> Iterator[str]:
    """Yields a line, split after a space where it is longer than `longest` characters."""
    while len(line) > longest and line[longest:].strip("\r\n"):
        cut = line.rfind(" ", longest // 2, longest) + 1 or longest
        yield line[:cut]
        line = line[cut:]
    yield line


def likely_encoding(start: bytes, invalid: bytes, tried: str) -> str:
    """Guesses the encoding of a file from its first bytes and from those that were invalid in the encoding `tried`."""
    is_windows = any(0x80 <= byte <= 0x9F for byte in invalid)  # control characters in latin-1, which no text has
    other = "cp1252" if is_windows and codecs.lookup(tried).name != "cp1252" else "latin-1"
    return next((name for mark, name in _MARKS if start.startswith(mark)), other)


def decodes(path: str | Path, encoding: str) -> bool:
    """Whether the whole file is valid in an encoding."""
    try:
        for _ in text_lines(path, encoding):
            pass
    except ValueError:
        return False
    return True


# === Tables ===


def cell_rows(
    lines: Iterable[str], path: str | Path, format: str = "csv", strict: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """Yields (line number, cells) for every row of a CSV or TSV file, where the line is the last line of the row.

    A blank line is a row without cells. Quotes have no special meaning in a TSV file. In a CSV file, an unclosed quote
    is an error if `strict`. Otherwise, the rest of the file becomes the last cell. Cells of a CSV file may also be
    separated by semicolons or tabs; see `_separator`.
    """
    csv.field_size_limit(
        max(csv.field_size_limit(), (1 << 31) - 1)
    )  # by default, the csv module rejects cells larger than 128 KiB
    dialect: dict[str, Any] = dict(delimiter="\t", quoting=csv.QUOTE_NONE)
    if format != "tsv":
        lines, separator = _separator(lines)
        dialect = dict(delimiter=separator)
    reader = csv.reader(lines, strict=strict, **dialect)
    first = 1
    try:
        for cells in reader:
            yield reader.line_num, cells
            first = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path} is not valid {format.upper()}: {error}, at line {reader.line_num}, in the row that begins at line "
            f"{first}. A quote inside a quoted cell must be doubled, and a quote that opens a cell must be "
            "closed."
        ) from None


def _separator(lines: Iterable[str]) -> tuple[Iterator[str], str]:
    """Returns the lines of a CSV file, and what separates its cells.

    It is a semicolon, as Excel writes where commas are decimal, or a tab, if the first line has this mark, no comma and
    not the other mark, and the second line has it too, or begins a quoted cell. Otherwise it is a comma.
    """
    lines, head = iter(lines), []
    while sum(bool(line.strip()) for line in head) < 2 and (line := next(lines, None)) is not None:
        head.append(line)
    first, *second = [line.strip("\r\n") for line in head if line.strip()] or [""]
    marks = [mark for mark in ",;\t" if mark in first.strip()]
    is_used = len(marks) == 1 and all(marks[0] in line or line.startswith('"') for line in second)
    return itertools.chain(head, lines), marks[0] if is_used else ","


def table_rows(
    lines: Iterable[str],
    path: str | Path,
    format: str = "csv",
    names: Iterable[str] | None = None,
    header: bool = True,
    whole: bool = True,
) -> Iterator[dict]:
    """Yields the rows of a CSV or TSV file as dicts.

    Args:
        lines: lines of the file.
        path: path of the file, for errors.
        format: "csv" or "tsv".
        names: column names of a table without a header.
        header: whether the first row is a header. Without a header and without `names`, the columns are called "0",
            "1", ...
        whole: whether a row with too few cells is an error. Otherwise, missing cells are None.

    Raises:
        ValueError: a row has more or fewer cells than there are columns, two columns have the same name, or a quote is
            not closed.
    """
    names = None if names is None else list(names)
    number = 0
    for line, cells in cell_rows(lines, path, format):
        if not cells:
            continue
        if names is None:
            names = cells if header else [str(place) for place in range(len(cells))]
            twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
            if twice is not None:
                raise ValueError(f"The columns of {path} must have different names. Received: {twice!r} twice.")
            if header:
                continue
        number += 1
        if not whole:
            cells += [None] * (len(names) - len(cells))
        if len(cells) != len(names):
            inside = "tab inside must be written without it" if format == "tsv" else "separator inside must be quoted"
            raise ValueError(
                f"{path} row {number} has {len(cells)} cells. The table has {len(names)} columns: {names}. The row "
                f"ends at line {line}; a cell with a {inside}."
            )
        yield dict(zip(names, cells, strict=True))


def jsonl_values(lines: Iterable[str], path: str | Path) -> Iterator[tuple[int, object]]:
    """Yields (line number, value) for every line that is not blank."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, parsed_json(line, f"{path} line {number}")


def json_values(lines: Iterable[str], path: str | Path) -> list:
    """Reads the values of a JSON file: the elements of a list, a single value, or one value per line."""
    text = "".join(lines)
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        if getattr(error, "msg", "") == "Extra data" or text.lstrip().startswith("{"):
            whole = [line for line in text.split("\n") if line.strip()]
            if len(whole) > 1 and whole[0].rstrip().endswith(("}", "]")):  # one object per line
                return [value for _, value in jsonl_values(text.split("\n"), path)]
        raise ValueError(f"{path} is not valid JSON: {error}.") from None
    value = _without_surrogates(value) if "\\ud" in text.lower() else value
    return value if isinstance(value, list) else [value]


def parsed_json(text: str, where: str) -> object:
    """Parses a JSON value. An unpaired surrogate, which JSON allows and tokenizers reject, becomes a question mark."""
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{where} is not valid JSON: {error}.") from None
    return _without_surrogates(value) if "\\ud" in text.lower() else value


def _without_surrogates(value):
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return list(map(_without_surrogates, value))
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def parquet_rows(path: str | Path, choose=None) -> Iterator[dict]:
    """Yields the rows of a Parquet file.

    Args:
        path: path of the file.
        choose: function that selects the columns to read, from the list of all names. Default: all columns.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError('Parquet files need pyarrow. Install it with: pip install "kerasbert[data]"') from None
    try:
        with opened(path) as source, pyarrow.parquet.ParquetFile(source) as file:
            columns = None if choose is None else choose(file.schema_arrow.names)
            for batch in file.iter_batches(1_024, columns=columns):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{path} is not a complete Parquet file: {error}. Download or write it again.") from None


# === The hub ===


def hub_rows(name: str, subset: str | None = None, split: str = "train") -> Iterator[dict]:
    """Yields the rows of a data set of the hub. Class indices become class names, and -1 becomes None.

    Args:
        name: name of the data set, such as "nyu-mll/glue".
        subset: name of its configuration.
        split: name of its split.
    """
    try:
        import datasets
    except ImportError:
        raise ImportError(
            'Data sets of the hub need the package datasets. Install it with: pip install "kerasbert[data]"'
        ) from None
    found = datasets.load_dataset(name, *filter(None, [subset]), split=split, streaming=True)
    names = {}
    for key, feature in (getattr(found, "features", None) or {}).items():
        feature = getattr(feature, "feature", feature)  # for a list, the feature of its elements
        if hasattr(feature, "names"):
            names[key] = feature.names

    def named(key, value):
        if key not in names or value is None:
            return value
        known = names[key]
        if isinstance(value, (list, tuple)):
            return [known[number] if number >= 0 else None for number in value]
        return known[value] if value >= 0 else None  # -1: the label is hidden, or the annotators did not agree

    for row in found:
        yield {key: named(key, value) for key, value in row.items()}
