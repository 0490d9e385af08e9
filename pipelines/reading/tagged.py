"""Reads tagged words from files with one word per line or one sentence per row."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from .cells import column, list_of, name_of, number_of, written_out
from .labeled import Columns
from .tables import Reading, cell_rows, read_rows

WORD_NAMES = ("tokens", "words", "token", "word", "sentence")
TAG_NAMES = (
    "ner_tags", "tags", "labels", "pos_tags", "ner_tag", "tag", "label", "ner", "ner_label", "ner_labels", "entity",
    "bio", "iob", "bio_tags", "iob_tags", "bio_tag", "iob_tag", "target", "pos", "upos", "xpos", "pos_tag", "chunk",
)  # fmt: skip
# Usual names of a column with the sentence id of every word, or of only the first word of each sentence.
SENTENCE_NAMES = (
    "sentence_id", "sentence_idx", "sentence #", "sentence_number", "sentence id", "sent_id", "sentenceid", "sentence",
)  # fmt: skip
TAG = re.compile(r"O|[BIESLUM]-\S+")


def read_tags(path: str | Path, columns: Columns, reading: Reading) -> tuple[list[list[str]], list[list[str]]]:
    """Reads sentences as (lists of words, lists of tags) from rows with a sentence each, or from CoNLL's columns.

    In a row with a sentence, words and tags are lists, which may be written as text ("['a', 'b']"), or in a CSV or TSV
    file separated by spaces.
    """
    format = reading.format_of(path, "conll")
    if format in ("csv", "tsv") and not columns.are_numbers:
        table = list(cell_rows(reading.lines(Path(path)), path, format, strict=False))
        if not holds_sentences([cells for _, cells in table if cells], columns, path):
            return _tag_columns(Path(path), columns, reading, format)
    elif format not in ("auto", "json", "jsonl", "parquet"):
        return _tag_columns(Path(path), columns, reading, format)
    rows = list(read_rows(path, reading))
    if not rows:
        return [], []
    columns = columns.among(rows[0])
    words = column(rows[0], WORD_NAMES, columns.text, path, "words")
    tags = column(rows[0], TAG_NAMES, columns.label, path, "tags")
    reading.say_columns(path, [words], tags, "tags")
    x = [
        _items(row, words, path, number, "words", format in ("csv", "tsv")) for number, row in enumerate(rows, start=1)
    ]
    y = [_items(row, tags, path, number, "tags", format in ("csv", "tsv")) for number, row in enumerate(rows, start=1)]
    for number, (sentence, labels) in enumerate(zip(x, y, strict=True), start=1):
        if len(sentence) != len(labels):
            raise ValueError(
                f"Every word must have a tag. Received: {path} row {number} of {len(sentence)} words with "
                f"{len(labels)} tags."
            )
    return x, y


def holds_sentences(rows: list[list[str]], columns: Columns, path) -> bool:
    """Whether each row of a table, whose first row names its columns, is a sentence rather than a word."""
    header = rows[0] if rows else []
    if not has_names(header, columns):
        return False
    columns = columns.among(header)
    word, tag = word_column(columns, header, path), _place(columns.label, header, TAG_NAMES, path)
    if header[word].strip().lower() == "sentence":
        return True
    cells = (row[tag].strip() for row in rows[1:] if len(row) > max(word, tag))
    return any(len(cell.split()) > 1 or isinstance(written_out(cell), list) for cell in cells)


def _items(row: dict, name: str, path, number: int, what: str, is_table: bool) -> list[str]:
    """Returns the words or tags of a sentence, which are a list, or in a CSV or TSV file separated by spaces."""
    value = written_out(row.get(name))
    is_text = is_table and isinstance(value, str) and not value.lstrip().startswith("[")
    items = value.split() if is_text else list_of(row, name, path, number, what, numbers=what == "tags")
    if what == "words":
        return items
    tags = [name_of(tag) for tag in items]
    if not all(tag.strip() for tag in tags):
        raise ValueError(f"Every word must have a tag. Received: {path} row {number} with an empty tag.")
    return tags


def _tag_columns(
    path: Path, columns: Columns, reading: Reading, format: str
) -> tuple[list[list[str]], list[list[str]]]:
    """Reads CoNLL's format: one word per line, its tag in the last column, a blank line after each sentence.

    The first line may name the columns. If one of them holds sentence ids, a sentence also ends where the id changes. A
    line that begins with "#" is a comment if its number of columns differs from that of the words, or if it has spaces
    instead of tabs.
    """
    is_csv = format == "csv"
    texts = list(reading.lines(path))
    cells = cell_rows(texts, path) if is_csv else enumerate(lines_of_cells(texts))
    lines = (found if is_csv else found[0] for _, found in cells)
    lines = [[] if not any(cells) or cells[0] == "-DOCSTART-" else cells for cells in lines]
    filled = sorted(((i, cells) for i, cells in enumerate(lines) if cells), key=lambda item: item[1][0][:1] == "#")
    width = len(filled[0][1]) if filled else 0
    tabs = bool(filled) and not is_csv and "\t" in texts[filled[0][0]]
    rows = [
        (number, cells)
        for number, cells in enumerate(lines, start=1)
        if not is_comment(cells, width, tabs and "\t" not in texts[number - 1])
    ]
    header = next((cells for _, cells in rows if cells), [])
    if has_names(header, columns):
        rows = [(number, cells) for number, cells in rows if cells is not header]
    else:
        if not columns.are_numbers:
            _check_first_tag([cells for _, cells in rows if cells], format, path)
        header = []
    columns = columns.among(header)
    word = word_column(columns, header, path)
    tag = _place(columns.label, header, TAG_NAMES, path) if header else number_of(columns, "label", -1, path)
    said = [header[place] if header else str(place % width if width else place) for place in (word, tag)]
    reading.say_columns(path, said[:1], said[1], "tags")
    x: list[list[str]] = [[]]
    y: list[list[str]] = [[]]
    part, last = sentence_column(header), ""
    for number, cells in rows:
        is_new = begins_sentence(cells, part, last)
        if (is_new or not cells) and x[-1]:
            x.append([])
            y.append([])
        if not cells:
            continue
        last = cells[part] if is_new else last
        received = f"Received: {path} line {number}: {' '.join(cells)[:60]!r}"
        if len(cells) < max(2, word + 1, tag + 1):
            wanted = "a word and a tag" if max(word, tag) < 2 else f"{max(word, tag) + 1} columns"
            raise ValueError(f"A line must have {wanted}. {received}.")
        if len(cells) != width:
            raise ValueError(
                f"All lines must have the same number of columns. {received}, with {len(cells)} among lines with "
                f"{width}. Separate "
                "columns by tabs if words contain spaces."
            )
        if not cells[word] or not cells[tag].strip():
            raise ValueError(f"A word must have a tag. {received}, without {'a tag' if cells[word] else 'a word'}.")
        x[-1].append(cells[word])
        y[-1].append(cells[tag])
    return (x, y) if x[-1] else (x[:-1], y[:-1])


def _check_first_tag(rows: list[list[str]], format: str, path) -> None:
    """Raises a ValueError if the first row holds names of columns that are not known, rather than a word and its tag.

    In a table, which usually has a header, the tag of the first word must be one of a scheme such as BIO, or occur
    again. Other files usually have none: there, only a first tag among tags of a scheme is an error if it is not.
    """
    first, *others = [cells[-1] for cells in rows if len(cells) > 1] or ["O"]
    is_tag = TAG.fullmatch(first) or first in others
    if is_tag or (format not in ("csv", "tsv") and not (others and all(map(TAG.fullmatch, others)))):
        return
    raise ValueError(
        f"The first row must have known names of columns, or a word and a tag. Received: {path} with the row "
        f"{', '.join(rows[0])!r:.80}. Known names are {', '.join((*WORD_NAMES, *TAG_NAMES))}. Name the columns with "
        "--columns.text and --columns.label, as indices from 0 if there is no header."
    )


def lines_of_cells(lines: Iterable[str]) -> Iterator[tuple[list[str], bool]]:
    """Yields (cells, whether tabs separate them). Empty cells are kept if the first line names a sentence id column."""
    header = None
    for line in lines:
        if header is None and line.strip() and not line.startswith("#"):
            header = [] if sentence_column(line.rstrip("\r\n").split("\t")) is None else line.split("\t")
        yield cells_of_line(line, whole=bool(header)), "\t" in line


def cells_of_line(line: str, whole: bool = False) -> list[str]:
    """Splits a line at tabs, or at spaces if there are no tabs. Other white space can be a word."""
    line = line.rstrip("\r\n")
    if whole and "\t" in line:
        return line.split("\t")
    return [cell for cell in (line.split("\t") if "\t" in line else line.split(" ")) if cell]


def is_comment(cells: list[str], width: int, lacks_tabs: bool) -> bool:
    """Whether a line is a comment, in a file whose words have `width` columns."""
    if not cells or not cells[0].startswith("#"):
        return False
    return len(cells) != width or lacks_tabs or cells[0].startswith("# ")


def shows_columns(rows: list[list[str]]) -> bool:
    """Whether the first lines of a file, as cells, are words with tags rather than lines of text.

    This is the case if the first line is -DOCSTART-, or if all lines have the same number of columns (at least two),
    and the last column has only tags of a scheme such as BIO, including O.
    """
    rows = [cells for cells in rows if any(cells)]
    if rows and rows[0][0] == "-DOCSTART-":
        return True
    rows = [cells for cells in rows if not cells[0].startswith("#")]
    last = {cells[-1] for cells in rows}
    return len({len(cells) for cells in rows}) == 1 < len(rows[0]) and "O" in last and all(map(TAG.fullmatch, last))


def shows_words(rows: list[list[str]], path, columns: Columns | None = None) -> bool:
    """Whether each of the first rows of a table is a word, rather than a text or a list of words.

    This is the case if column names indicate sentence ids, or words and tags. With tags, no word may contain a space.
    """
    rows = [cells for cells in rows if any(cells)]
    if not rows or not has_names(rows[0], columns):
        return shows_columns(rows)
    if sentence_column(rows[0]) is not None:
        return True
    word = word_column((columns or Columns()).among(rows[0]), rows[0], path)
    return not any(len(cells) > word and (" " in cells[word] or cells[word][:2] in ("['", '["')) for cells in rows[1:])


def word_column(columns: Columns, header: list[str], path) -> int:
    """Returns the index of the column of words. `header` is empty for a table without header."""
    return _place(columns.text, header, WORD_NAMES, path) if header else number_of(columns, "text", 0, path)


def has_names(cells: list[str], columns: Columns | None = None) -> bool:
    """Whether the cells of a line are column names: usual ones, or those of the `columns` that the user has named."""
    lower = {cell.strip().lower() for cell in cells}
    columns = Columns() if columns is None or columns.are_numbers else columns.among(cells)
    given = {columns.text, columns.label} - {None}
    if given:
        return given <= {*cells}
    return bool(lower & set(WORD_NAMES) and lower & {*TAG_NAMES}) or sentence_column(cells) is not None


def sentence_column(header: list[str]) -> int | None:
    """Returns the index of the column with sentence ids, or None if the header does not name one."""
    lower = [cell.strip().lower() for cell in header]
    names = [name for name in SENTENCE_NAMES if name in lower]
    return lower.index(names[0]) if names and {*WORD_NAMES[:-1]} & {*lower} else None


def begins_sentence(cells: list[str], part: int | None, last: str) -> bool:
    """Whether a line begins a new sentence, because its id in column `part` is not empty and differs from `last`."""
    return part is not None and len(cells) > part and bool(cells[part].strip()) and cells[part] != last


def _place(given: str | None, header: list[str], names: tuple[str, ...], path) -> int:
    """Returns the index of a column, which is given by name or number, or is the first with a usual name."""
    if given is not None and given.isdecimal():
        return int(given)
    return header.index(column(dict.fromkeys(header), names, given, path, "words and tags"))
