"""Reads rows of examples from tables, JSON, lines of text, and data sets on the hub."""

import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kerasbert.data.text.tables import (
    TABLES,
    cell_rows,
    decodes,
    hub_rows,
    json_values,
    jsonl_values,
    parquet_rows,
    suffix_of,
    table_rows,
    text_lines,
)

from .cells import LABEL_NAMES, PAIR_NAMES, TEXT_NAMES

Format = Literal["auto", "csv", "tsv", "json", "jsonl", "parquet", "conll", "label-text", "text"]
WORDS = (".conll", ".iob", ".bio", ".annotated")
EXCEL = (".xlsx", ".xls")
HEAD = 100  # lines at the start of a file from which its format is detected


@dataclass(frozen=True)
class Layout:
    """The layout of a data set's files, if their extensions and headers are not enough to read them.

    Args:
        format: format of files with an unknown extension.
        names: column names of a table without a header.
        cells: {column name: regular expression for the cell in the first row}. Files that match have this layout.
        header: a header, in lower case, that some copies of the table have. The columns are still called `names`.
        text: columns whose texts, joined by a space, become the column "text".
        label_end: the character that ends a label. The finer label after it is dropped.
        encoding: encoding of files that are not valid in the requested encoding.
    """

    format: Format
    names: tuple[str, ...] = ()
    cells: dict[str, str] = field(default_factory=dict)
    header: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    label_end: str = ""
    encoding: str = ""

    def has(self, cells: list[str]) -> bool:
        """Whether a table with this first row has this layout."""
        if not self.names or len(cells) != len(self.names):
            return False
        found = dict(zip(self.names, cells, strict=True))
        return self.is_header(cells) or all(re.fullmatch(self.cells[name], found[name]) for name in self.cells)

    def is_header(self, cells: list[str]) -> bool:
        return tuple(cell.strip().lower() for cell in cells) == self.header

    def completed(self, row: dict) -> dict:
        """Returns a row with the derived values of `text` and `label_end`."""
        if self.text and all(isinstance(row.get(name), str) for name in self.text):
            row = {**row, "text": " ".join(row[name].strip() for name in self.text)}
        if self.label_end and isinstance(row.get("label"), str):
            row = {**row, "label": row["label"].partition(self.label_end)[0]}
        return row


@dataclass(frozen=True)
class ColumnsRead:
    """The columns of a table that are read. As text, a sentence for the user, of which `described` is the end.

    Args:
        path: the table.
        texts: the columns of texts: names, or numbers if there is no header.
        label: the column of labels, or None.
        what: what the labels are called.
    """

    path: str | Path
    texts: tuple[str, ...]
    label: str | None = None
    what: str = "label"

    @property
    def described(self) -> str:
        """The columns without the table: "text in premise, hypothesis, label in gold"."""
        texts = ", ".join(map(_shown_column, self.texts))
        label = "" if self.label is None else f", {self.what} in {_shown_column(self.label)}"
        return f"text in {texts}{label}"

    def __str__(self):
        return f"{self.path}: {self.described}"


def _shown_column(name: str) -> str:
    return f"column {name}" if str(name).isdecimal() else str(name)


@dataclass(frozen=True)
class Reading:
    """Specifies how files are read.

    Args:
        encoding: encoding of text files.
        format: format of the files. "auto" infers it from the extension and, for `.txt`, from the content.
        layouts: layouts of the official files of the task.
        header: whether tables without a layout have a header.
        say: function that gets the columns that are read, such as `print`.
    """

    encoding: str = "utf-8"
    format: Format = "auto"
    layouts: tuple[Layout, ...] = ()
    header: bool = True
    say: Callable[[ColumnsRead], object] | None = None

    def say_columns(
        self, path: str | Path, texts: Iterable[str], label: str | None = None, what: str = "label"
    ) -> None:
        """Says which columns of a table are read."""
        if self.say is not None:
            self.say(ColumnsRead(path, tuple(texts), label, what))

    def lines(self, path: Path) -> Iterator[str]:
        """Reads the lines of a file, in the requested encoding if it is valid, or else in the layout's encoding."""
        other = next((layout.encoding for layout in self.layouts if layout.encoding), "")
        fits = not other or decodes(path, self.encoding)
        return text_lines(path, self.encoding if fits else other)

    def text(self, path: Path) -> str:
        return "".join(self.lines(path))

    def format_of(self, path: str | Path, plain: Format = "label-text") -> Format:
        """Determines the format of a file, or returns `plain` for lines of text.

        Raises:
            FileNotFoundError: if the file does not exist.
            IsADirectoryError: if it is a folder.
            ValueError: if it is an Excel file, or the extension is unknown and there is no layout.
        """
        if str(path).startswith("hf://"):
            return "auto"
        path = Path(path)
        if path.is_dir():
            raise IsADirectoryError(f"Examples must be in a file. Received: {path}, which is a folder. Give its file.")
        if not path.is_file():
            raise FileNotFoundError(no_file(path))
        if self.format != "auto":
            return self.format
        suffix = suffix_of(path)
        if suffix in EXCEL:
            raise ValueError(
                f"Excel files are not read. Received: {path}. Save the sheet as CSV, or use pandas.read_excel in "
                "Python."
            )
        if suffix in TABLES:
            return TABLES[suffix]
        if suffix in WORDS:
            return "conll"
        layout = self.layouts[0] if self.layouts else None
        if suffix != ".txt" and layout is None:
            raise ValueError(
                f"A file must have one of the extensions {', '.join((*TABLES, *WORDS, '.txt'))}. Received: {path}. "
                "Rename it, or give its format with --format."
            )
        first = next((line for line in self.lines(path) if line.strip()), "")
        if first.lstrip().startswith("{"):
            return "json"
        if names_columns(first.rstrip("\r\n").split("\t")):
            return "tsv"
        return layout.format if layout else plain


def no_file(path: Path) -> str:
    """The error message about a file that does not exist, with the file beside it that has the closest name."""
    try:
        names = [other.name for other in path.parent.iterdir() if other.is_file()]
    except OSError:
        return f"There is no file {path}, and no folder {path.parent}."
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.7)
    return f"There is no file {path}." + (f" Did you mean {path.parent / close[0]}?" if close else "")


def names_columns(cells: list[str]) -> bool:
    """Whether the cells of a first line are column names, including a usual name of a text column."""
    lower = [cell.strip().lower() for cell in cells]
    known = {*TEXT_NAMES, *PAIR_NAMES, *LABEL_NAMES, "index", "id"}
    texts = {*TEXT_NAMES, *PAIR_NAMES}
    return len(set(lower)) == len(lower) > 1 and bool(texts & {*lower}) and len(known & {*lower}) > 1


def rows_of(
    source: str | Path, reading: Reading, whole: bool = True, plain: Format = "label-text"
) -> Iterator[tuple[str, dict]]:
    """Streams (place, row) of every row of a file or of a data set on the hub, `hf://name:configuration#split`.

    A line of label and text becomes a row with "label" and "text".

    Args:
        source: a path, or a data set on the hub.
        reading: how files are read.
        whole: whether every row of a CSV or TSV file must have all cells. Otherwise, missing cells at the end of a row
            are None.
        plain: format of a text file, label-text or text.
    """
    layout = None
    if str(source).startswith("hf://"):
        name, _, split = str(source).removeprefix("hf://").partition("#")
        name, _, configuration = name.partition(":")
        rows = hub_rows(name, configuration or None, split or "train")
    else:
        path = Path(source)
        format = reading.format_of(path, plain)
        if format in ("label-text", "text"):
            end = next((layout.label_end for layout in reading.layouts if layout.label_end), "")
            yield from _line_rows(path, reading, format == "label-text", end)
            return
        if format == "conll":
            raise ValueError(f"Texts must be in tables or lines. Received: {path} with tagged words. Use --task ner.")
        if format in ("csv", "tsv"):
            rows, layout = _cells(path, format, reading, whole)
        elif format == "parquet":
            rows = parquet_rows(path)
        else:
            rows = _json_rows(path, format, reading)
    for number, row in enumerate(rows, start=1):
        yield f"row {number}", row if layout is None else layout.completed(row)


def read_rows(source: str | Path, reading: Reading | None = None) -> Iterator[dict]:
    """Yields the rows of `rows_of` without their places. Raises a ValueError for files with lines of text."""
    reading = reading or Reading()
    if not str(source).startswith("hf://") and reading.format_of(source) in ("label-text", "text", "conll"):
        raise ValueError(
            f"A table must have one of the extensions {', '.join(TABLES)}. Received: {source}. Give its format "
            "with --format."
        )
    return (row for _, row in rows_of(source, reading))


def _cells(path: Path, format: Format, reading: Reading, whole: bool) -> tuple[Iterator[dict], Layout | None]:
    lines = reading.lines(path)
    # A cell may span several lines, so the first row must be read with the same parser.
    first = next((cells for _, cells in cell_rows(reading.lines(path), path, format, strict=False) if cells), [])
    layout = next((layout for layout in reading.layouts if layout.has(first)), None)
    if layout is None:
        return table_rows(lines, path, format, header=reading.header, whole=whole), None
    rows = table_rows(lines, path, format, names=layout.names)
    return (itertools.islice(rows, 1, None) if layout.is_header(first) else rows), layout


def _json_rows(path: Path, format: Format, reading: Reading) -> Iterator[dict]:
    if format == "jsonl":
        first = next((line for line in reading.lines(path) if line.strip()), "")
        format = "json" if first.strip() == "{" else format  # one object that spans several lines
    if format == "jsonl":
        found = jsonl_values(reading.lines(path), path)
    else:
        values = json_values(reading.lines(path), path)
        if len(values) == 1 and isinstance(values[0], dict) and isinstance(values[0].get("data"), list):
            values = values[0]["data"]
        found = enumerate(values, start=1)
    place = "line" if format == "jsonl" else "item"
    for number, value in found:
        for row in value if isinstance(value, list) else [value]:
            if not isinstance(row, dict):
                raise ValueError(
                    f"{path} must hold one JSON object per example. Received: {place} {number} with {row!r:.60}. Write "
                    '{"text": ...}, with the names of the columns.'
                )
            yield row


def _line_rows(path: Path, reading: Reading, labeled: bool, label_end: str) -> Iterator[tuple[str, dict]]:
    for number, line in enumerate(reading.lines(path), start=1):
        if labeled and line.strip():
            yield f"line {number}", label_and_text(line, f"{path} line {number}", label_end)
        elif line.strip():
            yield f"line {number}", {"text": line.strip()}


def label_and_text(line: str, where: str, label_end: str = "") -> dict:
    """Converts a line with a label, white space and a text to a row."""
    label, *text = line.split(maxsplit=1)
    if not text:
        raise ValueError(f"A line must have the form `label text`. Received: {where}: {line.strip()[:60]!r}.")
    return {"label": label.partition(label_end)[0] if label_end else label, "text": text[0].strip()}
