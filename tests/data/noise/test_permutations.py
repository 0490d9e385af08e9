"""Spans, orders and ranks: the worked example, the distributions, and a loop that follows the rules word by word."""

import numpy as np
import pytest

from kerasbert.data.noise.corruption import positions_of
from kerasbert.data.noise.permutations import SpanTargets, order_ranks, random_order
from kerasbert.data.sampling import row_draws

pytestmark = pytest.mark.one_backend


def draws(rows, count, seed=0):
    return row_draws(seed, 0, 0, 0, rows, count)[:, :count]


def test_the_worked_example():
    """Tokens a b c SEP; b and c are hidden, and stand first and last but one in the order."""
    hidden, special = np.array([[0, 1, 1, 0]], bool), np.array([[0, 0, 0, 1]], bool)
    queries, keys = order_ranks(hidden, special, np.array([[2, 0, 3, 1]], "int32"))
    assert queries.tolist() == [[0, 0, 3, 2]] and keys.tolist() == [[-1, 0, 3, 1]]
    assert queries.dtype == keys.dtype == np.int32
    unseen = queries[0][:, None] <= keys[0]
    assert unseen.astype(int).tolist() == [[0, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 0], [0, 0, 1, 0]]


def test_positions_ascend_and_unused_slots_are_minus_one():
    found = positions_of(np.array([[0, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]], bool), 3)
    assert found.tolist() == [[1, 3, -1], [-1, -1, -1], [0, 1, 2]] and found.dtype == np.int32


def reference(starts, raw, spans, goal):
    """One row as the sheet tells it, with the same random numbers."""
    length, chosen, left, cursor, turn = len(starts), set(), goal, 0, 0
    shares = np.array([1 / n for n in range(1, spans.longest + 1)])
    while cursor < length and left > 0:
        u, v = raw[2 * turn] / 2**32, raw[2 * turn + 1] / 2**32
        turn += 1
        n = 1 + int((np.cumsum(shares) / shares.sum() <= u).sum())
        n = n if spans.whole_words else min(n, left)
        context = n * spans.partial
        before = int(v * context)
        begin = cursor + before
        while begin < length and not starts[begin]:
            begin += 1
        end = begin + n
        if spans.whole_words:
            end = begin
            for _ in range(n):
                end += 1
                while end < length and not starts[end]:
                    end += 1
        if end >= length:
            break
        end = min(end, begin + left)
        chosen |= set(range(begin, end))
        left -= end - begin
        cursor = end + context - before
    return chosen, left


@pytest.mark.parametrize("whole_words", [False, True])
def test_spans_are_those_of_a_loop(whole_words):
    for length, goal, partial in ((97, 16, 6), (40, 3, 6), (23, 11, 1), (64, 40, 2), (9, 2, 7)):
        spans = SpanTargets(partial, whole_words=whole_words)
        starts = np.random.default_rng(length).random((50, length)) < 0.6
        raw = draws(50, spans.num_draws(length, goal), seed=length)
        found = spans(starts, goal, raw)
        assert (found.sum(axis=1) == min(goal, length)).all()
        for row in range(50):
            chosen, left = reference(starts[row], raw[row], spans, goal)
            assert chosen <= set(np.flatnonzero(found[row]))
            assert found[row].sum() == len(chosen) + left


def test_lengths_of_spans_and_their_share():
    """p(n) proportional to 1 / n for 1 to 5, mean 2.19; K = 6 makes one in seven of a long block."""
    spans = SpanTargets()
    length, goal = 7_000, 1_000
    raw = draws(60, spans.num_draws(length, goal))
    found = spans(np.ones((60, length), bool), goal, raw)
    walked = found[:, :5_000]  # before the walk may have ended, and behind it pieces are made up for
    edges = np.diff(np.pad(walked, ((0, 0), (1, 1))).astype(int), axis=1)
    sizes = (np.nonzero(edges == -1)[1] - np.nonzero(edges == 1)[1])[np.nonzero(edges == 1)[1] > 0]
    shares = np.bincount(np.minimum(sizes, 6), minlength=7)[1:6] / len(sizes)
    # Spans may touch (no context between): 1 in 36 or fewer.
    np.testing.assert_allclose(shares, [0.4380, 0.2190, 0.1460, 0.1095, 0.0876], atol=0.02)
    assert abs(walked.mean() - 1 / 7) < 0.003
    short = spans(np.ones((200, 256), bool), 43, draws(200, spans.num_draws(256, 43), seed=1))
    assert (short.sum(axis=1) == 43).all()
    assert short.mean(axis=0)[20:236].std() < 0.05  # all over the block


def test_pieces_that_are_made_up_are_anywhere():
    """No word begins anywhere, so there are no spans: three of ten, every place alike."""
    spans = SpanTargets()
    found = spans(np.zeros((20_000, 10), bool), 3, draws(20_000, spans.num_draws(10, 3)))
    assert (found.sum(axis=1) == 3).all()
    np.testing.assert_allclose(found.mean(axis=0), 0.3, atol=0.015)


def test_orders_are_permutations_and_every_one_as_likely():
    orders = random_order(4, 4, draws(24_000, 4))
    assert orders.dtype == np.int32 and (np.sort(orders, axis=1) == np.arange(4)).all()
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(counts) == 24 and abs(counts / 1_000 - 1).max() < 0.15


def test_chunks_have_one_permutation_and_follow_each_other():
    order = random_order(6, 3, draws(50, 3))
    assert (order[:, 3:] == order[:, :3] + 3).all()
    assert (np.sort(order[:, :3], axis=1) == np.arange(3)).all() and len(np.unique(order, axis=0)) == 6
