"""Inputs for a model out of lines, tables and files of words, one after the other; labels are not looked at."""

import gzip
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from .cells import column, is_missing, text_of, written_out
from .choices import TOGETHER, choice_files, choices_of, questions_of
from .examples import SOURCES, joined, squad_questions
from .labelled import PAIR_NAMES, TEXT_NAMES, Columns
from .tables import cells_of, likely_encoding, open_text, parquet_rows, read_rows, table_rows, whole_json
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

HEAD = 100  # lines at the start of a file that show what it holds


class Input(NamedTuple):
    """An input, where it stands, and the id that it has there."""

    x: str | tuple | list
    where: str
    id: object = None


def read_inputs(source: Path | Iterable[str], form: str, columns: Columns, encoding: str = "utf-8") -> Iterator[Input]:
    """The inputs in a file, by its ending, or in lines. All but `.json` are read as they come; `.gz` is allowed.

    Words of a tagger may stand in columns in a `.txt` and in a table, too: the first lines show it, or, of a `.txt`,
    columns that are numbers say it.
    """
    if not isinstance(source, Path):
        return _line_inputs(_decoded(source, encoding), form, columns, "the input")
    if form == "choices" and source.is_dir():  # of RACE
        return (item for file in choice_files(source) for item in read_inputs(file, form, columns, encoding))
    if not source.is_file():
        raise FileNotFoundError(f"There is no file {source}.")
    suffix = (Path(source.stem) if source.suffix.lower() == ".gz" else source).suffix.lower()
    if suffix == ".json":
        return _json_inputs(source, form, columns, encoding)
    lines = text_lines(source, encoding)
    if suffix in (".txt", ".csv", ".tsv") and form == "words":
        head = list(itertools.islice(lines, HEAD))
        lines = itertools.chain(head, lines)
        if _are_words(head, suffix, columns, source):
            return _sentences(lines, columns, source, suffix == ".csv")
    if suffix in (".conll", ".iob", ".bio", ".annotated"):
        return _sentences(lines, columns, source)
    if suffix not in (".csv", ".tsv", ".parquet"):
        return _line_inputs(lines, form, columns, source)
    rows = parquet_rows(source) if suffix == ".parquet" else table_rows(lines, source, not columns.are_numbers)
    return _row_inputs(rows, form, columns, source)


def _decoded(lines: Iterable[str], encoding: str) -> Iterator[str]:
    """Lines of standard input, which are decoded as they come."""
    number = 0
    try:
        for line in lines:
            number += 1
            yield line
    except UnicodeDecodeError as error:
        likely = likely_encoding(error.object[:2]) if number == 0 else "latin-1"
        raise ValueError(
            f"The input is not valid {encoding}, behind line {number}: {error.reason}. Name its encoding, such as "
            f"--encoding {likely}; text of several encodings must be converted first."
        ) from None


def _are_words(head: list[str], suffix: str, columns: Columns, path: Path) -> bool:
    """Whether a file that begins so has a word a line, and not a text or a list of words."""
    if suffix == ".txt":
        return columns.are_numbers or shows_columns([cells_of_line(line) for line in head])
    rows = cells_of(head, path, strict=False) if suffix == ".csv" else (cells for cells, _ in lines_of_cells(head))
    return shows_words(list(rows), path)


def text_lines(path: Path, encoding: str) -> Iterator[str]:
    """The lines of a file, without the mark that some begin with."""
    number, opener = 0, gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rt", encoding=encoding, newline="") as file:
            for number, line in enumerate(file, start=1):
                yield line.removeprefix("\ufeff") if number == 1 else line
    except UnicodeDecodeError as error:
        with opener(path, "rb") as file:
            likely = likely_encoding(file.read(2))
        raise ValueError(
            f"{path} is not valid {encoding}, behind line {number}: {error.reason}. Name the file's encoding, such as "
            f"--encoding {likely}; a file of several encodings must be converted first."
        ) from None


def read_line(
    line: str, number: int, form: str | None = None, columns: Columns | None = None, path: str | Path = "the input"
) -> str | tuple | list:
    """The input that a line holds: text, parts with tabs between them where a model takes parts, or JSON.

    Args:
        form: what a model takes: words, questions, choices, pairs, texts or sources, which are the texts that a model
            was trained on to write others. Default: what the line looks like.
    """
    line = line.strip()
    if line.startswith("{"):
        return input_of(_parsed(line, number), form, columns or Columns(), path, number)
    if form in ("words", "texts", "sources") or "\t" not in line:
        return line
    if form == "choices":
        context, *choices = line.split("\t")
        return context, choices
    return tuple(line.split("\t", 1))


def input_of(row: dict, form: str | None, columns: Columns, path: str | Path, number: int) -> str | tuple | list:
    """The input that a row of a table, or an object of JSON, holds."""
    form = form or _form_of(row)
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
    known = {str(name).strip().lower(): name for name in row}
    usual = (*SOURCES, *TEXT_NAMES) if form == "sources" else (*TEXT_NAMES, *SOURCES)
    names = [known[name] for name in usual if name in known]
    if columns.text is None and not names:
        raise ValueError(
            "A line of JSON must have text, words, question and context, or context and choices, and a table a column "
            f"of text; name it by --columns.text. Received: line {number} with {', '.join(map(str, row))}, in {path}."
        )
    text = column(row, (), columns.text or names[0], path, "texts", number)
    pairs = [known[name] for name in PAIR_NAMES if name in known and known[name] != text]
    pair = columns.pair or (pairs[0] if pairs and columns.text is None else None)
    if form != "pairs" or pair is None or (columns.pair is None and is_missing(row[pair])):
        return joined(row, text, path, number, empty=True)
    second = column(row, (), pair, path, "pairs", number)
    return tuple(text_of(row, name, path, number, empty=True) for name in (text, second))


def _form_of(row: dict) -> str:
    if "words" in row:
        return "words"
    if any(name in row for name in TOGETHER):
        return "choices"
    return "questions" if "question" in row and "context" in row else "pairs"


def _parsed(line: str, number: int) -> dict:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"Line {number} is not valid JSON: {error}.") from None


def _line_inputs(lines: Iterable[str], form: str, columns: Columns, path: str | Path) -> Iterator[Input]:
    for number, line in enumerate(lines, start=1):
        line, where = line.removeprefix("\ufeff") if number == 1 else line, f"{path} line {number}"
        if line.lstrip().startswith("{"):
            for row in _parts(_parsed(line, number), form, path):
                yield Input(input_of(row, form, columns, path, number), where, row.get("id"))
        elif line.strip():
            yield Input(read_line(line, number, form), where)


def _row_inputs(rows: Iterable[dict], form: str, columns: Columns, path: Path) -> Iterator[Input]:
    parts = (part for row in rows for part in _parts(row, form, path))
    for number, row in enumerate(parts, start=1):
        yield Input(input_of(row, form, columns, path, number), f"{path} row {number}", row.get("id"))


def _parts(row: dict, form: str, path: str | Path) -> list[dict]:
    """The questions of a row that has several choices each; any other row is one."""
    return questions_of(row, path) if form == "choices" else [row]


def _json_inputs(path: Path, form: str, columns: Columns, encoding: str) -> Iterator[Input]:
    content = whole_json(open_text(path, encoding))
    articles = content.get("data") if isinstance(content, dict) else None
    if form != "questions" or not articles or "paragraphs" not in articles[0]:
        yield from _row_inputs(read_rows(path, encoding), form, columns, path)
        return
    for paragraph, question in squad_questions(articles, path):
        pair = (question.get("question", ""), paragraph.get("context", ""))
        yield Input(pair, f"{path} question {question.get('id')}", question.get("id"))


def _sentences(lines: Iterable[str], columns: Columns, path: Path, is_csv: bool = False) -> Iterator[Input]:
    """The words of one sentence after the other. See `tagged.read_tags`."""
    shape, word = None, None
    for block in _blocks(lines, path, is_csv):
        # The first line that is no comment shows the columns of words.
        shape = shape or next(((len(row), tabs) for _, row, tabs in block if not row[0].startswith("#")), None)
        width, tabbed = shape or (2, False)
        rows = [(at, row) for at, row, tabs in block if not is_comment(row, width, tabbed and not tabs)]
        if rows and word is None:
            header = rows[0][1] if has_names(rows[0][1]) else []
            word = word_column(columns, header, path)
            rows = rows[bool(header) :]
        for at, row in rows:
            if len(row) <= word:
                raise ValueError(
                    f"A line must have {word + 1} columns. Received: {path} line {at}: {' '.join(row)[:60]!r}."
                )
        if rows:
            yield Input([row[word] for _, row in rows], f"{path} line {rows[0][0]}")


def _blocks(lines: Iterable[str], path: Path, is_csv: bool) -> Iterator[list[tuple[int, list[str], bool]]]:
    """(number, cells, whether tabs are between them) of the lines of a sentence; a blank line is behind it, or the next
    one has another number in the column of sentences."""
    rows = ((cells, False) for cells in cells_of(lines, path)) if is_csv else lines_of_cells(lines)
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
