import time

import numpy as np
import pytest

from kerasbert.data.corpus.bin_packing import lay_out, pack, packed_keys

pytestmark = pytest.mark.one_backend


def rows_of(lengths, packed):
    order, starts = packed
    assert sorted(order.tolist()) == list(range(len(lengths)))
    return [np.asarray(lengths)[order[a:b]].tolist() for a, b in zip(starts[:-1], starts[1:], strict=True)]


def test_the_examples():
    assert rows_of([5, 3, 4, 2, 6], pack([5, 3, 4, 2, 6], 10)) == [[6, 4], [5, 3, 2]]
    assert rows_of([3] * 7, pack([3] * 7, 7)) == [[3, 3]] * 3 + [[3]]
    assert rows_of([7, 7], pack([7, 7], 7)) == [[7], [7]]
    assert rows_of([], pack(np.zeros(0, int), 7)) == []
    assert lay_out(np.arange(1, 6), np.array([2, 3]), 4).tolist() == [[1, 2, 0, 0], [3, 4, 5, 0]]
    keys = packed_keys(np.array([2, 3, 1]), np.array([2, 1]), 6, 2)
    assert keys["sequence_ids"].tolist() == [[1, 1, 2, 2, 2, 0], [1, 0, 0, 0, 0, 0]]
    assert keys["position_ids"].tolist() == [[0, 1, 0, 1, 2, 0], [0, 0, 0, 0, 0, 0]]
    assert keys["first_positions"].tolist() == [[0, 2], [0, -1]]
    assert {array.dtype for array in keys.values()} == {np.dtype(np.int32)}


def slow_best_fit(lengths, capacity):
    rooms = []
    for length in sorted(lengths, reverse=True):
        fits = [max_tokens for max_tokens in rooms if max_tokens >= length]
        if fits:
            rooms[rooms.index(min(fits))] -= length
        else:
            rooms.append(capacity - length)
    return sorted(rooms)


@pytest.mark.parametrize("capacity", [9, 50, 301])
def test_rows_are_those_of_best_fit_decreasing(capacity):
    for seed in range(20):
        lengths = np.random.default_rng(seed).integers(1, capacity + 1, 1 + 20 * seed)
        rows = rows_of(lengths, pack(lengths, capacity, seed))
        assert sorted(capacity - sum(row) for row in rows) == slow_best_fit(lengths.tolist(), capacity)


def test_most_sequences_of_a_row():
    lengths = np.random.default_rng(0).integers(1, 9, 1000)
    rows = rows_of(lengths, pack(lengths, 64, most=9))
    assert max(map(len, rows)) == 9 and max(map(sum, rows)) <= 64


def test_rows_are_full_and_making_them_is_fast():
    lengths = np.clip(np.random.default_rng(0).lognormal(5, 0.8, 300_000).astype(int), 3, 512)
    start = time.process_time()
    order, starts = pack(lengths, 512, seed=3)
    spent = time.process_time() - start
    assert lengths.sum() / ((len(starts) - 1) * 512) > 0.99
    assert np.add.reduceat(lengths[order], starts[:-1]).max() <= 512
    assert spent / len(lengths) < 1e-6


def test_the_seed_decides_and_nothing_else():
    lengths = np.random.default_rng(0).integers(1, 30, 500)
    np.testing.assert_array_equal(pack(lengths, 64, 1)[0], pack(lengths, 64, 1)[0])
    assert (pack(lengths, 64, 1)[0] != pack(lengths, 64, 2)[0]).any()


def test_sequences_that_do_not_fit_are_refused():
    for lengths in ([3, 11], [0, 4]):
        with pytest.raises(ValueError, match="must have 1 to 10 tokens"):
            pack(lengths, 10)
