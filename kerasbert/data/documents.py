"""Documents out of files, folders, tables and the hub.

A document is a str with one sentence or paragraph a line. In text files a blank line ends a document; in tables and
JSON every row is one.
"""

import csv
import gzip
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from .cleaning import C4Rules, clean_documents

TEXT_SUFFIXES = (".txt", ".text", ".md", ".rst")
LONGEST_PIECE = 1 << 20  # bytes of one line of a text file that are read at once
LONGEST_LINE = 1 << 16  # characters that a tokenizer gets at once
LONGEST_DOCUMENT = 1 << 25  # characters of a text file without blank lines that are kept in memory


def read_documents(
    source: str | os.PathLike | Iterable,
    column: str | None = None,
    errors: str = "strict",
    encoding: str = "utf-8",
    subset: str | None = None,
    split: str = "train",
    clean: str | None = None,
    deduplicate: str | None = None,
    detect: Callable | None = None,
    language: str = "en",
) -> Iterator[str]:
    """Reads documents, one str each, without holding more than one file's current document in memory.

    Lines of a text file beyond 1 MiB are cut at a blank, and 32 million characters without a blank line end a
    document, so that a file of any shape is read in bounded memory.

    Args:
        source: a file, a folder (searched in sorted order, hidden files left out), a list of them, or
            `"hf://name"` for a data set of the Hugging Face hub. Files are text, `.csv`, `.tsv` (unquoted), `.json`,
            `.jsonl` or `.parquet`; all but the last also with `.gz`.
        column: which column of a table holds the text. Default: `"text"`, or the only column.
        errors: `"strict"`, or `"replace"` to read bytes that are not text as U+FFFD.
        encoding: of text, CSV, TSV and JSON files.
        subset: name of a hub data set's configuration.
        split: split of a hub data set.
        clean: `"c4"` to clean every document by C4's rules for web pages (see `cleaning.C4Rules`).
        deduplicate: `"lines"` or `"documents"` to have each once, `"spans"` to have any three sentences in a row once.
        detect: a language detector, text -> (language, probability), to keep only documents ...
        language: ... in this language.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: an empty file, bytes that are not text (position and line named), a column that does not exist.
    """
    if errors not in ("strict", "replace", "ignore"):
        raise ValueError(f'`errors` must be "strict", "replace" or "ignore". Received: {errors!r}.')
    if "\n".encode(encoding) != b"\n":
        raise ValueError(f"`encoding` must keep ASCII bytes as they are. Received: {encoding}. Convert to UTF-8.")
    sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    if not sources:
        raise ValueError("`source` must name at least one file or folder. Received an empty list.")
    readers: list[Callable[[], Iterator[str]]] = []
    for item in sources:
        if str(item).startswith("hf://"):
            readers.append(lambda name=str(item)[5:]: _hub_documents(name, column, subset, split))
            continue
        for path in _files(Path(item)):
            readers.append(lambda path=path: _file_documents(path, column, errors, encoding))
    if clean not in (None, "c4"):
        raise ValueError(f'`clean` must be "c4" or None. Received: {clean!r}.')
    documents = (document for reader in readers for document in reader())
    return clean_documents(documents, C4Rules() if clean else None, deduplicate, detect, language)


def lines_of(document: str, longest: int = LONGEST_LINE) -> Iterator[str]:
    """The lines of a document that hold text; a line longer than `longest` characters is cut at a blank.

    "a b\\n\\n  c " -> "a b", "c"
    """
    for line in document.split("\n"):
        line = line.strip()
        start = 0
        while len(line) - start > longest:
            cut = line.rfind(" ", start + longest // 2, start + longest)
            cut = cut if cut > 0 else start + longest
            yield line[start:cut].strip()
            start = cut
        if line := line[start:].strip():
            yield line


def checked_documents(documents: Iterable[str]) -> Iterator[str]:
    """Passes documents on and refuses what is easily mistaken for them."""
    if isinstance(documents, (str, bytes, os.PathLike)):
        raise ValueError(
            f"`documents` must be an iterable of str, one document each. Received one {type(documents).__name__}. "
            "Use [text] for a single document, or read_documents(path) for a file."
        )
    for number, document in enumerate(documents):
        if not isinstance(document, str):
            raise ValueError(f"Every document must be a str. Received: {type(document).__name__} as document {number}.")
        yield document


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f"There is no file or folder {path}.")
    files = [path]
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if p.is_file() and not _hidden(p.relative_to(path)))
        files = [p for p in inside if _suffix(p) in TEXT_SUFFIXES or _suffix(p) in _TABLES]
        if not files:
            found = sorted({p.suffix or p.name for p in inside})
            known = " ".join((*TEXT_SUFFIXES, *_TABLES))
            raise ValueError(f"The folder {path} has none of the files that can be read ({known}). Found: {found}.")
    for file in files:
        if file.stat().st_size == 0:
            raise ValueError(f"{file} is empty. Remove it, or leave it out of the source.")
    return files


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _suffix(path: Path) -> str:
    return Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()


def _file_documents(path: Path, column: str | None, errors: str, encoding: str) -> Iterator[str]:
    reader = _TABLES.get(_suffix(path))
    if reader is _parquet_rows:
        documents = reader(path, column)
    elif reader is not None:
        documents = reader(path, _decoded_lines(path, errors, encoding), column)
    else:
        documents = _text_documents(_decoded_lines(path, errors, encoding, LONGEST_PIECE))
    found = False
    for document in documents:
        found = True
        yield document
    if not found:
        raise ValueError(f"{path} holds no text. Remove it, or leave it out of the source.")


def _decoded_lines(path: Path, errors: str, encoding: str, longest: int = -1) -> Iterator[str]:
    """Lines with their line ends, decoded one by one so that an error can say where it is."""
    opened = gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb")
    with opened as file:
        position, number, rest = 0, 1, b""
        while piece := rest + file.readline(longest - len(rest) if longest > 0 else -1):
            rest = b""
            if longest > 0 and len(piece) >= longest and not piece.endswith(b"\n"):
                piece, rest = _cut(piece)
            try:
                line = piece.decode(encoding, errors)
            except UnicodeDecodeError as error:
                raise ValueError(_decoding_message(path, encoding, position, number, error)) from None
            yield line.removeprefix("\ufeff") if position == 0 else line
            position += len(piece)
            number += piece.endswith(b"\n")


def _cut(piece: bytes) -> tuple[bytes, bytes]:
    """Cuts bytes after their last blank, or else where a UTF-8 character begins."""
    cut = piece.rfind(b" ", len(piece) // 2) + 1
    if not cut:
        cut = len(piece) - 1
        while cut > len(piece) - 4 and piece[cut] & 0xC0 == 0x80:
            cut -= 1
    return piece[:cut], piece[cut:]


def _decoding_message(path: Path, encoding: str, position: int, number: int, error: UnicodeDecodeError) -> str:
    bad = " ".join(f"0x{byte:02x}" for byte in error.object[error.start : error.end])
    fix = "Pass errors='replace' to read such bytes as U+FFFD, or name the file's encoding, such as encoding='latin-1'."
    if position + error.start == 0 and error.object[:2] in (b"\xff\xfe", b"\xfe\xff"):
        fix = "It looks like UTF-16: convert it to UTF-8."
    return f"{path} is not valid {encoding}: byte {position + error.start} ({bad}) in line {number}. {fix}"


def _text_documents(lines: Iterable[str]) -> Iterator[str]:
    document: list[str] = []
    size = 0
    for line in lines:
        line = line.strip()
        if line:
            document.append(line)
            size += len(line)
        if document and (not line or size > LONGEST_DOCUMENT):
            yield "\n".join(document)
            document, size = [], 0
    if document:
        yield "\n".join(document)


def _choose_column(names: list[str], column: str | None, where: object) -> str:
    if column is None:
        column = "text" if "text" in names else names[0] if len(names) == 1 else None
        if column is None:
            raise ValueError(f"{where} has several columns, none of them called text. Name one: {', '.join(names)}.")
    elif column not in names:
        raise ValueError(f"{where} has no column {column!r}. It has: {', '.join(map(str, names))}.")
    return column


def _cell(value: object, where: str) -> str:
    """The text of one cell; a list of sentences becomes lines."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        value = "\n".join(value)
    if not isinstance(value, str):
        raise ValueError(f"{where} must be text. Received: {type(value).__name__} ({str(value)[:40]}).")
    if not value.isascii():  # JSON can carry half a surrogate pair, which no tokenizer takes
        value = value.encode("utf-8", "replace").decode("utf-8")
    return value.strip()


def _csv_rows(path: Path, lines: Iterator[str], column: str | None, **dialect: object) -> Iterator[str]:
    csv.field_size_limit(max(csv.field_size_limit(), (1 << 31) - 1))  # the default refuses fields above 128 KiB
    rows = csv.reader(lines, **dialect)
    names = next(rows, [])
    index = names.index(_choose_column(names, column, path))
    for row in rows:
        if not row:
            continue
        if len(row) <= index:
            raise ValueError(f"{path} line {rows.line_num} has {len(row)} columns, the header has {len(names)}.")
        if text := row[index].strip():
            yield text


def _tsv_rows(path: Path, lines: Iterator[str], column: str | None) -> Iterator[str]:
    return _csv_rows(path, lines, column, delimiter="\t", quoting=csv.QUOTE_NONE)


def _jsonl_rows(path: Path, lines: Iterator[str], column: str | None) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} line {number} is not valid JSON: {error}.") from None
        if text := _json_text(row, column, f"{path} line {number}"):
            yield text


def _json_rows(path: Path, lines: Iterator[str], column: str | None) -> Iterator[str]:
    text = "".join(lines)
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # one object a line
            yield from _jsonl_rows(path, iter(text.split("\n")), column)
            return
        raise ValueError(f"{path} is not valid JSON: {error}.") from None
    if isinstance(rows, dict) and column not in rows:
        lists = [value for value in rows.values() if isinstance(value, list)]
        rows = lists[0] if len(lists) == 1 else [rows]
    for number, row in enumerate(rows if isinstance(rows, list) else [rows]):
        if text := _json_text(row, column, f"{path} row {number}"):
            yield text


def _json_text(row: object, column: str | None, where: str) -> str:
    if isinstance(row, dict):
        column = _choose_column(list(row), column, where)
        return _cell(row[column], f"{where}, column {column!r},")
    return _cell(row, where)


def _parquet_rows(path: Path, column: str | None) -> Iterator[str]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ImportError('Parquet files need pyarrow. Install it with: pip install "kerasbert[data]"') from None
    file = pyarrow.parquet.ParquetFile(path)
    column = _choose_column(file.schema_arrow.names, column, path)
    for batch in file.iter_batches(batch_size=1024, columns=[column]):
        for value in batch.column(0).to_pylist():
            if text := _cell(value, f"{path}, column {column!r},"):
                yield text


def _hub_documents(name: str, column: str | None, subset: str | None, split: str) -> Iterator[str]:
    try:
        import datasets
    except ImportError:
        raise ImportError('Hub data sets need datasets. Install it with: pip install "kerasbert[data]"') from None
    where = f"hf://{name}"
    for row in datasets.load_dataset(name, subset, split=split, streaming=True):
        column = _choose_column(list(row), column, where)
        if text := _cell(row[column], f"{where}, column {column!r},"):
            yield text


_TABLES = {
    ".csv": _csv_rows,
    ".tsv": _tsv_rows,
    ".json": _json_rows,
    ".jsonl": _jsonl_rows,
    ".ndjson": _jsonl_rows,
    ".parquet": _parquet_rows,
}
