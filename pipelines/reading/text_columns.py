"""Reads the examples of embedders and rerankers: rows of texts, with a label or without one."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

from kerasbert.retrieval import Collection, read_beir
from kerasbert.retrieval.evaluation import is_beir

from .cells import is_missing, list_of, text_of, written_out
from .examples import Examples
from .labeled import Columns
from .tables import Reading, read_rows

# Names of the column of labels, most likely first, and of columns that hold neither texts nor labels.
LABELS = ("label", "labels", "score", "scores", "similarity", "relevance", "class")
IDS = ("id", "_id", "idx", "index", "ids")


@dataclass(frozen=True)
class Searches(Examples):
    """The queries of a collection in BEIR format. x are their texts, y the ids of the relevant documents.

    Args:
        collection: the documents and queries.
    """

    collection: Collection | None = None


def read_searches(folder: str | Path, split: str = "test", limit: int | None = None) -> Searches:
    """Reads the queries of a collection that have relevant documents."""
    found = read_beir(folder, split)
    names = found.judged[:limit]
    found = replace(found, relevant={query: found.relevant[query] for query in names})
    relevant = [[one for one, grade in found.relevant[query].items() if grade > 0] for query in names]
    return Searches([found.queries[query] for query in names], relevant, collection=found)


def read_text_columns(
    path: str | Path,
    columns: Columns | None = None,
    texts: tuple[str, ...] = (),
    reading: Reading | None = None,
    limit: int | None = None,
) -> Examples:
    """Reads rows of texts: pairs, triplets, a text with its class, or a query with a list of documents.

    All columns are texts, in their order, but for those that are called id, and the label. In tables without a header,
    `texts` and `columns.label` are numbers from 0.

    Args:
        path: a table (CSV, TSV, JSON, JSONL or Parquet), or a data set on the hub.
        columns: the name of the label, and of the first and second text. Default of the label: a name of LABELS.
        texts: the names of the columns of texts. A name may occur twice, as SimCSE needs it.
        reading: encoding and format.
        limit: use at most so many rows.

    Returns: examples whose x are tuples of texts, or (query, [documents]), and whose y are numbers, lists of numbers,
        names, or all None.
    """
    asked, reading = columns or Columns(), reading or Reading()
    if asked.are_numbers or any(name.isdecimal() for name in texts):
        reading = replace(reading, header=False)
    rows = list(read_rows(path, reading))
    if not rows:
        raise ValueError(f"{path} has no rows.")
    asked = asked.among(rows[0])
    texts = texts or tuple(name for name in (asked.text, asked.pair) if name is not None)
    names, label = columns_of_texts(list(rows[0]), asked.label, texts, path)
    rows = _with_lists(rows, names)
    x, y = [], []
    for number, row in enumerate(rows[:limit], start=1):
        x.append(tuple(_text(row, name, path, number) for name in names))
        y.append(None if label is None else _label(row, label, path, number))
    if label is not None and not all(isinstance(one, (float, list)) for one in y):
        y = [one if isinstance(one, list) else _name(one) for one in y]
    reading.say_columns(path, names, label)
    return Examples(_checked_lists(x, names, path), y)


def columns_of_texts(
    names: list[str], label: str | None, texts: tuple[str, ...], path: str | Path
) -> tuple[list[str], str | None]:
    """Returns the names of the columns of texts in a table, and of its label if it has one.

    Args:
        names: the names of all columns.
        label, texts: those that are given; () for all but ids and the label.
        path: the table, for error messages.
    """
    missing = next((name for name in (*texts, *filter(None, [label])) if name not in names), None)
    if missing is not None:
        raise ValueError(f"{path} has no column {missing!r}. It has: {', '.join(map(str, names))}.")
    lower = {str(name).strip().lower(): name for name in reversed(names)}
    label = label or next((lower[name] for name in LABELS if name in lower and lower[name] not in texts), None)
    found = list(texts) or [name for name in names if name != label and str(name).strip().lower() not in IDS]
    if not found:
        raise ValueError(f"{path} has no column of texts. It has: {', '.join(map(str, names))}. Use --text-columns.")
    return found, label


def _with_lists(rows: list[dict], names: list[str]) -> list[dict]:
    """Converts the columns whose cells are all lists of texts that a table such as CSV stores as text."""
    for name in names:
        cells = [written_out(row.get(name)) for row in rows]
        if all(isinstance(cell, list) and all(isinstance(text, str) for text in cell) for cell in cells):
            rows = [{**row, name: cell} for row, cell in zip(rows, cells, strict=True)]
    return rows


def _text(row: dict, name: str, path, number: int) -> str | list[str]:
    value = row.get(name)
    if isinstance(value, (list, tuple)) or hasattr(value, "tolist"):
        found = list_of(row, name, path, number, "documents")
        if not found or not all(text.strip() for text in found):
            raise ValueError(
                f"Documents must be texts that are not empty. Received: {path} row {number}, column {name!r}: "
                f"{value!r:.60}. Correct or drop the row."
            )
        return found
    return text_of(row, name, path, number)


def _label(row: dict, name: str, path, number: int) -> float | str | list[float]:
    value = written_out(row.get(name))
    value = value.tolist() if hasattr(value, "tolist") else value
    try:
        found = [float(one) for one in value] if isinstance(value, (list, tuple)) else float(value)
        finite = all(map(math.isfinite, found if isinstance(found, list) else [found]))
    except (TypeError, ValueError):
        found, finite = value, not isinstance(value, (list, tuple, dict)) and not is_missing(value)
    if not finite:
        raise ValueError(
            f"Every row needs a label, which is a name, a finite number or a list of them. Received: {path} row "
            f"{number}, column {name!r}: {row.get(name)!r:.40}. Correct or drop the row."
        )
    return found


def _name(label):
    return f"{label:g}" if isinstance(label, float) else str(label)


def _checked_lists(x: list[tuple], names: list[str], path) -> list[tuple]:
    """Checks that lists of documents are the second of two columns, in all rows."""
    kinds = {tuple(isinstance(text, list) for text in texts) for texts in x}
    if len(kinds) > 1 or (any(next(iter(kinds))) and next(iter(kinds)) != (False, True)):
        raise ValueError(
            "Rows must hold texts, or all of them a query and a list of documents. Received: "
            f"{path} with lists in some of the columns {', '.join(names)}."
        )
    return x


def expanded(examples: Examples, path: str | Path = "") -> Examples:
    """Converts (query, [documents]) to (query, document, ...), for models that read a fixed number of texts.

    Raises:
        ValueError: if lists have different lengths.
    """
    if not isinstance(examples.x[0][-1], list):
        return examples
    lengths = [len(documents) for _, documents in examples.x]
    wrong = next((number for number, length in enumerate(lengths) if length != lengths[0]), None)
    if wrong is not None:
        raise ValueError(
            f"Lists of documents must have equal lengths for an embedder. Received: {path} with {lengths[0]} documents "
            f"in row 1, but {lengths[wrong]} in row {wrong + 1}."
        )
    return Examples([(query, *documents) for query, documents in examples.x], examples.y)


def read_texts_or_searches(
    path: str | Path, columns: Columns, texts: tuple[str, ...], reading: Reading, limit: int | None, split: str = "test"
) -> Examples:
    """Reads held-out examples: a folder in BEIR format, or a table."""
    if Path(path).is_dir() and is_beir(path):
        return read_searches(path, split, limit)
    return read_text_columns(path, columns, texts, reading, limit)
