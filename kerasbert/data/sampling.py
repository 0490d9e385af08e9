"""Random numbers that depend only on where they are used, not on what ran before.

All numbers are derived from the raw bits of Philox, a counter-based generator. They are the same on every machine and
with every version of numpy, and each of them can be computed without computing those before it.
"""

import numpy as np

# Separate streams of random numbers for: masks drawn in every step, masks drawn once for every row, the order of the
# rows in a pass, plans, the choice between the parts of a mixture, and the order of the masks in a row.
DYNAMIC, STATIC, ORDER, PLAN, MIXTURE, SLOTS = range(6)


def _philox(seed: int, step: int, stream: int, count: int = 0) -> np.random.Philox:
    if not 0 <= seed < 2**64:
        raise ValueError(f"`seed` must be an integer of at least 0. Received: {seed}.")
    return np.random.Philox(
        key=np.array([seed, step], dtype=np.uint64), counter=np.array([count, 0, 0, stream], dtype=np.uint64)
    )


def row_draws(seed: int, step: int, stream: int, first: int, rows: int, draws: int) -> np.ndarray:
    """Random integers for `rows` rows of one step, starting at row `first`: uint32 (rows, draws).

    The numbers of a row do not depend on `first`: the generator is keyed by (seed, step), and every row uses a separate
    range of its counter.
    """
    blocks = -(-draws // 8)  # one increment of the Philox counter gives 256 bits
    return (
        _philox(seed, step, stream, first * blocks)
        .random_raw(rows * blocks * 4)
        .view(np.uint32)
        .reshape(rows, blocks * 8)
    )


def raw_bits(seed: int, stream: int, size: int, step: int = 0) -> np.ndarray:
    """The first `size` outputs of one generator, uint64 (size,)."""
    return _philox(seed, step, stream).random_raw(size)


class Uniform:
    """Draws from a uniform distribution, float64 in [0, 1). They do not depend on the version of numpy."""

    def __init__(self, seed: int, stream: int, step: int = 0):
        self._philox = _philox(seed, step, stream)

    def __call__(self, size: int) -> np.ndarray:
        return (self._philox.random_raw(size) >> np.uint64(11)) * 2.0**-53

    def below(self, limit: np.ndarray) -> np.ndarray:
        """Random integers, one in [0, limit) for each element of `limit`, int64."""
        return (self(len(limit)) * limit).astype(np.int64)

    def bits(self, size: int) -> np.ndarray:
        """Random bits, uint8 (size,), each 0 or 1."""
        return np.unpackbits(self._philox.random_raw(-(-size // 64)).view(np.uint8))[:size]


def shuffled(places: np.ndarray, size: int, seed: int, number: int) -> np.ndarray:
    """Applies a random permutation of 0...size-1 to `places`, without computing it for other positions.

    The permutation is a Feistel network over a grid of about sqrt(size) x sqrt(size) cells. A position that it maps to
    `size` or beyond is mapped again until the result is below `size`. `shuffled(np.arange(n), n, ...)` is a permutation
    of 0...n-1.

    Args:
        places: positions in [0, size).
        size: number of positions.
        seed, number: the seed, and the number of the permutation: each pass over a corpus has a different one.

    Returns: int64, in the shape of `places`.
    """
    width = int(np.ceil(np.sqrt(size)))
    height = -(-size // width)
    keys = _philox(seed, number, ORDER).random_raw(12)
    places = np.asarray(places, dtype=np.int64)
    result = places.copy()
    moving = np.arange(len(places))
    while len(moving):
        high, low = np.divmod(result[moving], width)
        for turn in range(0, len(keys), 2):
            high = (high + _scrambled(low, keys[turn]) % np.uint64(height)).astype(np.int64) % height
            low = (low + _scrambled(high, keys[turn + 1]) % np.uint64(width)).astype(np.int64) % width
        result[moving] = high * width + low
        moving = moving[result[moving] >= size]
    return result


def _scrambled(values: np.ndarray, key: np.uint64) -> np.ndarray:
    mixed = (values.astype(np.uint64) + key) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    return mixed ^ (mixed >> np.uint64(32))
