"""Splits long texts into overlapping windows."""

import numpy as np

from .examples import fill_rows


def window_starts(length: int, size: int, stride: int) -> list[int]:
    """Computes the starts of windows of `size` tokens. The first window that reaches the end of the text is the last.

    length 300, size 100, stride 50 -> 0, 50, 100, 150, 200
    """
    if stride < 1 or size < 1:
        raise ValueError(f"`stride` and the size of the windows must be at least 1. Received: {stride}, {size}.")
    starts = [0]
    while starts[-1] + size < length:
        starts.append(starts[-1] + min(size, stride))
    return starts


def most_context(starts: list[int], size: int, length: int) -> np.ndarray:
    """Finds the window in which each token has the most context: int32 (length,).

    As in the official code of Devlin et al. 2018, the amount of context is the number of tokens on the left or on the
    right, whichever is smaller, plus 0.01 times the length of the window. On a tie, the first window is used.
    """
    best, best_score = np.zeros(length, np.int32), np.full(length, -np.inf)
    for window, start in enumerate(starts):
        stop = min(start + size, length)
        inside = np.arange(start, stop)
        score = np.minimum(inside - start, stop - 1 - inside) + 0.01 * (stop - start)
        better = score > best_score[start:stop]
        best[start:stop][better], best_score[start:stop][better] = window, score[better]
    return best


def right_padded_rows(info: dict, rows: list[tuple], text: str = "A") -> tuple[dict, np.ndarray]:
    """Puts texts into the tokenizer's template. Padding is always on the right, unlike in `fill_rows`.

    Returns: x, and the column at which the text "A" (or "B") begins in each row, int32 (b,).
    """
    info = {**info, "padding_side": "right"}
    x = fill_rows(info, rows, segments=info["segments"])
    columns = np.zeros(len(rows), dtype=np.int32)
    for number, row in enumerate(rows):
        for item, _ in info["pair" if len(row) == 2 else "single"]:
            if item == text:
                break
            columns[number] += 1 if item not in ("A", "B") else len(row["AB".index(item)])
    return x, columns
