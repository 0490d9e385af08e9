"""Packs several short sequences into one row, which reduces padding."""

import numpy as np

from ..sampling import PLAN, raw_bits


def pack(
    lengths: np.ndarray, capacity: int, seed: int = 0, most: int | None = None, block: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Packs sequences into rows by best-fit decreasing: longest first, each into the row where it leaves least space.

    The algorithm works on the number of sequences of each length, not on single sequences, so it packs millions of them
    quickly. The seed determines how sequences of the same length are assigned to rows.

    lengths 5 3 4 2 6, capacity 10 -> rows of lengths [6, 4] and [5, 3, 2]

    Args:
        lengths: int (n,), each from 1 to `capacity`.
        capacity: maximum number of tokens per row.
        seed: seed of the random assignment.
        most: maximum number of sequences per row.
        block: number of the block of the corpus; each block has its own random numbers.

    Returns: the indices of the sequences, ordered by row, int64 (n,); and where each row begins in that array,
        followed by its length, int64 (rows + 1,).
    """
    lengths = np.asarray(lengths)
    if len(lengths) and (lengths.min() < 1 or lengths.max() > capacity):
        raise ValueError(
            f"Sequences to be packed must have 1 to {capacity} tokens. Received: {lengths.min()} to {lengths.max()}. "
            "Split longer sequences, and leave out empty ones."
        )
    counts = np.bincount(lengths, minlength=capacity + 1)
    by_length = _shuffled_by_length(lengths, capacity, seed, block)
    next_of = np.cumsum(counts) - counts  # index in `by_length` of the next sequence of each length
    packed, sizes = [], []
    for contents, rows in _best_fit(counts, capacity, most or capacity):
        columns = []
        for length in contents:
            columns.append(by_length[next_of[length] : next_of[length] + rows])
            next_of[length] += rows
        packed.append(np.stack(columns, axis=1).reshape(-1))
        sizes.append(np.full(rows, len(contents)))
    if not packed:
        return np.zeros(0, np.int64), np.zeros(1, np.int64)
    return np.concatenate(packed), np.append(0, np.cumsum(np.concatenate(sizes)))


def _shuffled_by_length(lengths: np.ndarray, capacity: int, seed: int, block: int) -> np.ndarray:
    """Indices of the sequences, sorted by length, in random order within each length."""
    # Each key is one integer with the length, random bits and the index, because integers are sorted fastest.
    number_bits = np.uint64(max(1, len(lengths)).bit_length())
    random_bits = np.uint64(64 - capacity.bit_length()) - number_bits
    keys = raw_bits(seed, PLAN, len(lengths), block) >> (np.uint64(64) - random_bits)
    keys |= lengths.astype(np.uint64) << random_bits
    keys <<= number_bits
    keys |= np.arange(len(lengths), dtype=np.uint64)
    keys.sort()
    return (keys & ((np.uint64(1) << number_bits) - np.uint64(1))).astype(np.int64)


def _best_fit(counts: np.ndarray, capacity: int, most: int) -> list[tuple[tuple[int, ...], int]]:
    """For every kind of row, the lengths of its sequences and the number of such rows."""
    open_rows: list[list] = [[] for _ in range(capacity + 1)]  # (contents, rows) by the space that is left
    has_rows = np.zeros(capacity + 1, dtype=bool)
    done = []

    def put(contents: tuple[int, ...], rows: int, space: int) -> None:
        if space == 0 or len(contents) == most:
            done.append((contents, rows))
        else:
            open_rows[space].append((contents, rows))
            has_rows[space] = True

    for length in np.flatnonzero(counts)[::-1].tolist():
        left = int(counts[length])
        while left:
            space = length + int(np.argmax(has_rows[length:]))
            if has_rows[space]:
                contents, rows = open_rows[space].pop()
                has_rows[space] = bool(open_rows[space])
            else:
                contents, rows, space = (), left, capacity
            # Each further sequence of this length leaves less space, so the same row remains the best fit.
            each = min(space // length, most - len(contents))
            full = min(rows, left // each)
            rest = 0 if full == rows else min(each, left - full * each)
            if full:
                put(contents + (length,) * each, full, space - each * length)
            if rest:
                put(contents + (length,) * rest, 1, space - rest * length)
            untouched = rows - full - (rest > 0)
            if untouched and contents:
                open_rows[space].append((contents, untouched))
                has_rows[space] = True
            left -= full * each + rest
    for rows_with_space in open_rows:
        done += rows_with_space
    return done


def lay_out(values: np.ndarray, sizes: np.ndarray, width: int, fill: int = 0) -> np.ndarray:
    """Splits a flat array of values into rows of the given sizes, padded with `fill` to `width`.

    values 1 2 3 4 5, sizes 2 3, width 4 -> [[1, 2, 0, 0], [3, 4, 5, 0]]
    """
    rows = np.full((len(sizes), width), fill, dtype=values.dtype)
    rows[np.arange(width) < np.asarray(sizes)[:, None]] = values
    return rows


def packed_keys(lengths: np.ndarray, row_sizes: np.ndarray, width: int, most: int, prefix: str = "") -> dict:
    """The keys "sequence_ids", "position_ids" and "first_positions" of a batch of packed rows.

    lengths 2 3 1, the first two sequences in one row and the third in another, width 6, most 2 ->
    sequence_ids [[1, 1, 2, 2, 2, 0], [1, 0, ...]], position_ids [[0, 1, 0, 1, 2, 0], [0, ...]],
    first_positions [[0, 2], [0, -1]]

    Args:
        lengths: int (n,), number of tokens of each sequence, ordered by row.
        row_sizes: int (rows,), number of sequences in each row.
        width: number of tokens per row, including padding.
        most: number of slots per row in "first_positions". Unused slots are -1.
        prefix: prefix of each key, such as "decoder_".
    """
    ends = np.cumsum(lengths)
    rows = np.append(0, np.cumsum(row_sizes))
    totals = np.append(0, ends)[rows]
    number = np.arange(1, len(lengths) + 1) - np.repeat(rows[:-1], row_sizes)
    places = np.arange(len(lengths) and ends[-1]) - np.repeat(ends - lengths, lengths)
    first = ends - lengths - np.repeat(totals[:-1], row_sizes)
    totals = np.diff(totals)
    return {
        prefix + "sequence_ids": lay_out(np.repeat(number, lengths).astype(np.int32), totals, width),
        prefix + "position_ids": lay_out(places.astype(np.int32), totals, width),
        prefix + "first_positions": lay_out(first.astype(np.int32), row_sizes, most, fill=-1),
    }
