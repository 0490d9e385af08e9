"""Reads documents from files, folders, tables and the Hugging Face hub.

A document is a str with one sentence or paragraph per line. In tables and JSON, every row is a document; in text files,
a blank line or the end of the file ends a document.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ..columns import table_names, values_of
from .cleaning import C4Rules, clean_documents, one_page_a_url, wet_pages
from .storage import find_files, local_path
from .tables import TABLES, hub_rows, json_values, jsonl_values, parquet_rows, suffix_of, table_rows, text_lines

TEXT_SUFFIXES = (".txt", ".text", ".md", ".rst")
CRAWL_SUFFIX = ".wet"  # the text of web pages, from Common Crawl
LONGEST_PIECE = 1 << 20  # maximum number of characters of a line of a text file; longer lines are split
LONGEST_LINE = 1 << 16  # maximum number of characters of a line that is passed to a tokenizer
LONGEST_DOCUMENT = 1 << 25  # maximum number of characters of a document of a text file
BOUNDARIES = ("auto", "blank-line", "file")  # what ends a document of a text file
SAMPLE = (20, 2_000)  # number of files, and number of lines per file, that "auto" reads to decide
_REPLACE = " Alternatively, use errors='replace' (--errors replace) to read invalid bytes as U+FFFD."


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
    documents: str = "blank-line",
) -> Iterator[str]:
    r"""Yields documents as str, holding only one document of a file in memory at a time.

    To read any text file in bounded memory, lines of more than a million characters are split at a space, and documents
    of more than 32 million characters are split, too.

    Args:
        source: a file, a folder (searched in sorted order, without hidden files), a URL of either that fsspec
            understands, such as `"s3://bucket/folder"`, a list of them, or `"hf://name"` for a data set of the Hugging
            Face hub. Files can be text, `.csv`, `.tsv` (without quoting), `.json`, `.jsonl`, `.parquet`, or `.wet`
            files of Common Crawl, in which every page is a document. All but `.parquet` may be compressed (`.gz`). A
            `.wet` file is read into memory. If it has several pages with the same URL, the last one is used.
        column: name of the column that contains the text, for tables. Default: `"text"`, or the only column.
        errors: `"strict"`, or `"replace"` to read invalid bytes as U+FFFD.
        encoding: encoding of text, CSV, TSV and JSON files.
        subset: configuration of a data set of the hub.
        split: split of a data set of the hub.
        clean: `"c4"` to clean every document by C4's rules for web pages (see `cleaning.C4Rules`).
        deduplicate: what is deduplicated: `"lines"`, `"documents"` or `"spans"` (three consecutive sentences). Only the
            first occurrence is kept.
        detect: a language detector: a function from a text to (language, probability). Only documents in `language` are
            kept.
        language: the language of the documents to keep, if `detect` is given.
        documents: what ends a document in text files: `"blank-line"`, or `"file"` for the end of the file. `"auto"`
            decides from the text (see `document_boundary`).

    Raises:
        FileNotFoundError: if a file or folder does not exist.
        ValueError: if an option is unknown, a file is empty, has invalid bytes or lacks the column, or a table has an
            unclosed quote or a row of another length than its header.

    Example:
        >>> from pathlib import Path
        >>> from kerasbert.data import read_documents
        >>> size = Path("pets.txt").write_text("The cat sat.\nThen it slept.\n\nA dog ran home.\n")
        >>> list(read_documents("pets.txt"))
        ['The cat sat.\nThen it slept.', 'A dog ran home.']
    """
    if errors not in ("strict", "replace", "ignore"):
        raise ValueError(f'`errors` must be "strict", "replace" or "ignore". Received: {errors!r}.')
    if clean not in (None, "c4"):
        raise ValueError(f'`clean` must be "c4" or None. Received: {clean!r}.')
    sources = _sources(source)
    documents = document_boundary(sources, encoding=encoding)[0] if documents == "auto" else documents
    if documents not in BOUNDARIES:
        raise ValueError(f"`documents` must be one of {', '.join(BOUNDARIES)}. Received: {documents!r}.")
    texts = _texts(sources, column, errors, encoding, subset, split, documents)
    return clean_documents(texts, C4Rules() if clean else None, deduplicate, detect, language)


def _texts(sources, column, errors, encoding, subset, split, documents):
    """Finds all files at once, so that a missing one is an error before any text is read."""
    readers: list[Callable[[], Iterator[str]]] = []
    for item in sources:
        if is_hub(item):
            readers.append(lambda name=str(item)[5:]: _hub_documents(name, column, subset, split))
            continue
        for path in files_of(item):
            readers.append(lambda path=path: _file_documents(path, column, errors, encoding, documents))
    return (document for reader in readers for document in reader())


def document_boundary(source: str | os.PathLike | Iterable, encoding: str = "utf-8") -> tuple[str, str]:
    """Decides what ends a document of the text files in a source: a "blank-line" or the end of the "file".

    The boundary is "file" if there are several text files and most of their blank lines separate paragraphs. The text
    between two blank lines counts as a paragraph if it has only one line, or if at least half of its line breaks are
    within sentences. Only the first lines of the first files are read.

    Returns: the boundary, and the reason for it as text.
    """
    sources = [item for item in _sources(source) if not is_hub(item)]
    files = [path for item in sources for path in files_of(item) if suffix_of(path) not in (CRAWL_SUFFIX, *TABLES)]
    if len(files) < 2:
        return "blank-line", "there is one text file" if files else "there are no text files"
    count = paragraphs = 0
    for path in files[: SAMPLE[0]]:
        lines = itertools.islice(text_lines(path, encoding, "replace", LONGEST_PIECE), SAMPLE[1])
        for block in _text_documents(lines, "blank-line"):
            *inner, _ = block.split("\n")
            count += 1
            paragraphs += sum(line.endswith(_SENTENCE_ENDS) for line in inner) * 2 <= len(inner)
    if paragraphs * 2 > count:
        return "file", f"there are {len(files)} text files, and most blank lines separate paragraphs"
    return "blank-line", f"in the {len(files)} text files, blank lines mostly separate blocks of one sentence per line"


_SENTENCE_ENDS = tuple(".!?:;\"'”’»…。！？")


def _sources(source: str | os.PathLike | Iterable) -> list:
    sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    if not sources:
        raise ValueError("`source` must name at least one file or folder. Received: an empty list.")
    return sources


def lines_of(document: str, longest: int = LONGEST_LINE) -> Iterator[str]:
    """Yields the non-empty lines of a document. Lines of more than `longest` characters are split at a space.

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
    """Yields the documents. Raises a ValueError for a single text, and for values that are not str."""
    if table_names(documents) is not None or hasattr(documents, "to_pylist"):
        documents = values_of(documents, "documents")
    if isinstance(documents, (str, bytes, os.PathLike, dict)):
        raise ValueError(
            f"`documents` must be an iterable of str, one per document. Received: a single {type(documents).__name__}. "
            "Use [text] for a single document, or read_documents(path) for a file."
        )
    for number, document in enumerate(documents):
        if not isinstance(document, str):
            raise ValueError(f"Every document must be a str. Received: {type(document).__name__} as document {number}.")
        yield document


def is_hub(source: str | os.PathLike) -> bool:
    """Whether a source is a data set of the Hugging Face hub."""
    return str(source).startswith("hf://")


def files_of(source: str | os.PathLike) -> list[Path | str]:
    """Returns the readable files of a source in sorted order. The source is a file or a folder, local or remote.

    Raises:
        FileNotFoundError: the source does not exist.
        ValueError: a folder without files that can be read, or an empty file.
    """
    found = find_files(source)
    if not found:
        raise FileNotFoundError(f"There is no file or folder {source}.")
    known = (*TEXT_SUFFIXES, CRAWL_SUFFIX, *TABLES)
    files = found if list(found) == [local_path(source)] else {p: n for p, n in found.items() if suffix_of(p) in known}
    if not files:
        suffixes = sorted({Path(path).suffix or Path(path).name for path in found})
        known = " ".join(known)
        raise ValueError(
            f"The folder {source} must have files of a known type ({known}). Received: files of the types {suffixes}."
        )
    for path, size in files.items():
        if size == 0:
            raise ValueError(f"{path} is empty. Remove it, or leave it out of the source.")
    return list(files)


def _file_documents(path: Path | str, column: str | None, errors: str, encoding: str, boundary: str) -> Iterator[str]:
    format = TABLES.get(suffix_of(path))
    if format == "parquet":
        documents = _parquet_documents(path, column)
    else:
        longest = LONGEST_PIECE if format is None else None
        lines = text_lines(path, encoding, errors, longest, advice=_REPLACE)
        if format in ("csv", "tsv"):
            documents = _table_documents(lines, path, format, column)
        elif format is not None:
            documents = _json_documents(lines, path, format, column)
        elif suffix_of(path) == CRAWL_SUFFIX:
            documents = (text for _, text in one_page_a_url(wet_pages(lines)))
        else:
            documents = _text_documents(lines, boundary)
    found = False
    for document in documents:
        found = True
        yield document
    if not found:
        raise ValueError(f"{path} has no text. Remove it, or leave it out of the source.")


def _text_documents(lines: Iterable[str], boundary: str) -> Iterator[str]:
    document: list[str] = []
    size = 0
    for line in lines:
        line = line.strip()
        if line:
            document.append(line)
            size += len(line)
        if document and ((not line and boundary == "blank-line") or size > LONGEST_DOCUMENT):
            yield "\n".join(document)
            document, size = [], 0
    if document:
        yield "\n".join(document)


def _choose_column(names: list[str], column: str | None, where: object) -> str:
    if column is None:
        column = "text" if "text" in names else names[0] if len(names) == 1 else None
        if column is None:
            raise ValueError(
                f"{where} has several columns, none of which is named text. Pass `column`, one of: {', '.join(names)}."
            )
    elif column not in names:
        raise ValueError(f"{where} has no column {column!r}. It has: {', '.join(map(str, names))}.")
    return column


def _cell(value: object, where: str) -> str:
    """The text of one cell, without white space at its ends. A list of str becomes lines."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        value = "\n".join(value)
    if not isinstance(value, str):
        raise ValueError(f"{where} must be text. Received: {type(value).__name__} ({str(value)[:40]}).")
    return value.strip()


def _table_documents(lines: Iterable[str], path: Path, format: str, column: str | None) -> Iterator[str]:
    name = None
    for row in table_rows(lines, path, format):
        name = name or _choose_column(list(row), column, path)
        if text := row[name].strip():
            yield text


def _json_documents(lines: Iterable[str], path: Path, format: str, column: str | None) -> Iterator[str]:
    if format == "jsonl":
        rows, place = jsonl_values(lines, path), "line"
    else:
        values = json_values(lines, path)
        if len(values) == 1 and isinstance(values[0], dict) and column not in values[0]:
            lists = [value for value in values[0].values() if isinstance(value, list)]
            values = lists[0] if len(lists) == 1 else values
        rows, place = enumerate(values, start=1), "row"
    for number, row in rows:
        where = f"{path} {place} {number}"
        if isinstance(row, dict):
            name = _choose_column(list(row), column, where)
            row, where = row[name], f"{where}, column {name!r},"
        if text := _cell(row, where):
            yield text


def _parquet_documents(path: Path, column: str | None) -> Iterator[str]:
    for number, row in enumerate(parquet_rows(path, lambda names: [_choose_column(names, column, path)]), start=1):
        for name, value in row.items():
            if text := _cell(value, f"{path} row {number}, column {name!r},"):
                yield text


def _hub_documents(name: str, column: str | None, subset: str | None, split: str) -> Iterator[str]:
    where = f"hf://{name}"
    for number, row in enumerate(hub_rows(name, subset, split), start=1):
        column = _choose_column(list(row), column, where)
        if text := _cell(row[column], f"{where} row {number}, column {column!r},"):
            yield text
