"""Corruption of token rows, vectorised over the batch.

A masking scheme combines a noise shape (`choose_tokens`, `choose_words`, `choose_ngrams`, ...), a rendering of the
inputs (`replace_tokens`) and the targets (the original tokens at the chosen positions). Randomness is passed in as raw
32-bit draws, a fixed number per row, so that rows can be made anywhere in any order. `masking.py` combines these
functions into the masking rules of the papers; `denoising.py` has the noise of encoder-decoders.
"""

from typing import NamedTuple

import numpy as np

_LARGEST = np.uint32(0xFFFFFFFF)
WINDOW = 6  # words of a row per word that a walk masks: int(1 / 0.15)


def num_to_predict(lengths: np.ndarray, rate: float, slots: int) -> np.ndarray:
    """Number of tokens to predict per row: min(slots, max(1, round(rate * length))), exact halves to even.

    The length includes special tokens. rate 0.15, slots 77: 3, 10, 20, 30, 128, 512 -> 1, 2, 3, 4, 19, 77
    """
    return np.clip(np.rint(lengths * rate), 1, slots).astype(np.int32)


def choose_tokens(candidates: np.ndarray, counts: np.ndarray, slots: int, draws: np.ndarray) -> np.ndarray:
    """Positions of `counts` candidates per row, every subset equally likely; ascending, -1 in unused slots.

    candidates [[0, 1, 1, 0]], counts [2], slots 3 -> [[1, 2, -1]]

    Args:
        candidates: bool (b, s).
        counts: int (b,), at most `slots`; for a row with fewer candidates, all of them are chosen.
        slots: width of the result.
        draws: uint32 (b, at least s // 2 + 2).
    """
    length = candidates.shape[1]
    keys, low, scramble = sort_keys(length, draws)
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
    """Positions of randomly chosen whole words, at most `counts` tokens per row; ascending, -1 in unused slots.

    A word is a candidate that starts a word and the candidates up to the next start. Words are tried in random order;
    one that would exceed the count is skipped, not cut, so fewer tokens may be chosen.

    Args:
        candidates: bool (b, s).
        starts: bool (b, s), True where a piece begins a word; the first candidate of a row always does.
        counts, slots, draws: as in `choose_tokens`.
    """
    rows = len(candidates)
    if not candidates.any():
        return np.full((rows, slots), -1, dtype=np.int32)
    words = _words(candidates, starts)
    sizes, num_words = words.sizes, words.counts
    order = _shuffled_words(words, candidates.shape[1], draws)

    # Take words while they fit, for all rows at once; from the first one that does not fit, one by one.
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
    return _positions_of(words, taken, candidates.shape, slots)


def choose_share_of_words(
    candidates: np.ndarray, starts: np.ndarray, rate: float, slots: int, draws: np.ndarray
) -> np.ndarray:
    """Positions of int(rate * words + u) whole words per row, u uniform in [0, 1); ascending, -1 in unused slots.

    Words that do not fit into the slots are left out. This needs one draw more than `choose_tokens`; the other
    arguments are as in `choose_words`.
    """
    if not candidates.any():
        return np.full((len(candidates), slots), -1, dtype=np.int32)
    words = _words(candidates, starts)
    order = _shuffled_words(words, candidates.shape[1], draws)
    wanted = drawn_count(words.counts, rate, draws[:, -(-candidates.shape[1] // 2) + 1])
    first = order[:, : max(1, int(wanted.max()))]
    chosen = np.arange(first.shape[1]) < np.minimum(wanted, words.counts)[:, None]
    sums = np.cumsum(words.sizes[np.where(chosen, first, 0)] * chosen, axis=1)
    taken = np.zeros(len(words.sizes), dtype=bool)
    taken[first[chosen & (sums <= slots)]] = True
    return _positions_of(words, taken, candidates.shape, slots)


def choose_ngrams(
    candidates: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    slots: int,
    shares: tuple[float, ...],
    draws: np.ndarray,
) -> np.ndarray:
    """Positions of n-grams of whole words, n drawn for each n-gram; ascending, -1 in unused slots.

    The first words of the n-grams are drawn in random order. An n-gram that would exceed the row's count loses words
    from its end; one with an already chosen word is skipped, so n-grams may be adjacent but never overlap (Lan et al.
    2019, section 4.1, as implemented in their code).

    Args:
        shares: probabilities of n = 1, 2, ...; an n-gram is cut at the end of its row.
        draws: uint32 (b, at least s // 2 + 2 + s).
        candidates, starts, counts, slots: as in `choose_words`.
    """
    rows, length = candidates.shape
    if not candidates.any():
        return np.full((rows, slots), -1, dtype=np.int32)
    words = _words(candidates, starts)
    order = _shuffled_words(words, length, draws)
    used = -(-length // 2) + 1
    limits = np.round(np.cumsum(shares)[:-1] / np.sum(shares) * 2**32).astype(np.uint64)
    wanted = 1 + np.searchsorted(limits, draws[:, used : used + length].astype(np.uint64), side="right")

    largest = len(shares)
    ends = np.append(0, np.cumsum(words.sizes))
    taken = np.zeros(len(words.sizes) + largest, dtype=bool)
    left = np.array(counts, dtype=np.int64)
    row, place = np.arange(rows), 0
    while len(row := row[(left[row] > 0) & (place < words.counts[row])]):
        word = order[row, place]
        n = np.minimum(wanted[row, place], words.offsets[row] + words.counts[row] - word)
        for _ in range(largest):
            n -= (n > 0) & (ends[word + n] - ends[word] > left[row])
        free = n > 0
        for inside in range(largest):
            free &= ~(taken[word + inside] & (inside < n))
        for inside in range(largest):
            taken[word[free & (inside < n)] + inside] = True
        left[row] -= np.where(free, ends[word + n] - ends[word], 0)
        place += 1
    return _positions_of(words, taken[: len(words.sizes)], candidates.shape, slots)


def choose_on_a_walk(
    candidates: np.ndarray,
    starts: np.ndarray | None,
    counts: np.ndarray,
    slots: int,
    shares: tuple[float, ...],
    draws: np.ndarray,
    anywhere: bool = False,
) -> np.ndarray:
    """Positions of n-grams found by walking from left to right, one in six words; ascending, -1 in unused slots.

    An n-gram of n words begins at a random word of a window of 6 n words; the next window begins after both. This finds
    more tokens than `counts`: words are taken from the left until there are enough, the last one whole, so that the end
    of a long row is never masked (DeBERTa's official code).

    Args:
        starts: as in `choose_words`; None treats every piece as a word.
        shares: probabilities of n = 1, 2, ....
        draws: uint32 (b, at least s // 2 + 2 + 2 * ceil(s / 6)).
        anywhere: take the words that were found in random order instead of from the left.
        candidates, counts, slots: as in `choose_words`.
    """
    if not candidates.any():
        return np.full((len(candidates), slots), -1, dtype=np.int32)
    words = _words(candidates, candidates if starts is None else starts)
    length, longest = candidates.shape[1], len(shares)
    turns = -(-length // WINDOW)
    raw = draws[:, -(-length // 2) + 1 :][:, : 2 * turns].astype(np.uint64)
    limits = np.round(np.cumsum(shares)[:-1] / np.sum(shares) * 2**32).astype(np.uint64)
    sizes = 1 + np.searchsorted(limits, raw[:, :turns], side="right")
    found = np.zeros(len(words.sizes) + longest, dtype=bool)
    row, cursor = np.arange(len(candidates)), np.zeros(len(candidates), dtype=np.int64)
    for turn in range(turns):
        row = row[cursor[row] < words.counts[row]]
        n, left = sizes[row, turn], words.counts[row] - cursor[row]
        window = np.minimum(WINDOW * n, left)
        shift = (raw[row, turns + turn] * window.astype(np.uint64) >> np.uint64(32)).astype(np.int64)
        for inside in range(longest):
            fits = (inside < n) & (shift + inside < left)
            found[(words.offsets[row] + cursor[row] + shift + inside)[fits]] = True
        cursor[row] += np.maximum(window, np.minimum(shift + n, left))
    order = np.flatnonzero(found)
    rows = np.repeat(np.arange(len(candidates)), words.counts)
    if anywhere:
        ranks = np.empty(len(words.sizes), dtype=np.int64)
        shuffled = _shuffled_words(words, length, draws)[np.arange(length) < words.counts[:, None]]
        ranks[shuffled] = np.arange(len(shuffled))
        order = order[np.argsort(ranks[order])]
    # A word is taken while the words before it have fewer tokens than the count.
    before = np.cumsum(words.sizes[order]) - words.sizes[order]
    first = np.searchsorted(rows[order], np.arange(len(candidates)))
    before -= np.append(before, 0)[first][rows[order]]
    taken = np.zeros(len(words.sizes), dtype=bool)
    taken[order[(before < counts[rows[order]]) & (before + words.sizes[order] <= slots)]] = True
    return _positions_of(words, taken, candidates.shape, slots)


def choose_independently(candidates: np.ndarray, rate: float, slots: int, draws: np.ndarray) -> np.ndarray:
    """Positions of candidates, each chosen independently with probability `rate`; ascending, -1 in unused slots.

    A row may have none. If more than `slots` are chosen, the first ones are kept. Draws: uint32 (b, at least s).
    """
    return positions_of(candidates & (draws[:, : candidates.shape[1]] < round(rate * 2**32)), slots)


def choose_by_weight(
    candidates: np.ndarray, weights: np.ndarray, counts: np.ndarray, slots: int, draws: np.ndarray
) -> np.ndarray:
    """Positions of `counts` candidates per row, drawn without replacement in proportion to their weights.

    Ascending, -1 in unused slots; candidates of weight 0 are never chosen. Draws: uint32 (b, at least s).

    Args:
        weights: float (b, s).
    """
    length = candidates.shape[1]
    candidates = candidates & (weights > 0)
    # The smallest exponential waiting times form a weighted sample without replacement (Efraimidis & Spirakis 2006).
    times = -np.log((draws[:, :length] + 0.5) * 2.0**-32)
    times = np.where(candidates, times / np.where(candidates, weights, 1), np.inf)
    order = np.argsort(times, axis=1)[:, :slots]
    chosen = np.zeros(candidates.shape, dtype=bool)
    np.put_along_axis(chosen, order, np.arange(order.shape[1]) < counts[:, None], axis=1)
    return positions_of(chosen & candidates, slots)


def positions_of(chosen: np.ndarray, slots: int) -> np.ndarray:
    """Positions where bool (b, s) is True, the first `slots` per row: int32 (b, slots), ascending, -1 in unused slots.

    [[0, 1, 0, 1]], slots 3 -> [[1, 3, -1]]
    """
    row, column = np.nonzero(chosen)
    counts = np.bincount(row, minlength=len(chosen))
    place = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
    fits = place < slots
    positions = np.full((len(chosen), slots), -1, dtype=np.int32)
    positions[row[fits], place[fits]] = column[fits]
    return positions


def drawn_count(sizes: np.ndarray, rate: float, draws: np.ndarray) -> np.ndarray:
    """int(rate * size + u), u uniform in [0, 1): an integer whose mean is rate * size.

    rate 0.15, size 512 -> 76 or 77, the latter with probability 0.8
    """
    return np.floor(sizes * rate + draws * 2.0**-32).astype(np.int64)


class _Words(NamedTuple):
    """Words of all rows in one flat list: the k-th word of a row has the number `offsets[row] + k`."""

    flat: np.ndarray  # flat positions of the candidates of all rows
    sizes: np.ndarray  # number of candidates of each word
    offsets: np.ndarray  # (b,)
    counts: np.ndarray  # (b,), number of words of each row


def _words(candidates: np.ndarray, starts: np.ndarray) -> _Words:
    flat = np.flatnonzero(candidates)
    ends = np.cumsum(np.count_nonzero(candidates, axis=1))
    begins = starts.reshape(-1).take(flat)
    begins[np.append(0, ends[:-1][ends[:-1] < len(flat)])] = True
    begins = np.flatnonzero(begins)
    offsets = np.searchsorted(begins, np.append(0, ends))
    return _Words(flat, np.diff(begins, append=len(flat)), offsets[:-1], np.diff(offsets))


def _shuffled_words(words: _Words, length: int, draws: np.ndarray) -> np.ndarray:
    """Numbers of each row's words in random order, (b, length); entries after a row's last word are meaningless."""
    keys, low, scramble = sort_keys(length, draws)
    keys[np.arange(length) >= words.counts[:, None]] = _LARGEST
    keys.sort(axis=1)
    return words.offsets[:, None] + ((keys & low) ^ scramble)


def _positions_of(words: _Words, taken: np.ndarray, shape: tuple[int, int], slots: int) -> np.ndarray:
    """Positions of the pieces of some words: (b, slots)."""
    row, column = np.divmod(words.flat[np.repeat(taken, words.sizes)], shape[1])
    counts = np.bincount(row, minlength=shape[0])
    positions = np.full((shape[0], slots), -1, dtype=np.int32)
    positions[row, np.arange(len(row)) - (np.cumsum(counts) - counts)[row]] = column
    return positions


def sort_keys(length: int, draws: np.ndarray) -> tuple[np.ndarray, np.uint32, np.ndarray]:
    """One sort key per position of a row, uint32: 16 random bits, followed by the position.

    The position is scrambled with a random number per row, so that ties between equal random bits are broken at random.
    Returns the keys, and the mask and the scramble that recover the positions: `(keys & mask) ^ scramble`.
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
    random_from: int = 0,
    random_draws: np.ndarray | None = None,
) -> np.ndarray:
    """Masks, keeps or replaces the tokens at `positions` in place, and returns the originals; 0 in unused slots.

    Each token independently becomes the mask with probability `shares[0]`, is kept with probability `shares[1]`, and is
    otherwise replaced by a random id from `random_from` on, which may be the token itself or a special token.

    Args:
        token_ids: int32 (b, s), contiguous; changed in place.
        positions: int32 (b, p), -1 in unused slots.
        draws: uint32 (b, p).
        random_draws: uint32 (b, p), which select the random tokens when `draws` are equal for all pieces of a word.
            Default: derived from `draws`.
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
    if random_draws is None:
        # One draw decides; its excess over the threshold is uniform again and selects the token.
        excess, range_ = draws[swap].astype(np.uint64) - np.uint64(swap_from), max(1, 2**32 - swap_from)
    else:
        excess, range_ = random_draws[used][swap].astype(np.uint64), 2**32
    replaced[swap] = random_from + excess * np.uint64(vocabulary_size - random_from) // np.uint64(range_)
    tokens[flat] = replaced
    return targets
