"""Corruption of token rows, vectorised over the batch.

Three choices make an objective: a noise shape (`choose_tokens`, `choose_words`), a rendering of the inputs
(`replace_tokens`) and one of the targets (the original tokens at the chosen positions). Randomness comes in as raw
32-bit draws, a fixed number a row, so that rows can be made anywhere in any order.
"""

from dataclasses import dataclass

import numpy as np

_LARGEST = np.uint32(0xFFFFFFFF)


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
        counts: int (b,), at most `slots`; a row with fewer candidates gives all of them.
        slots: width of the result.
        draws: uint32 (b, at least s // 2 + 2).
    """
    length = candidates.shape[1]
    keys, low, scramble = _sort_keys(length, draws)
    np.copyto(keys, _LARGEST, where=~candidates)
    if slots < length:
        keys.partition(slots - 1, axis=1)
        keys = keys[:, :slots].copy()
    keys.sort(axis=1)
    unused = (np.arange(keys.shape[1]) >= counts[:, None]) | (keys == _LARGEST)
    positions = (keys & low) ^ scramble
    positions[unused] = _LARGEST
    positions.sort(axis=1)
    positions = positions.view(np.int32)  # the largest key is -1
    return positions if slots <= length else np.pad(positions, ((0, 0), (0, slots - length)), constant_values=-1)


def choose_words(
    candidates: np.ndarray, starts: np.ndarray, counts: np.ndarray, slots: int, draws: np.ndarray
) -> np.ndarray:
    """Positions of whole words in random order, at most `counts` a row; ascending, -1 in unused slots.

    A word is a candidate that starts one and the candidates up to the next start. A word that would exceed the count
    is skipped, not cut, and the next one tried, so fewer may result.

    Args:
        candidates: bool (b, s).
        starts: bool (b, s): a piece here begins a word; the first candidate of a row does in any case.
        counts, slots, draws: as in `choose_tokens`.
    """
    rows, length = candidates.shape
    positions = np.full((rows, slots), -1, dtype=np.int32)
    flat = np.flatnonzero(candidates)
    if not len(flat):
        return positions
    # Words of all rows in one line: sizes[offsets[row] + number of the word in its row].
    ends = np.cumsum(np.count_nonzero(candidates, axis=1))
    begins = starts.reshape(-1).take(flat)
    begins[np.append(0, ends[:-1][ends[:-1] < len(flat)])] = True
    begins = np.flatnonzero(begins)
    sizes = np.diff(begins, append=len(flat))
    offsets = np.searchsorted(begins, np.append(0, ends))
    num_words, offsets = np.diff(offsets), offsets[:-1]

    keys, low, scramble = _sort_keys(length, draws)
    keys[np.arange(length) >= num_words[:, None]] = _LARGEST
    keys.sort(axis=1)
    order = offsets[:, None] + ((keys & low) ^ scramble)  # the words of a row, shuffled; nonsense behind the last

    # Words are taken while they fit, all rows at once; from the first that does not fit, one by one.
    row = np.arange(rows)
    first = np.minimum(order[:, :slots], len(sizes) - 1)
    sums = np.cumsum(sizes[first], axis=1)
    fits = (sums <= counts[:, None]) & (np.arange(first.shape[1]) < num_words[:, None])
    taken = np.zeros(len(sizes), dtype=bool)
    taken[first[fits]] = True
    place = np.count_nonzero(fits, axis=1)
    left = counts - np.where(place > 0, sums[row, place - 1], 0)
    while len(row := row[(left[row] > 0) & (place[row] < num_words[row])]):
        word = order[row, place[row]]
        fit = sizes[word] <= left[row]
        taken[word[fit]] = True
        left[row] -= sizes[word] * fit
        place[row] += 1

    row, column = np.divmod(flat[np.repeat(taken, sizes)], length)
    counts = np.bincount(row, minlength=rows)
    positions[row, np.arange(len(row)) - (np.cumsum(counts) - counts)[row]] = column
    return positions


def _sort_keys(length: int, draws: np.ndarray) -> tuple[np.ndarray, np.uint32, np.ndarray]:
    """One key a place of a row to sort by, uint32: 16 random bits, and the place below them.

    The place is scrambled with a number of the row, so that of two places with equal random bits either may come
    first. Returns the keys, and mask and scramble to read the places off: `(keys & mask) ^ scramble`.
    """
    bits = max(1, (length - 1).bit_length())
    if bits > 15:
        raise ValueError(f"Rows to be masked must have at most 32768 tokens. Received: {length}.")
    half = -(-length // 2)
    low = np.uint32((1 << bits) - 1)
    scramble = draws[:, half : half + 1] & low
    keys = draws[:, :half].view(np.uint16)[:, :length].astype(np.uint32)
    keys <<= np.uint32(bits)
    keys ^= np.arange(length, dtype=np.uint32)
    keys ^= scramble
    return keys, low, scramble


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
    flat = positions + np.arange(0, rows * length, length)[:, None]
    used = positions >= 0
    flat, draws = flat[used], draws[used]
    tokens = token_ids.reshape(-1)
    originals = tokens.take(flat)
    targets = np.zeros(positions.shape, dtype=np.int32)
    targets[used] = originals
    keep_from, swap_from = round(shares[0] * 2**32), round((shares[0] + shares[1]) * 2**32)
    replaced = np.where(draws < keep_from, np.int32(mask_id), originals)
    swap = np.flatnonzero(draws >= swap_from)
    # One draw decides, and what it exceeds the threshold by is uniform again: that picks the token.
    excess = draws[swap].astype(np.uint64) - np.uint64(swap_from)
    replaced[swap] = excess * np.uint64(vocabulary_size) // np.uint64(max(1, 2**32 - swap_from))
    tokens[flat] = replaced
    return targets


@dataclass(frozen=True)
class TokenMasking:
    """BERT's rule: hide `rate` of a row's tokens, special tokens excepted, or of its words.

    Args:
        mask_id: the token that hides others.
        vocabulary_size: random tokens come from [0, vocabulary_size).
        special_ids: tokens that are never hidden.
        rate: share of the row's length to predict.
        slots: most tokens to predict a row.
        word_starts: bool (vocabulary,), to hide whole words; None hides pieces.
        shares: of hidden tokens that become the mask, and that stay.
    """

    mask_id: int
    vocabulary_size: int
    special_ids: tuple[int, ...]
    slots: int
    rate: float = 0.15
    word_starts: np.ndarray | None = None
    shares: tuple[float, float] = (0.8, 0.1)

    def num_draws(self, length: int) -> int:
        """32-bit draws a row needs: half a one for each place, one to scramble, one for each slot."""
        return -(-length // 2) + 1 + self.slots

    def __call__(self, token_ids: np.ndarray, lengths: np.ndarray, draws: np.ndarray, left_padding: bool = False):
        """Corrupts int32 `token_ids` (b, s) in place.

        Args:
            lengths: (b,), tokens of each row, special tokens included.
            draws: uint32 (b, at least `num_draws(s)`).
            left_padding: rows end, rather than begin, with their tokens.

        Returns: positions and targets, int32 (b, slots).
        """
        length = token_ids.shape[1]
        columns = np.arange(length, dtype=np.int32)
        candidates = columns >= length - lengths[:, None] if left_padding else columns < lengths[:, None]
        for special in self.special_ids:
            candidates &= token_ids != special
        counts = num_to_predict(lengths, self.rate, self.slots)
        if self.word_starts is None:
            positions = choose_tokens(candidates, counts, self.slots, draws)
        else:
            positions = choose_words(candidates, self.word_starts.take(token_ids), counts, self.slots, draws)
        choices = draws[:, self.num_draws(length) - self.slots : self.num_draws(length)]
        targets = replace_tokens(token_ids, positions, choices, self.mask_id, self.vocabulary_size, self.shares)
        return positions, targets
