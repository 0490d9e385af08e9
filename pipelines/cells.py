"""Reads and checks the cells of rows. Error messages name the file and the row."""

import ast
import math

# Usual names of the columns with texts and labels, most likely first.
TEXT_NAMES = (
    "text", "sentence1", "premise", "question", "question1", "sentence", "review", "content", "document", "#1 string",
)  # fmt: skip
PAIR_NAMES = ("text_pair", "pair", "sentence2", "hypothesis", "sentence", "question2", "passage", "answer", "#2 string")
LABEL_NAMES = (
    "label", "labels", "class", "category", "target", "sentiment", "score", "stars", "gold_label", "is_duplicate",
    "quality",
)  # fmt: skip


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


def text_of(row: dict, name: str, path, number: int, what: str = "a text", empty: bool = False) -> str:
    """Returns a cell as text. Numbers are converted. With `empty`, the text may be empty."""
    value = row.get(name)
    if isinstance(value, (list, dict)) or (is_missing(value) and not (empty and isinstance(value, str))):
        received = "without it" if is_missing(value) else f"with {value!r:.40}"
        raise ValueError(
            f"Every row needs {what} in {name!r}. Received: {path} row {number} {received}. Correct or drop the row."
        )
    return str(value)


def list_of(row: dict, name: str, path, number: int, what: str) -> list[str]:
    """Returns a cell that holds a list. Its items are converted to text."""
    value = row.get(name)
    value = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(value, (list, tuple)) or any(item is None or isinstance(item, (list, dict)) for item in value):
        raise ValueError(
            f"Every row needs {what}, a list, in {name!r}. Received: {path} row {number} with {value!r:.60}. Correct "
            "or drop the row."
        )
    return [str(item) for item in value]


def written_out(value):
    """Parses a list or a dict that a table stores as text, such as "['a', 'b']". Returns other values unchanged."""
    if not isinstance(value, str) or not value.strip().startswith(("[", "{")):
        return value
    try:
        found = ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value
    return found if isinstance(found, (list, dict)) else value


def number_of(columns, name: str, default: int, path) -> int:
    """Returns the index of a column in a table without header, given as the field `name` of a `Columns`."""
    given = getattr(columns, name)
    try:
        return default if given is None else int(given)
    except ValueError:
        raise ValueError(
            f"{path} has no header, so columns have numbers. Received: --columns.{name} {given}. Pass an index from 0."
        ) from None
