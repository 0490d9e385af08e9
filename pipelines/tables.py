"""Rows of examples out of every source: tables, JSON, lines of text, and data sets of the hub."""

import itertools
import re
from collections.abc import Iterator
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
HEAD = 100  # lines at the start of a file that show what it holds


@dataclass(frozen=True)
class Layout:
    """How the files of a data set look where neither their endings nor their headers tell.

    Args:
        format: of files whose ending says nothing.
        names: of the columns of a table without a header.
        cells: by name, the regular expression that the cells of the first row match: how the table is recognised.
        header: the first row that the table may have after all, in lower case, in place of `names`.
        text: the columns whose texts, with a blank between them, are the column "text".
        label_end: the character where a label ends: what follows is a finer one, which is left out.
        encoding: of files that are not valid in the one that was asked for.
    """

    format: Format
    names: tuple[str, ...] = ()
    cells: dict[str, str] = field(default_factory=dict)
    header: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    label_end: str = ""
    encoding: str = ""

    def has(self, cells: list[str]) -> bool:
        """Whether a table that begins with this row is of this layout."""
        if not self.names or len(cells) != len(self.names):
            return False
        found = dict(zip(self.names, cells, strict=True))
        return self.is_header(cells) or all(re.fullmatch(self.cells[name], found[name]) for name in self.cells)

    def is_header(self, cells: list[str]) -> bool:
        return tuple(cell.strip().lower() for cell in cells) == self.header

    def completed(self, row: dict) -> dict:
        """A row with what is made of its columns."""
        if self.text and all(isinstance(row.get(name), str) for name in self.text):
            row = {**row, "text": " ".join(row[name].strip() for name in self.text)}
        if self.label_end and isinstance(row.get("label"), str):
            row = {**row, "label": row["label"].partition(self.label_end)[0]}
        return row


@dataclass(frozen=True)
class Reading:
    """How sources are read.

    Args:
        encoding: of files of text.
        format: of files; "auto" goes by their endings, and of `.txt` by what they hold.
        layouts: of the task's own files.
        header: whether tables without a layout have one.
    """

    encoding: str = "utf-8"
    format: Format = "auto"
    layouts: tuple[Layout, ...] = ()
    header: bool = True

    def lines(self, path: Path) -> Iterator[str]:
        """The lines of a file, in the encoding that was asked for or else in that of the layout."""
        other = next((layout.encoding for layout in self.layouts if layout.encoding), "")
        fits = not other or decodes(path, self.encoding)
        return text_lines(path, self.encoding if fits else other)

    def text(self, path: Path) -> str:
        return "".join(self.lines(path))

    def format_of(self, path: str | Path, plain: Format = "label-text") -> Format:
        """The format of a file, `plain` where it is lines of text.

        Raises:
            FileNotFoundError: nothing is there.
            ValueError: an ending that is not known, for files without a layout.
        """
        if str(path).startswith("hf://"):
            return "auto"
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"There is no file {path}.")
        if self.format != "auto":
            return self.format
        suffix = suffix_of(path)
        if suffix in TABLES:
            return TABLES[suffix]
        if suffix in WORDS:
            return "conll"
        layout = self.layouts[0] if self.layouts else None
        if suffix != ".txt" and layout is None:
            raise ValueError(
                f"The ending of a file says how it is read: {', '.join((*TABLES, *WORDS, '.txt'))}. Received: {path}. "
                "Rename it, or name its format by --format."
            )
        first = next((line for line in self.lines(path) if line.strip()), "")
        if first.lstrip().startswith("{"):
            return "json"
        if names_columns(first.rstrip("\r\n").split("\t")):
            return "tsv"
        return layout.format if layout else plain


def names_columns(cells: list[str]) -> bool:
    """Whether the cells of a first line are names of columns, one of them of a text."""
    lower = [cell.strip().lower() for cell in cells]
    known = {*TEXT_NAMES, *PAIR_NAMES, *LABEL_NAMES, "index", "id"}
    texts = {*TEXT_NAMES, *PAIR_NAMES}
    return len(set(lower)) == len(lower) > 1 and bool(texts & {*lower}) and len(known & {*lower}) > 1


def rows_of(
    source: str | Path, reading: Reading, whole: bool = True, plain: Format = "label-text"
) -> Iterator[tuple[str, dict]]:
    """(place, row) of every row of a file or a data set of the hub, `hf://name:configuration#split`, as it is read.

    A line of label and text is a row of "label" and "text".

    Args:
        source: a path, or a name of the hub.
        reading: how.
        whole: False allows rows of a CSV or TSV that end early; their last cells are None.
        plain: what lines of a text file are.
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
            raise ValueError(f"Texts come in tables or lines. Received: {path}, of words. Name it by --task ner.")
        if format in ("csv", "tsv"):
            rows, layout = _cells(path, format, reading, whole)
        elif format == "parquet":
            rows = parquet_rows(path)
        else:
            rows = _json_rows(path, format, reading)
    for number, row in enumerate(rows, start=1):
        yield f"row {number}", row if layout is None else layout.completed(row)


def read_rows(source: str | Path, reading: Reading | None = None) -> Iterator[dict]:
    """The rows of `rows_of` without their places; lines of text are no rows."""
    reading = reading or Reading()
    if not str(source).startswith("hf://") and reading.format_of(source) in ("label-text", "text", "conll"):
        raise ValueError(
            f"A table has one of the endings {', '.join(TABLES)}. Received: {source}. Name its format by --format."
        )
    return (row for _, row in rows_of(source, reading))


def _cells(path: Path, format: Format, reading: Reading, whole: bool) -> tuple[Iterator[dict], Layout | None]:
    lines = reading.lines(path)
    # A cell may go over several lines: what is looked at must be read by the reader of cells itself.
    first = next((cells for _, cells in cell_rows(reading.lines(path), path, format, strict=False) if cells), [])
    layout = next((layout for layout in reading.layouts if layout.has(first)), None)
    if layout is None:
        return table_rows(lines, path, format, header=reading.header, whole=whole), None
    rows = table_rows(lines, path, format, names=layout.names)
    return (itertools.islice(rows, 1, None) if layout.is_header(first) else rows), layout


def _json_rows(path: Path, format: Format, reading: Reading) -> Iterator[dict]:
    if format == "jsonl":
        first = next((line for line in reading.lines(path) if line.strip()), "")
        format = "json" if first.strip() == "{" else format  # one object over several lines
    if format == "jsonl":
        found = (value for _, value in jsonl_values(reading.lines(path), path))
    else:
        found = json_values(reading.lines(path), path)
        if len(found) == 1 and isinstance(found[0], dict) and isinstance(found[0].get("data"), list):
            found = found[0]["data"]
    for value in found:
        for row in value if isinstance(value, list) else [value]:
            if not isinstance(row, dict):
                raise ValueError(f"{path} must hold JSON objects, one an example. Received: {row!r:.60}.")
            yield row


def _line_rows(path: Path, reading: Reading, labelled: bool, label_end: str) -> Iterator[tuple[str, dict]]:
    for number, line in enumerate(reading.lines(path), start=1):
        if labelled and line.strip():
            yield f"line {number}", label_and_text(line, f"{path} line {number}", label_end)
        elif line.strip():
            yield f"line {number}", {"text": line.strip()}


def label_and_text(line: str, where: str, label_end: str = "") -> dict:
    """A row of a line that has a label, white space and the text."""
    label, *text = line.split(maxsplit=1)
    if not text:
        raise ValueError(f"A line must read `label text`. Received: {where}: {line.strip()[:60]!r}.")
    return {"label": label.partition(label_end)[0] if label_end else label, "text": text[0].strip()}
