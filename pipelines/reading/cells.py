"""Reads and checks the cells of rows. Error messages name the file and the row."""

import ast
import contextlib
import io
import json
import math
import re
import tokenize

# Usual names of the columns with texts and labels, most likely first.
TEXT_NAMES = (
    "text", "sentence1", "premise", "question", "question1", "sentence", "review", "content", "document", "#1 string",
)  # fmt: skip
PAIR_NAMES = ("text_pair", "pair", "sentence2", "hypothesis", "sentence", "question2", "passage", "answer", "#2 string")
LABEL_NAMES = (
    "label", "labels", "class", "category", "target", "sentiment", "score", "stars", "gold_label", "is_duplicate",
    "quality",
)  # fmt: skip


QUOTED = "Put numbers that are texts in quotes, or name the column of texts."  # the end of a message


def column(row: dict, names: tuple[str, ...], given: str | None, path, what: str, number: int | None = None) -> str:
    """Returns the name of the column that holds `what`: the given name, or the first usual name, ignoring case."""
    has = f"It has{'' if number is None else f' in row {number}'}: {', '.join(map(str, row))}."
    if given is not None and given not in row:
        raise ValueError(f"{path} has no column {given!r}. {has}")
    lower = {str(name).strip().lower(): name for name in reversed(row)}
    found = given or next((lower[name] for name in names if name in lower), None)
    if found is None:
        raise ValueError(
            f"The column of {path} that holds the {what} cannot be guessed. Known names: {', '.join(names)}. "
            f"{has} Rename it, or pass --columns.text, --columns.pair or --columns.label."
        )
    return found


def is_missing(value) -> bool:
    """Whether a cell is empty: None, NaN, or only white space."""
    return value is None or (isinstance(value, float) and math.isnan(value)) or not str(value).strip()


def text_of(
    row: dict, name: str, path, number: int, what: str = "a text", empty: bool = False, numbers: bool = False
) -> str:
    """Returns a cell as text. With `empty`, the text may be empty; with `numbers`, numbers are converted."""
    value = row.get(name)
    is_text = isinstance(value, str) or (numbers and isinstance(value, (int, float)))
    if not is_text or (is_missing(value) and not (empty and isinstance(value, str))):
        received = "without it" if is_missing(value) else f"with {value!r:.40}"
        fix = QUOTED if isinstance(value, (int, float)) and not is_missing(value) else "Correct or drop the row."
        raise ValueError(f"Every row needs {what} in {name!r}. Received: {path} row {number} {received}. {fix}")
    return str(value)


def list_of(row: dict, name: str, path, number: int, what: str, numbers: bool = False) -> list[str]:
    """Returns a cell that holds a list, which may be written as text. With `numbers`, numbers in it are converted."""
    value = written_out(row.get(name))
    value = value.tolist() if hasattr(value, "tolist") else value
    allowed = (str, int, float) if numbers else str
    wrong = not isinstance(value, (list, tuple)) or not all(isinstance(item, allowed) for item in value)
    if wrong or any(item != item for item in value):  # NaN differs from itself
        raise ValueError(
            f"Every row needs {what}, a list, in {name!r}. Received: {path} row {number} with {value!r:.60}. Correct "
            "or drop the row."
        )
    return [str(item) for item in value]


def name_of(value) -> str:
    """Returns a label as text. Whole numbers become integers, also if a table has them as text: 1.0 -> "1"."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value)
    return str(int(float(text))) if _WHOLE.fullmatch(text.strip()) else text


_WHOLE = re.compile(r"[+-]?\d{1,15}\.0+")
# Errors of parsers of text that is no list.
_NO_LIST = (ValueError, SyntaxError, MemoryError, RecursionError, tokenize.TokenError)


def written_out(value):
    """Parses a list or a dict that a table stores as text, in JSON or as Python or numpy print it.

    "['a', 'b']" or "['a' 'b']" -> ["a", "b"]

    Other values are returned unchanged.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text[:2] in ('"[', '"{') and text[-2:] in (']"', '}"'):  # quoted as in CSV, in a table separated by tabs
        text = text[1:-1].replace('""', '"')
    if not text.startswith(("[", "{")):
        return value
    for parse in (json.loads, lambda text: ast.literal_eval(_with_commas(text))):
        with contextlib.suppress(*_NO_LIST):
            found = parse(text)
            if isinstance(found, (list, dict)) and not (isinstance(found, list) and Ellipsis in found):
                return found
    return value


def _with_commas(text: str) -> str:
    """Puts commas between the items of a list that numpy has printed. Python would join adjacent texts."""
    found, was_value = [], False
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER):
            continue
        is_value = token.type in (tokenize.STRING, tokenize.NUMBER)
        begins = is_value or (token.string in ("-", "nan", "None") and was_value)
        found += [","] if was_value and begins else []
        found.append(token.string)
        was_value = is_value
    return " ".join(found)


def number_of(columns, name: str, default: int, path) -> int:
    """Returns the index of a column in a table without header, given as the field `name` of a `Columns`."""
    given = getattr(columns, name)
    try:
        return default if given is None else int(given)
    except ValueError:
        raise ValueError(
            f"{path} has no header, so columns have numbers. Received: --columns.{name} {given}. Pass an index from 0."
        ) from None
