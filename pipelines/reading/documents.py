"""Reads the documents that are searched or mapped to vectors: the lines of a file, or the rows of a table."""

from dataclasses import dataclass
from pathlib import Path

from .cells import TEXT_NAMES, is_missing, text_of
from .tables import Reading, read_rows
from .text_columns import columns_of_texts


@dataclass(frozen=True)
class Documents:
    """Documents, in their order.

    Args:
        texts: their texts.
        ids: those of a table, or their numbers from 0 if it has none.
    """

    texts: list[str]
    ids: list


def read_documents(path: str | Path, reading: Reading | None = None, column: str | None = None) -> Documents:
    """Reads documents: the lines of a text file that are not blank, or a table.

    Args:
        path: the file, or a data set on the hub.
        reading: encoding and format.
        column: name of the column of a table. Default: its only column of texts, or `text`, after `title` and a space
            if there is a title, as in the collections of BEIR, or one with another usual name.

    Raises:
        ValueError: if there are no documents, or one is empty, or the column is not found.
    """
    reading = reading or Reading()
    if not str(path).startswith("hf://") and reading.format_of(path, "text") == "text":
        if column is not None:
            raise ValueError(f"`column` is for tables. Received: {column} for {path}, whose lines are documents.")
        texts = [line.strip() for line in reading.lines(Path(path)) if line.strip()]
        ids: list = list(range(len(texts)))
    else:
        texts, ids = _of_table(list(read_rows(path, reading)), path, column)
    if not texts:
        raise ValueError(f"{path} has no texts.")
    return Documents(texts, ids)


def _of_table(rows: list[dict], path: str | Path, column: str | None) -> tuple[list[str], list]:
    """The texts of rows, and their ids, or their numbers if they have none."""
    if not rows:
        return [], []
    names = list(rows[0])
    if column is not None and column not in names:
        raise ValueError(f"{path} has no column {column!r}. It has: {', '.join(map(str, names))}.")
    parts = ("title", "text") if column is None and {"title", "text"} <= {*names} else (column or _column(names, path),)
    texts = []
    for number, row in enumerate(rows, start=1):
        filled = [name for name in parts if not is_missing(row.get(name))]  # a title may stand alone
        texts.append(" ".join(text_of(row, name, path, number).strip() for name in filled or parts))
    name = next((name for name in names if str(name).strip().lower() in ("_id", "id") and name not in parts), None)
    ids = [row.get(name) for row in rows]
    if name is None or any(map(is_missing, ids)):
        return texts, list(range(len(rows)))
    return texts, [one if isinstance(one, str | int) else str(one) for one in ids]


def _column(names: list[str], path: str | Path) -> str:
    """The column of documents in a table with these columns."""
    texts, _ = columns_of_texts(names, None, (), path)
    lower = {str(name).strip().lower(): name for name in reversed(names)}
    usual = next((lower[name] for name in TEXT_NAMES if name in lower), None)
    found = texts[0] if len(texts) == 1 else usual
    if found is None:
        raise ValueError(
            f"Documents must be in one column, or in one that is called text. Received: {path} with the columns "
            f"{', '.join(map(str, names))}. Rename the column to text, or use --column NAME."
        )
    return found
