"""Deletion of words, the noise of TSDAE."""

import numpy as np


def kept_tokens(text: np.ndarray, starts: np.ndarray, draws: np.ndarray, rate: float) -> np.ndarray:
    """Selects the tokens that are left when each word is deleted with probability `rate` (arXiv 2104.06979, section 3).

    If all words of a row were deleted, one of them is kept, each with the same probability.

    words A B C D E, draws .7 .2 .61 .6 .1, rate .6 -> A C

    Args:
        text: bool (b, s), False at special tokens and padding, which are always kept.
        starts: bool (b, s), True where a token begins a word. The first token of the text always begins one.
        draws: float (b, s + 1) in [0, 1): for each token, of which those at the starts of words are used, and one for
            the word that is kept if there is no other.
        rate: probability that a word is deleted.

    Returns: bool (b, s).
    """
    columns = np.arange(text.shape[1])
    starts = text & (starts | (columns == np.argmax(text, axis=1)[:, None]))
    first = np.maximum.accumulate(np.where(starts, columns, 0), axis=1)  # where the word of each token begins
    kept = starts & (draws[:, :-1] > rate)
    words = np.cumsum(starts, axis=1)
    last = (draws[:, -1:] * words[:, -1:]).astype(np.int64) + 1  # the number of a word, counted from 1
    kept |= starts & (words == last) & ~kept.any(axis=1, keepdims=True)
    return np.take_along_axis(kept, first, axis=1) | ~text


def without_others(token_ids: np.ndarray, kept: np.ndarray, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
    """Moves the kept tokens of each row to the left. Returns them, int32 (b, s), and their number, int32 (b,).

    5 6 7 8, kept 1 0 0 1, pad_id 0 -> 5 8 0 0

    Args:
        token_ids: int32 (b, s).
        kept: bool (b, s).
        pad_id: the padding token.
    """
    order = np.argsort(~kept, axis=1, kind="stable")
    lengths = kept.sum(axis=1, dtype=np.int32)
    moved = np.take_along_axis(token_ids, order, axis=1)
    return np.where(np.arange(moved.shape[1]) < lengths[:, None], moved, np.int32(pad_id)), lengths
