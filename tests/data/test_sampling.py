import numpy as np
import pytest

from kerasbert.data.sampling import DYNAMIC, STATIC, Uniform, row_draws, shuffled

pytestmark = pytest.mark.one_backend


def test_draws_of_a_row_depend_on_seed_step_stream_and_row_alone():
    draws = row_draws(5, 7, DYNAMIC, 0, 10, 30)
    assert draws.shape == (10, 32) and draws.dtype == np.uint32
    np.testing.assert_array_equal(row_draws(5, 7, DYNAMIC, 3, 4, 30), draws[3:7])
    for other in (
        row_draws(6, 7, DYNAMIC, 0, 10, 30),
        row_draws(5, 8, DYNAMIC, 0, 10, 30),
        row_draws(5, 7, STATIC, 0, 10, 30),
    ):
        assert not (other == draws).any()


def test_draws_are_those_of_philox():
    # Pinned: a run that resumes with another version of numpy must find the same rows.
    assert row_draws(1, 2, 3, 4, 1, 4)[0, :4].tolist() == [2720608085, 2487826673, 3264234236, 1235163590]
    assert shuffled(np.arange(8), 8, 1, 2).tolist() == [0, 4, 5, 2, 6, 1, 3, 7]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 17, 97, 1000, 4097])
def test_shuffled_is_a_permutation(size):
    order = shuffled(np.arange(size), size, seed=3, number=4)
    assert sorted(order.tolist()) == list(range(size))
    some = np.array([size - 1, 0, size // 2])
    np.testing.assert_array_equal(shuffled(some, size, 3, 4), order[some])
    if size > 16:
        assert (order != shuffled(np.arange(size), size, 3, 5)).any()
        assert (order != shuffled(np.arange(size), size, 4, 4)).any()


def test_shuffled_puts_everything_everywhere():
    size, orders = 11, 1500
    counts = np.zeros((size, size))
    follows = np.zeros((size, size))
    for number in range(orders):
        order = shuffled(np.arange(size), size, 0, number)
        counts[np.arange(size), order] += 1
        follows[order[:-1], order[1:]] += 1
    expected = orders / size
    assert abs(counts - expected).max() < 5 * np.sqrt(expected)
    expected = orders / size  # 10 neighbors of 110 ordered pairs
    assert abs(follows[~np.eye(size, dtype=bool)] - expected).max() < 5 * np.sqrt(expected)


def test_shuffled_is_quick_in_large_plans():
    places = np.arange(32) + 10**11
    order = shuffled(places, 10**12, 0, 0)
    assert len(set(order.tolist())) == 32 and order.min() >= 0 and order.max() < 10**12
    assert abs(np.diff(order)).min() > 1000


def test_uniform():
    draw = Uniform(1, 3)
    values = draw(20_000)
    assert values.min() >= 0 and values.max() < 1
    assert abs(values.mean() - 0.5) < 0.01
    counts = np.bincount(draw.below(np.full(30_000, 3)), minlength=3)
    assert len(counts) == 3 and abs(counts - 10_000).max() < 500
    assert abs(draw.bits(20_001).mean() - 0.5) < 0.02 and len(draw.bits(65)) == 65
