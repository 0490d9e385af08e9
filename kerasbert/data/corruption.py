"""Corruption of token rows, vectorised over the batch.

Three choices make an objective: a noise shape (`choose_tokens`, `choose_words`), a rendering of the inputs
(`replace_tokens`) and one of the targets (the original tokens at the chosen positions). Randomness comes in as raw
32-bit draws, a fixed number a row, so that rows can be made anywhere in any order.
"""

import numpy as np

_MAX_KEY = np.uint32(0xFFFFFFFF)


def num_to_predict(lengths: np.ndarray, rate: float, slots: int) -> np.ndarray:
    """How many tokens a row predicts: min(slots, max(1, round(rate * length))), exact halves to the even side.

    Length counts the special tokens. rate 0.15, slots 77: 3, 10, 20, 30, 128, 512 -> 1, 2, 3, 4, 19, 77
    """
    return np.clip(np.rint(lengths * rate), 1, slots).astype(np.int32)


def choose_tokens(candidates: np.ndarray, counts: np.ndarray, slots: int, draws: np.ndarray) -> np.ndarray:
    """Positions of `counts` candidates a row, every subset equally likely; ascending, -1 in unused slots.

    candidates [[0, 1, 1, 0]], counts [2], slots 3 -> [[1, 2, -1]]

    Args:
        candidates: bool (b, s).
        counts: int (b,); a row with fewer candidates gives all of them.
        slots: width of the result, at least `counts`.
        draws: uint32 (b, s + 1).
    """
    rows, length = candidates.shape
    bits = max(1, (length - 1).bit_length())
    low = np.uint32((1 << bits) - 1)
    # One sort key a token: random bits above, the position below. The position is scrambled by a number of the row,
    # so that equal random bits favour neither of two positions.
    scramble = draws[:, length : length + 1] & low
    keys = draws[:, :length] & ~low
    keys |= np.arange(length, dtype=np.uint32) ^ scramble
    np.maximum(keys, candidates.astype(np.uint32) - np.uint32(1), out=keys)  # others get the largest key
    lowest = keys if slots >= length else np.partition(keys, slots - 1, axis=1)[:, :slots]
    lowest = np.sort(lowest, axis=1)
    counts = np.minimum(counts, np.count_nonzero(candidates, axis=1))
    positions = (lowest & low) ^ scramble
    positions[np.arange(lowest.shape[1]) >= counts[:, None]] = _MAX_KEY
    positions.sort(axis=1)
    positions = positions.view(np.int32)  # the largest key is -1
    if slots > length:
        positions = np.pad(positions, ((0, 0), (0, slots - length)), constant_values=-1)
    return positions


def choose_words(
    candidates: np.ndarray, starts: np.ndarray, counts: np.ndarray, slots: int, draws: np.ndarray
) -> np.ndarray:
    """Positions of whole words in random order, at most `counts` a row; ascending, -1 in unused slots.

    A word is a candidate that starts one and the candidates up to the next start. A word that would exceed the count
    is skipped, not cut, so fewer may result.

    Args:
        candidates: bool (b, s).
        starts: bool (b, s): a piece here begins a word; the first candidate of a row does in any case.
        counts, slots, draws: as in `choose_tokens`.
    """
    rows, length = candidates.shape
    order = np.cumsum(candidates, axis=1, dtype=np.int32)
    starts = candidates & (starts | (order == 1))
    words = np.cumsum(starts, axis=1, dtype=np.int32) - 1  # of every candidate; -1 before the first
    num_words = words[:, -1] + 1
    flat = (words + np.arange(rows, dtype=np.int32)[:, None] * length)[candidates]
    sizes = np.bincount(flat, minlength=rows * length).reshape(rows, length)

    bits = max(1, (length - 1).bit_length())
    low = np.uint32((1 << bits) - 1)
    columns = np.arange(length, dtype=np.uint32)
    scramble = draws[:, length : length + 1] & low
    keys = (draws[:, :length] & ~low) | (columns ^ scramble)
    keys[columns >= num_words[:, None]] = _MAX_KEY
    keys.sort(axis=1)
    # Words in random order, one column a place; behind the last word every size is 0.
    shuffled = (((keys & low) ^ scramble) & low).T.astype(np.int64)
    row = np.arange(rows)
    taken = np.zeros((rows, length), dtype=bool)
    left = counts.astype(np.int64).copy()
    for place in range(int(num_words.max(initial=0))):
        word = shuffled[place]
        size = sizes[row, word]
        fits = (size <= left) & (place < num_words)
        taken[row, word] |= fits
        left -= size * fits
        if not left.any():
            break
    chosen = candidates & np.take_along_axis(taken, np.maximum(words, 0), axis=1)
    return _positions(chosen, slots)


def _positions(chosen: np.ndarray, slots: int) -> np.ndarray:
    """bool (b, s) -> the positions of True, int32 (b, slots), -1 in unused slots."""
    rows, columns = np.nonzero(chosen)
    counts = np.count_nonzero(chosen, axis=1)
    slot = np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]
    positions = np.full((len(chosen), slots), -1, dtype=np.int32)
    positions[rows, slot] = columns
    return positions


def replace_tokens(
    token_ids: np.ndarray,
    positions: np.ndarray,
    draws: np.ndarray,
    mask_id: int,
    vocabulary_size: int,
    shares: tuple[float, float] = (0.8, 0.1),
) -> np.ndarray:
    """Masks, keeps or swaps the tokens at `positions`, in place, and returns what was there; 0 in unused slots.

    Each token by itself becomes the mask with probability `shares[0]`, stays with `shares[1]`, and is otherwise
    drawn from the entire vocabulary, special tokens and itself included.

    Args:
        token_ids: int32 (b, s), contiguous; changed in place.
        positions: int32 (b, p), -1 in unused slots.
        draws: uint32 (b, p).
    """
    rows, length = token_ids.shape
    flat = positions + np.arange(0, rows * length, length, dtype=np.int64)[:, None]
    used = positions >= 0
    flat, draws = flat[used], draws[used]
    tokens = token_ids.reshape(-1)
    originals = tokens[flat]
    targets = np.zeros(positions.shape, dtype=np.int32)
    targets[used] = originals
    keep_from, swap_from = (round(share * 2**32) for share in (shares[0], shares[0] + shares[1]))
    tokens[flat] = np.where(draws < keep_from, np.int32(mask_id), originals)
    swap = draws >= swap_from
    # One draw decides, and what it exceeds the threshold by is uniform again: that picks the token.
    excess = draws[swap].astype(np.uint64) - np.uint64(swap_from)
    tokens[flat[swap]] = excess * np.uint64(vocabulary_size) // np.uint64(max(1, 2**32 - swap_from))
    return targets
