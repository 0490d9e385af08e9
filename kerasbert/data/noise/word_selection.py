"""Selects whole words and n-grams of words, vectorized over the batch."""

from typing import NamedTuple

import numpy as np

from .corruption import LARGEST_KEY, drawn_count, sort_keys

WINDOW = 6  # words per selected word in `choose_in_windows`: int(1 / 0.15)


def choose_words(
    candidates: np.ndarray, starts: np.ndarray, counts: np.ndarray, slots: int, draws: np.ndarray
) -> np.ndarray:
    """Selects whole words at random, with at most `counts` tokens per row.

    A word consists of a candidate that begins a word, and the following candidates up to the next one that begins a
    word. Words are tried in random order. A word that would exceed the count is skipped, so that fewer tokens may be
    selected.

    Args:
        candidates: bool (b, s).
        starts: bool (b, s), True where a token begins a word. The first candidate of a row always begins one.
        counts, slots, draws: as in `choose_tokens`.
    """
    rows = len(candidates)
    if not candidates.any():
        return np.full((rows, slots), -1, dtype=np.int32)
    words = _words(candidates, starts)
    sizes, num_words = words.sizes, words.counts
    order = _shuffled_words(words, candidates.shape[1], draws)

    # Select words of all rows at once while they fit. After the first word that does not fit, select words one by one.
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
    """Selects int(rate * words + u) whole words per row, where u is uniform in [0, 1).

    Words that do not fit into the slots are left out.

    Args:
        rate: share of the words to select.
        draws: uint32 (b, at least s // 2 + 3).
        candidates, starts, slots: as in `choose_words`.
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
    borders: np.ndarray | None = None,
) -> np.ndarray:
    """Selects n-grams of whole words, where n is drawn for each n-gram.

    The words of a row are tried in random order as the first word of an n-gram. An n-gram that would exceed the row's
    count is shortened at its end. An n-gram that contains a selected word is skipped, so n-grams may be adjacent but
    never overlap (Lan et al. 2019, section 4.1, as implemented in their code).

    Args:
        shares: probabilities of n = 1, 2, .... An n-gram is truncated at the end of its row.
        draws: uint32 (b, at least s // 2 + 2 + s).
        borders: bool (b, s), True at tokens that begin a text. An n-gram is truncated before them.
        candidates, starts, counts, slots: as in `choose_words`.
    """
    rows, length = candidates.shape
    if not candidates.any():
        return np.full((rows, slots), -1, dtype=np.int32)
    words = _words(candidates, starts)
    texts = _texts(words, borders, len(shares))
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
        for inside in range(1, largest):
            n = np.where((inside < n) & (texts[word + inside] != texts[word]), inside, n)
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


def choose_in_windows(
    candidates: np.ndarray,
    starts: np.ndarray | None,
    counts: np.ndarray,
    slots: int,
    shares: tuple[float, ...],
    draws: np.ndarray,
    anywhere: bool = False,
    borders: np.ndarray | None = None,
) -> np.ndarray:
    """Selects one n-gram of whole words per window, as in DeBERTa's official code.

    A row is divided into windows from left to right. The window of an n-gram of n words has 6 n words, and the n-gram
    begins at a random word of the window. The next window begins where both the window and the n-gram have ended. All
    n-grams together have more tokens than `counts`, so words are taken from the left until there are enough tokens. The
    last word is always taken as a whole. As a result, the end of a long row is never selected.

    Args:
        starts: as in `choose_words`, or None to treat every token as a word.
        shares: probabilities of n = 1, 2, ....
        draws: uint32 (b, at least s // 2 + 2 + 2 * ceil(s / 6)).
        anywhere: whether the words of the n-grams are taken in random order instead of from the left.
        borders: as in `choose_ngrams`.
        candidates, counts, slots: as in `choose_words`.
    """
    if not candidates.any():
        return np.full((len(candidates), slots), -1, dtype=np.int32)
    words = _words(candidates, candidates if starts is None else starts)
    length, longest = candidates.shape[1], len(shares)
    texts = _texts(words, borders, longest + WINDOW * longest)
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
            word = words.offsets[row] + cursor[row] + shift
            fits = (inside < n) & (shift + inside < left)
            fits &= texts[np.minimum(word + inside, len(texts) - 1)] == texts[np.minimum(word, len(texts) - 1)]
            found[(word + inside)[fits]] = True
        cursor[row] += np.maximum(window, np.minimum(shift + n, left))
    order = np.flatnonzero(found)
    rows = np.repeat(np.arange(len(candidates)), words.counts)
    if anywhere:
        ranks = np.empty(len(words.sizes), dtype=np.int64)
        shuffled = _shuffled_words(words, length, draws)[np.arange(length) < words.counts[:, None]]
        ranks[shuffled] = np.arange(len(shuffled))
        order = order[np.argsort(ranks[order])]
    taken = _first_words(words, order, rows[order], counts, slots)
    return _positions_of(words, taken, candidates.shape, slots)


def _first_words(words, order: np.ndarray, rows: np.ndarray, counts: np.ndarray, slots: int) -> np.ndarray:
    """Whether each word is taken, bool: if the words of its row before it in `order` have fewer tokens than `counts`.

    Args:
        words: the `_Words`.
        order: indices of the candidates, row by row.
        rows: the row of each of them.
        counts, slots: as in `choose_words`.
    """
    before = np.cumsum(words.sizes[order]) - words.sizes[order]
    first = np.searchsorted(rows, np.arange(len(counts)))
    before -= np.append(before, 0)[first][rows]
    taken = np.zeros(len(words.sizes), dtype=bool)
    taken[order[(before < counts[rows]) & (before + words.sizes[order] <= slots)]] = True
    return taken


class _Words(NamedTuple):
    """The words of all rows, numbered consecutively. Word k of a row has the number `offsets[row] + k`."""

    flat: np.ndarray  # positions of all candidates in the flattened array
    sizes: np.ndarray  # number of candidates in each word
    offsets: np.ndarray  # (b,), number of the first word of each row
    counts: np.ndarray  # (b,), number of words in each row


def _words(candidates: np.ndarray, starts: np.ndarray) -> _Words:
    flat = np.flatnonzero(candidates)
    ends = np.cumsum(np.count_nonzero(candidates, axis=1))
    begins = starts.reshape(-1).take(flat)
    begins[np.append(0, ends[:-1][ends[:-1] < len(flat)])] = True
    begins = np.flatnonzero(begins)
    offsets = np.searchsorted(begins, np.append(0, ends))
    return _Words(flat, np.diff(begins, append=len(flat)), offsets[:-1], np.diff(offsets))


def _texts(words: _Words, borders: np.ndarray | None, more: int) -> np.ndarray:
    """The number of the text of each word, followed by `more` zeros. Without borders, all are zeros."""
    found = np.zeros(len(words.sizes) + more, dtype=np.int64)
    if borders is not None:
        first = words.flat[np.cumsum(words.sizes) - words.sizes]
        found[: len(first)] = np.cumsum(borders.reshape(-1))[first]
    return found


def _shuffled_words(words: _Words, length: int, draws: np.ndarray) -> np.ndarray:
    """The numbers of the words of each row in random order, (b, length). Entries after the last word are undefined."""
    keys, low, scramble = sort_keys(length, draws)
    keys[np.arange(length) >= words.counts[:, None]] = LARGEST_KEY
    keys.sort(axis=1)
    return words.offsets[:, None] + ((keys & low) ^ scramble)


def _positions_of(words: _Words, taken: np.ndarray, shape: tuple[int, int], slots: int) -> np.ndarray:
    """Positions of the tokens of the words where `taken` is True: int32 (b, slots)."""
    row, column = np.divmod(words.flat[np.repeat(taken, words.sizes)], shape[1])
    counts = np.bincount(row, minlength=shape[0])
    positions = np.full((shape[0], slots), -1, dtype=np.int32)
    positions[row, np.arange(len(row)) - (np.cumsum(counts) - counts)[row]] = column
    return positions
