"""Reads columns of data in memory: lists, arrays, and columns of pandas, polars, pyarrow, datasets and tensors."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def values_of(column: Any, what: str = "texts") -> Any:
    """Returns the values of a column as a list, or as an array if it is an array of numbers.

    pandas.Series(["a", "b"], index=[7, 3]) -> ["a", "b"]

    What is not a column, such as a list, a dict or a generator, is returned unchanged.

    Args:
        column: a list, an array, a tensor, or a column of pandas, polars, pyarrow or datasets.
        what: what the column must hold, for the message.

    Raises:
        ValueError: if `column` is a whole table, which Python would read as the names of its columns.
    """
    if isinstance(column, list):
        return _as_lists(column) if column and _holds_texts(column[0]) else column
    if column is None or isinstance(column, (str, bytes, tuple, range)):
        return column
    if isinstance(column, dict) and (what != "texts" or "text" not in column or isinstance(column["text"], tuple)):
        return column
    names = table_names(column)
    if names is not None:
        raise ValueError(
            f"One column must hold the {what}. Received: a {type(column).__name__} with the columns "
            f"{', '.join(map(str, names))}. {_advice(column, names, what)}"
        )
    if hasattr(column, "detach"):  # a tensor of PyTorch
        column = column.detach().cpu().numpy()
    elif not isinstance(column, np.ndarray):
        for method in ("to_pylist", "to_list", "tolist"):  # pyarrow; polars and pandas; arrays of pandas
            if hasattr(column, method) and hasattr(column, "__len__"):
                return _as_lists(getattr(column, method)())
        if hasattr(column, "numpy") and hasattr(column, "shape"):  # a tensor of TensorFlow
            column = column.numpy()
        elif isinstance(column, Sequence) and not isinstance(column, str):  # a column of datasets
            return _as_lists(list(column))
    if _holds_texts(column):
        return [_decoded(value) for value in column.tolist()]
    return column


def _advice(table: Any, names: list, what: str) -> str:
    """Says how to pass a column of a table."""
    if hasattr(table, "features"):
        first, second = (f"dataset['{name}']" for name in ("text", "label"))
    else:
        first, second = (f'df["{name}"]' for name in ("text", "label"))
    if "text" not in names and names:
        first = first.replace("text", str(names[0]))
    if what == "texts":
        return f"Use {first}, for example in fit({first}, {second})."
    return f"Use {second if what == 'targets' and 'label' in names else first}."


def table_names(x: Any) -> list | None:
    """Returns the names of the columns if x is a whole table or data set, and otherwise None."""
    if isinstance(x, np.ndarray):
        return None if x.dtype.names is None else list(x.dtype.names)
    if isinstance(x, dict) and "text" in x:
        return list(x)
    if isinstance(x, (list, tuple, str)) or (hasattr(x, "features") and not hasattr(x, "__len__")):
        return None  # a data set without a length is a stream of rows or batches
    names = None
    if any(hasattr(x, name) for name in ("schema", "features", "to_pylist")):  # pyarrow, datasets
        names = getattr(x, "column_names", None)
    if names is None and any(hasattr(x, name) for name in ("iloc", "get_column", "__dataframe__", "collect_schema")):
        names = getattr(x, "columns", None)
    if isinstance(names, dict):  # the splits of a `datasets.DatasetDict`
        names = next(iter(names.values()), [])
    return None if names is None or callable(names) else list(names)


def columns_of(table: Any) -> dict[Any, list]:
    """Returns the columns of a table as lists, by name."""
    return {name: values_of(table[name]) for name in table_names(table) or ()}


def _holds_texts(array: Any) -> bool:
    """Whether this is an array of texts or objects, rather than of numbers."""
    return isinstance(array, np.ndarray) and array.ndim > 0 and array.dtype.kind in "OSUT"


def _as_lists(values: list) -> list:
    """Converts arrays in a list to lists: the words of a sentence, for example, in a column of Parquet."""
    return [value.tolist() if isinstance(value, np.ndarray) else value for value in values]


def _decoded(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
