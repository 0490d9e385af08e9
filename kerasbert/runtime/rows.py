"""The rows of requests: token ids of different lengths, which are padded when they are computed together."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """The tokens of a text, a pair or a window, without padding.

    Args:
        token_ids: int32 (n,).
        segment_ids: int32 (n,), or None if all are 0.
        positions: int (p,), the only positions whose outputs are needed, or None for all.
    """

    token_ids: np.ndarray
    segment_ids: np.ndarray | None = None
    positions: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclasses.dataclass(frozen=True, eq=False)
class Job:
    """The rows of a request.

    Args:
        rows: the rows.
        read: function from a list of the outputs of the rows to the answers.
    """

    rows: Sequence[Row]
    read: Callable[[list], Any]

    @property
    def tokens(self) -> int:
        """Number of tokens in all rows."""
        return sum(map(len, self.rows))


def rows_of(x: Mapping[str, np.ndarray], positions: Sequence[np.ndarray] | None = None) -> list[Row]:
    """Takes the padding off a batch of `encode_texts`.

    Args:
        x: a dict of "token_ids" (b, s), "lengths" (b,) or "padding_mask" (b, s), and perhaps "segment_ids" (b, s).
        positions: for each row, the columns of `Row.positions`.
    """
    count, width = x["token_ids"].shape
    if "lengths" in x:
        parts = [slice(0, int(length)) for length in x["lengths"]]
    else:
        parts = [slice(width - int(real), width) for real in x["padding_mask"].sum(axis=1)]
    segments = x.get("segment_ids")
    rows = []
    for number, part in zip(range(count), parts, strict=True):
        chosen = None if positions is None else positions[number] - part.start
        of_row = None if segments is None else segments[number, part]
        rows.append(Row(x["token_ids"][number, part], of_row, chosen))
    return rows


def padded(rows: Sequence[Row], pad_id: int = 0, left: bool = False) -> dict[str, np.ndarray]:
    """Pads rows to the longest: int32 "token_ids", "padding_mask" and "segment_ids", each (b, s).

    Args:
        rows: the rows.
        pad_id: the token id of padding.
        left: whether padding is on the left.
    """
    shape = len(rows), max(map(len, rows))
    x = {"token_ids": np.full(shape, pad_id, "int32")}
    x["padding_mask"], x["segment_ids"] = np.zeros(shape, "int32"), np.zeros(shape, "int32")
    for number, row in enumerate(rows):
        part = slice(shape[1] - len(row), None) if left else slice(len(row))
        x["token_ids"][number, part], x["padding_mask"][number, part] = row.token_ids, 1
        if row.segment_ids is not None:
            x["segment_ids"][number, part] = row.segment_ids
    return x
