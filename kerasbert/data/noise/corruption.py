"""Functions that select tokens and replace them, vectorized over the batch.

`choose_tokens` and the functions of `word_selection.py` select the tokens to predict, and `replace_tokens` replaces
them in the input. Random numbers are passed in as 32-bit integers, a fixed number per row, so that every row can be
computed independently of the others. `masking.py` combines these functions into the masking rules of the papers.
`denoising.py` does the same for the noise of encoder-decoders.
"""

import numpy as np

LARGEST_KEY = np.uint32(0xFFFFFFFF)


def num_to_predict(lengths: np.ndarray, rate: float, slots: int) -> np.ndarray:
    """Number of tokens to predict per row: min(slots, max(1, round(rate * length))), where 0.5 is rounded to even.

    The length includes special tokens.

    lengths 3, 10, 20, 30, 128, 512, rate 0.15, slots 77 -> 1, 2, 3, 4, 19, 77
    """
    return np.clip(np.rint(lengths * rate), 1, slots).astype(np.int32)


def choose_tokens(candidates: np.ndarray, counts: np.ndarray, slots: int, draws: np.ndarray) -> np.ndarray:
    """Selects `counts` candidates per row. All subsets of that size are equally likely.

    candidates [[0, 1, 1, 0]], counts [2], slots 3 -> [[1, 2, -1]]

    Args:
        candidates: bool (b, s), True at tokens that may be selected.
        counts: int (b,), at most `slots`. In a row with fewer candidates, all of them are selected.
        slots: number of columns in the result.
        draws: uint32 (b, at least s // 2 + 2).

    Returns: positions, int32 (b, slots), ascending, -1 in unused slots. All `choose_` functions return this.
    """
    length = candidates.shape[1]
    keys, low, scramble = sort_keys(length, draws)
    np.copyto(keys, LARGEST_KEY, where=~candidates)
    if slots < length:
        keys.partition(slots - 1, axis=1)
        keys = keys[:, :slots].copy()
    keys.sort(axis=1)
    unused = (np.arange(keys.shape[1]) >= counts[:, None]) | (keys == LARGEST_KEY)
    positions = (keys & low) ^ scramble
    positions[unused] = LARGEST_KEY
    positions.sort(axis=1)
    positions = positions.view(np.int32)  # the largest key is -1
    return positions if slots <= length else np.pad(positions, ((0, 0), (0, slots - length)), constant_values=-1)


def choose_independently(candidates: np.ndarray, rate: float, slots: int, draws: np.ndarray) -> np.ndarray:
    """Selects each candidate independently with probability `rate`.

    No token may be selected in a row. If more than `slots` are selected, only the first ones are kept. `draws` must be
    uint32 (b, at least s).
    """
    return positions_of(candidates & (draws[:, : candidates.shape[1]] < round(rate * 2**32)), slots)


def choose_by_weight(
    candidates: np.ndarray, weights: np.ndarray, counts: np.ndarray, slots: int, draws: np.ndarray
) -> np.ndarray:
    """Samples `counts` candidates per row without replacement, with probabilities proportional to their weights.

    Args:
        weights: float (b, s). Candidates of weight 0 are never selected.
        draws: uint32 (b, at least s).
        candidates, counts, slots: as in `choose_tokens`.
    """
    times = _exponential_times(candidates, weights, draws)
    order = np.argsort(times, axis=1)[:, :slots]
    chosen = np.zeros(candidates.shape, dtype=bool)
    np.put_along_axis(chosen, order, np.arange(order.shape[1]) < counts[:, None], axis=1)
    return positions_of(chosen & (times < np.inf), slots)


def choose_from_batch(
    candidates: np.ndarray, weights: np.ndarray, count: int, slots: int, draws: np.ndarray
) -> np.ndarray:
    """Samples `count` candidates of all rows together, otherwise like `choose_by_weight`.

    A candidate in whose row `slots` were sampled before is passed over.
    """
    times = _exponential_times(candidates, weights, draws)
    places = np.argsort(np.argsort(times, axis=1), axis=1)  # 0 for the first candidate of a row
    times = np.where(places < slots, times, np.inf)
    first = np.argsort(times, axis=None)[:count]
    chosen = np.zeros(candidates.size, dtype=bool)
    chosen[first] = True
    return positions_of(chosen.reshape(candidates.shape) & (times < np.inf), slots)


def _exponential_times(candidates: np.ndarray, weights: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Exponential random times with rates `weights`, and infinity elsewhere.

    The candidates with the smallest times are a weighted sample without replacement (Efraimidis & Spirakis 2006).
    """
    candidates = candidates & (weights > 0)
    times = -np.log((draws[:, : candidates.shape[1]] + 0.5) * 2.0**-32)
    return np.where(candidates, times / np.where(candidates, weights, 1), np.inf)


def positions_of(chosen: np.ndarray, slots: int) -> np.ndarray:
    """The first `slots` positions in each row at which `chosen`, bool (b, s), is True.

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
    """Random integers with mean rate * size: int(rate * size + u), where u is uniform in [0, 1).

    rate 0.15, size 512 -> 76 or 77, the latter with probability 0.8
    """
    return np.floor(sizes * rate + draws * 2.0**-32).astype(np.int64)


def sort_keys(length: int, draws: np.ndarray) -> tuple[np.ndarray, np.uint32, np.ndarray]:
    """Random keys such that sorting them shuffles the positions of a row: 16 random bits, followed by the position.

    The position is combined by XOR with a random number per row, so that ties between the random bits are broken at
    random.

    Args:
        length: s, number of positions.
        draws: uint32 (b, at least s // 2 + 2).

    Returns: keys, uint32 (b, s); and `low` and `scramble`, which recover the positions: `(keys & low) ^ scramble`.
    """
    bits = max(1, (length - 1).bit_length())
    if bits > 15:
        raise ValueError(f"Rows must have at most 32,768 tokens to be corrupted. Received: {length}.")
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
    """Masks, keeps or replaces the tokens at `positions`, in place.

    Each token independently becomes the mask token with probability `shares[0]`, is kept with probability `shares[1]`,
    and otherwise becomes a random token with an id of at least `random_from`, possibly the original token or a special
    token.

    Args:
        token_ids: int32 (b, s), contiguous in memory.
        positions: int32 (b, p), -1 in unused slots.
        draws: uint32 (b, p), which decide what happens to each token.
        mask_id: id of the mask token.
        vocabulary_size: random ids are below it.
        random_draws: uint32 (b, p), which select the random tokens. Pass them if all tokens of a word have the same
            `draws`. Default: derived from `draws`.

    Returns: the original tokens, int32 (b, p), 0 in unused slots.
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
        # The difference between the draw and the threshold is also uniformly distributed, so it can select the token.
        excess, range_ = draws[swap].astype(np.uint64) - np.uint64(swap_from), max(1, 2**32 - swap_from)
    else:
        excess, range_ = random_draws[used][swap].astype(np.uint64), 2**32
    replaced[swap] = random_from + excess * np.uint64(vocabulary_size - random_from) // np.uint64(range_)
    tokens[flat] = replaced
    return targets
