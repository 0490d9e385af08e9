"""What each position of RetroMAE's decoder attends to: another random part of the row for every position."""

import numpy as np

from .corruption import num_to_predict
from .word_selection import choose_words

MOST_MASKS = 256  # per row, in the official code


def visible_positions(hidden: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Says which positions each position attends to: all but those that are hidden from it, itself, and padding.

    hidden [[0, 1, 1, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 0]], real [1, 1, 1, 0]
    -> [[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]]

    Args:
        hidden: bool (b, s, s), True at [row, i, j] if j is hidden from i.
        real: bool (b, s), False at padding.

    Returns: bool (b, s, s).
    """
    return ~hidden & real[:, None, :] & ~np.eye(real.shape[1], dtype=bool)


def num_visibility_draws(length: int, most: int = MOST_MASKS) -> int:
    """Number of draws per row that `hidden_positions` needs."""
    return length + min(length, most) * _draws_per_mask(length)


def hidden_positions(
    candidates: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    rate: float,
    draws: np.ndarray,
    most: int = MOST_MASKS,
) -> np.ndarray:
    """Draws the positions that are hidden from each position (Xiao et al. 2022, arXiv 2205.12035, section 3.3).

    For a row of n tokens, min(n, most) masks of whole words are drawn, each of round(rate * n) tokens. Every position
    then draws one of them, with replacement.

    Args:
        candidates: bool (b, s), True at tokens that may be hidden.
        starts: bool (b, s), True where a token begins a word.
        lengths: int (b,), number of tokens per row, including special tokens.
        rate: share of the tokens that are hidden from a position.
        draws: uint32 (b, at least `num_visibility_draws`).
        most: maximum number of masks per row.

    Returns: bool (b, s, s), True at [row, i, j] if j is hidden from i.
    """
    rows, length = candidates.shape
    masks, each = min(length, most), _draws_per_mask(length)
    limits = np.minimum(lengths, masks).astype(np.uint64)
    numbers = ((draws[:, :length] * limits[:, None]) >> np.uint64(32)).astype(np.int64)
    numbers += np.arange(rows)[:, None] * masks
    used, place = np.unique(numbers, return_inverse=True)  # masks that no position draws are not made
    row, mask = np.divmod(used, masks)
    slots = int(num_to_predict(np.array(length), rate, length))
    counts = num_to_predict(lengths[row], rate, slots)
    own = draws[:, length : length + masks * each].reshape(rows, masks, each)[row, mask]
    positions = choose_words(candidates[row], starts[row], counts, slots, own)
    hidden = np.zeros((len(used), length + 1), dtype=bool)
    np.put_along_axis(hidden, positions, True, axis=1)  # unused slots, -1, are in the last column
    return hidden[:, :-1][place.reshape(rows, length)]


def _draws_per_mask(length: int) -> int:
    return length // 2 + 2
