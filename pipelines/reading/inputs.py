"""Streams the inputs of a model from lines, tables and files of words. Labels are ignored."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kerasbert.data.text.tables import cell_rows, decoded_lines, parsed_json

from .cells import PAIR_NAMES, TEXT_NAMES, column, is_missing, text_of, written_out
from .choices import TOGETHER, choice_files, choices_of, questions_of
from .examples import SOURCES, joined, squad_articles, squad_questions
from .labeled import Columns, find_columns
from .tables import HEAD, Format, Layout, Reading, label_and_text, rows_of
from .tagged import (
    WORD_NAMES,
    begins_sentence,
    cells_of_line,
    has_names,
    is_comment,
    lines_of_cells,
    sentence_column,
    shows_columns,
    shows_words,
    word_column,
)

SHOWN_LINES = 5  # numbers of empty lines in a message
LEAST_LABELED = 10  # minimum number of lines of a file of `label text` whose lines all begin with the same label


@dataclass
class EmptyLines:
    """Counts the empty lines of a text, which are no inputs.

    Args:
        count: their number.
        first: the numbers of the first of them, from 1.
    """

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, number: int) -> None:
        self.count += 1
        self.first += [number] * (len(self.first) < SHOWN_LINES)

    def sentence(self) -> str | None:
        """Says which lines have no answer; None if there are none."""
        if not self.count:
            return None
        numbers = ", ".join(map(str, self.first)) + (", ..." if self.count > len(self.first) else "")
        return f"{self.count:,} empty {'line has' if self.count == 1 else 'lines have'} no answer: {numbers}"


class Input(NamedTuple):
    """An input, its place in the source (for messages), and its id in the source, if any."""

    x: str | tuple | list
    where: str
    id: object = None


def read_inputs(
    source: str | Path | Iterable[str],
    form: str,
    columns: Columns,
    encoding: str = "utf-8",
    format: Format = "auto",
    layouts: tuple[Layout, ...] = (),
    labels: Iterable[str] = (),
    empty: EmptyLines | None = None,
) -> Iterator[Input]:
    """Yields the inputs in a file, a data set on the hub or lines, in the same formats as `read_examples`.

    Inputs are streamed, except for `.json`, which is read as a whole. For a tagger, a `.txt` file or a table may have
    one word per line. This is detected from the first lines. For `.txt`, numbers as `columns` imply it.

    Args:
        source: a path, `hf://name:configuration#split`, or lines.
        form: form of the model's inputs; see `read_line`.
        columns: names of the columns that cannot be guessed.
        encoding: encoding of text.
        format: format of the file or the lines. "auto" infers it from the extension and, for `.txt`, from the content.
        layouts: layouts of the files of the model's task.
        labels: labels of a classifier. A text file is read as `label text` if all of its first lines begin with a
            label, and there are at least two different labels or at least `LEAST_LABELED` lines.
        empty: counts the empty lines of texts.
    """
    reading, empty = Reading(encoding, format, layouts), EmptyLines() if empty is None else empty
    if not isinstance(source, (str, Path)):
        return _stream_inputs(source, form, columns, reading, empty)
    if form == "choices" and Path(source).is_dir():  # RACE's files
        files = choice_files(source)
        return (item for file in files for item in read_inputs(file, form, columns, encoding, format, layouts))
    found = reading.format_of(source, "text")
    if found == "auto":
        return _row_inputs(source, reading, form, columns)
    source = Path(source)
    if form == "words" and found in ("csv", "tsv", "text", "conll"):
        lines = reading.lines(source)
        head = list(itertools.islice(lines, HEAD)) if found != "conll" else []
        if found == "conll" or _are_words(head, found, columns, source):
            return _sentences(itertools.chain(head, lines), columns, source, found == "csv")
    if found == "text" and format == "auto" and form == "pairs" and begin_with_labels(source, reading, labels):
        found = "label-text"
    if found == "label-text" and form in ("pairs", "texts", "sources"):
        return _labeled_inputs(reading.lines(source), source, empty)
    if found in ("text", "jsonl"):
        return _line_inputs(reading.lines(source), form, columns, source, empty, only_json=found == "jsonl")
    if found == "json":
        return _json_inputs(source, form, columns, reading)
    return _row_inputs(source, Reading(encoding, found, layouts), form, columns)


def begin_with_labels(path: Path, reading: Reading, labels: Iterable[str]) -> bool:
    """Whether the first lines of a file are `label text`; see `read_inputs`."""
    known, seen, count = set(labels), set(), 0
    for line in itertools.islice(reading.lines(path), HEAD):
        first, *rest = line.split(maxsplit=1)[:2] or ("", "")
        if not line.strip():
            continue
        if first not in known or not rest:
            return False
        seen.add(first)
        count += 1
    return len(seen) > 1 or count >= LEAST_LABELED


def _stream_inputs(
    lines: Iterable[str], form: str, columns: Columns, reading: Reading, empty: EmptyLines
) -> Iterator[Input]:
    """Yields the inputs in a stream of lines, such as standard input."""
    if reading.format not in ("auto", "text", "label-text", "jsonl"):
        raise ValueError(
            "Standard input must be lines of text, of label and text, or of JSON. Received: --format "
            f"{reading.format}. Give a file with --input."
        )
    binary = getattr(lines, "buffer", None)
    lines = decoded_lines(binary, "the input", reading.encoding) if binary is not None else lines
    if reading.format == "label-text":
        return _labeled_inputs(lines, "input", empty)
    return _line_inputs(lines, form, columns, "input", empty, only_json=reading.format == "jsonl")


def _labeled_inputs(lines: Iterable[str], path: str | Path, empty: EmptyLines) -> Iterator[Input]:
    """Yields the texts of lines of `label text`."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            where = f"{path} line {number}"
            yield Input(label_and_text(line, where)["text"], where)
        else:
            empty.add(number)


def _are_words(head: list[str], format: str, columns: Columns, path: Path) -> bool:
    """Whether a file with these first lines has one word per line, rather than a text or a list of words."""
    if format == "text":
        return columns.are_numbers or shows_columns([cells_of_line(line) for line in head])
    if format == "csv":
        rows = (cells for _, cells in cell_rows(head, path, strict=False))
    else:
        rows = (cells for cells, _ in lines_of_cells(head))
    return shows_words(list(rows), path, columns)


def read_line(
    line: str, number: int, form: str | None = None, columns: Columns | None = None, path: str | Path = "input"
) -> str | tuple | list:
    """Parses a line: a text, tab-separated parts for models that take several parts, or JSON.

    Args:
        form: form of the model's inputs: words, questions, choices, pairs, texts, or sources (the inputs of a
            sequence-to-sequence model). Default: inferred from the line.
    """
    line = line.strip()
    if line.startswith("{"):
        row = parsed_json(line, f"{path} line {number}")
        return input_of(row, form, columns or Columns(), path, f"line {number}")
    if form in ("words", "texts", "sources") or "\t" not in line:
        return line
    parts = line.split("\t")
    if form == "choices":
        return parts[0], parts[1:]
    if len(parts) > 2:
        raise ValueError(
            f"A line must have one text, or two with a tab between them. Received: {path} line {number} with "
            f"{len(parts)}. Write tabs within texts in JSON, or name a table's format with --format tsv."
        )
    return tuple(parts)


def input_of(row: dict, form: str | None, columns: Columns, path: str | Path, place: str) -> str | tuple | list:
    """Returns the input in a table row or a JSON object. `place` is its place in the file, such as "row 3"."""
    number = place.rpartition(" ")[2]
    form, columns = form or _form_of(row), columns.among(row)
    if form == "choices":
        context, choices, _ = choices_of(row, path, number, columns)
        return *context, choices
    if form == "questions":
        names = (("question",), columns.text, "questions"), (("context", "passage"), columns.pair, "contexts")
        return tuple(
            text_of(row, column(row, known, given, path, what, number), path, number, empty=True)
            for known, given, what in names
        )
    if form == "words":
        name = columns.text or next((name for name in WORD_NAMES if name in row), None)
        words = written_out(row.get(name))
        if isinstance(words, list) and all(isinstance(word, str) for word in words):
            return words
    if isinstance(row.get("translation"), dict) and row["translation"]:  # the first language is the source
        row = row["translation"]
        return text_of(row, column(row, (), columns.text or next(iter(row)), path, "sources", number), path, number)
    if form == "sources":
        known = {str(name).strip().lower(): name for name in row}
        usual = next((known[name] for name in (*SOURCES, *TEXT_NAMES) if name in known), None)
        if columns.text or usual:
            return joined(row, column(row, (), columns.text or usual, path, "texts", number), path, number, empty=True)
    found = _text_columns(row, columns, path, place)
    text = column(row, (), found.text, path, "texts", number)
    pair = found.pair
    if form != "pairs" or pair is None or (columns.pair is None and is_missing(row[pair])):
        return joined(row, text, path, number, empty=True)
    second = column(row, (), pair, path, "pairs", number)
    return tuple(text_of(row, name, path, number, empty=True) for name in (text, second))


def _text_columns(row: dict, columns: Columns, path: str | Path, place: str) -> Columns:
    """Returns the columns of a text and its pair, as for training. A column of sources also counts as the text."""
    known = {str(name).strip().lower(): name for name in row}
    if columns.text is None and not any(name in known for name in (*TEXT_NAMES, *PAIR_NAMES)):
        source = next((known[name] for name in SOURCES if name in known), None)
        if source is not None:
            return Columns(source)
    return find_columns(columns, list(row), f"{path} {place}", labeled=False)


def _form_of(row: dict) -> str:
    if "words" in row:
        return "words"
    if any(name in row for name in TOGETHER):
        return "choices"
    return "questions" if "question" in row and "context" in row else "pairs"


def _line_inputs(
    lines: Iterable[str], form: str, columns: Columns, path: str | Path, empty: EmptyLines, only_json: bool = False
) -> Iterator[Input]:
    """Yields the inputs in lines of text and of JSON. With `only_json`, a line of text is an error."""
    for number, line in enumerate(lines, start=1):
        line, where = line.removeprefix("\ufeff") if number == 1 else line, f"{path} line {number}"
        if line.lstrip().startswith("{"):
            for row in _parts(parsed_json(line, where), form, path):
                yield Input(input_of(row, form, columns, path, f"line {number}"), where, row.get("id"))
        elif not line.strip():
            empty.add(number)
        elif only_json:
            raise ValueError(f"A line of JSONL must be an object. Received: {where} with {line.strip()!r:.60}.")
        else:
            yield Input(read_line(line, number, form, path=path), where)


def _row_inputs(source: str | Path, reading: Reading, form: str, columns: Columns) -> Iterator[Input]:
    if columns.are_numbers:
        reading = Reading(reading.encoding, reading.format, header=False)
    for place, row in rows_of(source, reading, plain="text"):
        for part in _parts(row, form, source):
            yield Input(input_of(part, form, columns, source, place), f"{source} {place}", part.get("id"))


def _parts(row: dict, form: str, path: str | Path) -> list[dict]:
    """For "choices", splits a row into its questions. Any other row is returned alone."""
    return questions_of(row, path) if form == "choices" else [row]


def _json_inputs(path: Path, form: str, columns: Columns, reading: Reading) -> Iterator[Input]:
    articles = squad_articles(path, reading) if form == "questions" else None
    if articles is None:
        yield from _row_inputs(path, Reading(reading.encoding, "json", reading.layouts), form, columns)
        return
    for paragraph, question in squad_questions(articles, path):
        pair = (question.get("question", ""), paragraph.get("context", ""))
        yield Input(pair, f"{path} question {question.get('id')}", question.get("id"))


def _sentences(lines: Iterable[str], columns: Columns, path: Path, is_csv: bool = False) -> Iterator[Input]:
    """Yields the words of each sentence. See `tagged.read_tags`."""
    shape, word = None, None
    for block in _blocks(lines, path, is_csv):
        # The first line that is not a comment gives the number of columns and whether tabs separate them.
        shape = shape or next(((len(row), tabs) for _, row, tabs in block if not row[0].startswith("#")), None)
        width, tabbed = shape or (2, False)
        rows = [(at, row) for at, row, tabs in block if not is_comment(row, width, tabbed and not tabs)]
        if rows and word is None:
            header = rows[0][1] if has_names(rows[0][1], columns) else []
            word = word_column(columns.among(header), header, path)
            rows = rows[bool(header) :]
        for at, row in rows:
            if len(row) <= word:
                raise ValueError(
                    f"A line must have {word + 1} columns. Received: {path} line {at}: {' '.join(row)[:60]!r}."
                )
        if rows:
            yield Input([row[word] for _, row in rows], f"{path} line {rows[0][0]}")


def _blocks(lines: Iterable[str], path: Path, is_csv: bool) -> Iterator[list[tuple[int, list[str], bool]]]:
    """Yields the lines of each sentence as (number, cells, whether tabs separate them).

    A sentence ends at a blank line, or where the value in the column of sentence ids changes.
    """
    rows = ((cells, False) for _, cells in cell_rows(lines, path)) if is_csv else lines_of_cells(lines)
    header, part, last, block = None, None, "", []
    for number, (cells, tabs) in enumerate(rows, start=1):
        if not any(cells) or cells[0] == "-DOCSTART-":
            if block:
                yield block
            block = []
            continue
        if header is None and not cells[0].startswith("#"):
            header = cells
            part = sentence_column(header)
        elif begins_sentence(cells, part, last):
            last = cells[part]
            if block:
                yield block
            block = []
        block.append((number, cells, tabs))
    if block:
        yield block
