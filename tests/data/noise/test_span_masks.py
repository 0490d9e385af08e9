"""Span masks: the fact sheet's worked example, exact budgets, the distribution of lengths, one decision a span."""

import types

import numpy as np
import pytest

from kerasbert.data.noise.corruption import positions_of
from kerasbert.data.noise.noise import MaskableRows, MaskingVocabulary
from kerasbert.data.noise.span_masks import (
    Spans,
    choose_spans,
    geometric_lengths,
    span_boundaries,
    span_ends,
    spans_to_predict,
)
from kerasbert.data.sampling import DYNAMIC, row_draws

pytestmark = pytest.mark.one_backend


def draws_for(rows, draws, seed=0):
    return row_draws(seed, 0, DYNAMIC, 0, rows, draws)


def slow_spans(candidates, starts, count, lengths, draws):
    """One row, as the paper's code goes about it: words one by one, until the budget is used up."""
    words, taken = [], set()
    for place in np.flatnonzero(candidates):
        if starts[place] or not words:
            words.append([])
        words[-1].append(int(place))
    limits = np.rint(np.cumsum(lengths)[:-1] / np.sum(lengths) * 2**32)
    turn = 0
    while len(taken) < count:
        where, how_long, _ = (int(draw) for draw in draws[3 * turn : 3 * turn + 3])
        free = [place for place in np.flatnonzero(candidates) if place not in taken]
        anchor = free[where * len(free) >> 32]
        first = next(number for number, word in enumerate(words) if anchor in word)
        for word in words[first : first + 1 + int(np.searchsorted(limits, how_long, side="right"))]:
            for place in word:
                if len(taken) < count:
                    taken.add(place)
        turn += 1
    return sorted(taken)


def test_lengths_are_geometric_cut_off_at_ten():
    expected = [0.2241, 0.1792, 0.1434, 0.1147, 0.0918, 0.0734, 0.0587, 0.0470, 0.0376, 0.0301]
    lengths = geometric_lengths()
    np.testing.assert_allclose(lengths, expected, atol=5e-5)
    np.testing.assert_allclose(geometric_lengths(0.2, 3), [0.41, 0.328, 0.262], atol=5e-4)
    assert np.dot(lengths, np.arange(1, 11)) == pytest.approx(3.797, abs=5e-4)


def test_budgets():
    assert spans_to_predict(np.array([0, 1, 7, 10, 100, 510]), 0.15).tolist() == [0, 1, 2, 2, 15, 77]


def test_spans_are_those_of_the_slow_way():
    random = np.random.default_rng(0)
    rows, width = 40, 60
    real = np.arange(width) < random.integers(3, width + 1, rows)[:, None]
    candidates = real & (np.arange(width) > 0)
    starts = random.random((rows, width)) < 0.6
    counts = spans_to_predict(candidates.sum(axis=1), 0.3)
    draws = draws_for(rows, 3 * int(counts.max()))
    chosen = choose_spans(candidates, starts, counts, geometric_lengths(), draws)
    for row in range(rows):
        expected = slow_spans(candidates[row], starts[row], counts[row], geometric_lengths(), draws[row])
        assert np.flatnonzero(chosen[row]).tolist() == expected


@pytest.mark.parametrize("rate", [0.01, 0.15, 0.99, 1.0])
def test_exactly_the_budget_is_chosen(rate):
    candidates = np.arange(50) < np.arange(51)[:, None]
    counts = spans_to_predict(candidates.sum(axis=1), rate)
    draws = draws_for(51, 3 * int(counts.max()))
    chosen = choose_spans(candidates, np.ones_like(candidates), counts, geometric_lengths(), draws)
    np.testing.assert_array_equal(chosen.sum(axis=1), counts)
    assert not (chosen & ~candidates).any()


def test_drawn_lengths_have_their_distribution():
    """In rows where one span fits, its length is what was drawn: by chi-square over 20,000 rows."""
    rows, width = 20_000, 200
    candidates = np.ones((rows, width), bool)
    lengths = geometric_lengths()
    draws = draws_for(rows, 30)
    counts = np.full(rows, 10, np.int32)
    limits = np.rint(np.cumsum(lengths)[:-1] * 2**32)
    first = 1 + np.searchsorted(limits, draws[:, 1], side="right")
    chosen = choose_spans(candidates, candidates, counts, lengths, draws)
    anchor = (draws[:, 0].astype(np.uint64) * np.uint64(width) >> np.uint64(32)).astype(int)
    inside = anchor + 10 < width
    for row in np.flatnonzero(inside)[:2000]:
        assert chosen[row, anchor[row] : anchor[row] + first[row]].all()
    found = np.bincount(first, minlength=11)[1:]
    expected = np.array(lengths) * rows
    assert ((found - expected) ** 2 / expected).sum() < 40  # 9 degrees: below once in 1e5
    everywhere = np.bincount(anchor, minlength=width)
    assert ((everywhere - 100) ** 2 / 100).sum() < 300  # 199 degrees


def test_a_phrase_is_masked_whole_half_of_the_time():
    rows, width = 4000, 40
    phrases = np.zeros((rows, width), int)
    phrases[:, 5:9], phrases[:, 9:10], phrases[:, 20:23] = 1, 2, 3
    candidates = np.ones((rows, width), bool)
    counts = np.full(rows, 4, np.int32)
    chosen = choose_spans(candidates, candidates, counts, (1.0,), draws_for(rows, 12), phrases, 1.0)
    assert not (chosen & (phrases == 0)).any()  # eight tokens of phrases, and four are wanted
    whole = [chosen[:, 5:9].all(axis=1), chosen[:, 9], chosen[:, 20:23].all(axis=1)]
    assert np.abs(np.mean(chosen[:, 5:9].all(axis=1)) - 1 / 3) < 0.04  # the first of three phrases uses all
    assert np.any(whole, axis=0).all()
    half = choose_spans(candidates, candidates, np.ones(rows, np.int32), (1.0,), draws_for(rows, 3), phrases, 0.5)
    by_phrase = (half & (phrases > 0)).sum() / rows
    assert by_phrase == pytest.approx(0.5 + 0.5 * 8 / 40, abs=0.03)
    none = choose_spans(candidates, candidates, counts, (1.0,), draws_for(rows, 12), phrases * 0, 1.0)
    assert (none.sum(axis=1) == 4).all()


def test_positions_and_ends():
    chosen = np.array([[0, 1, 0, 1, 1], [0, 0, 0, 0, 0]], bool)
    assert positions_of(chosen, 4).tolist() == [[1, 3, 4, -1], [-1, -1, -1, -1]]
    first, last = span_ends(np.array([[2, 3, 4, 7]], np.int32))
    assert first.tolist() == [[2, 2, 2, 7]] and last.tolist() == [[4, 4, 4, 7]]


@pytest.mark.parametrize(
    ("masked", "left", "right", "offset"),
    [
        # [CLS] at 0: the mask {2, 3, 4, 7} of x is at 3, 4, 5 and 8
        ([3, 4, 5, 8], [2, 2, 2, 7], [6, 6, 6, 9], [0, 1, 2, 0]),
        # two spans that touch, (2, 3) and (4, 5), are one
        ([3, 4, 5, 6], [2, 2, 2, 2], [7, 7, 7, 7], [0, 1, 2, 3]),
        # spans that begin or end the text have no boundary term
        ([1, 2, 10, -1], [-1, -1, -1, -1], [-1, -1, -1, -1], [-1, -1, -1, -1]),
        ([2, -1, -1, -1], [1, -1, -1, -1], [3, -1, -1, -1], [0, -1, -1, -1]),
    ],
)
def test_the_worked_example(masked, left, right, offset):
    text = (np.arange(12) > 0) & (np.arange(12) < 11)
    found = span_boundaries(np.array([masked], np.int32), text[None], 15)
    assert [found[key].tolist() for key in ("span_left", "span_right", "span_offset")] == [[left], [right], [offset]]


def test_a_long_span_has_terms_for_its_first_tokens():
    text = np.ones((1, 12), bool)
    found = span_boundaries(np.arange(2, 8, dtype=np.int32)[None], text, 4)
    assert found["span_offset"].tolist() == [[0, 1, 2, 3, -1, -1]]
    assert found["span_left"].tolist() == [[1, 1, 1, 1, -1, -1]]


# === What takes their place ===


def masked(rows=3000, word_starts=None, **options):
    noise = Spans(max_predictions=6, **options)
    ids = np.tile(np.arange(10, 50, dtype=np.int32), (rows, 1))
    ids[:, 0], ids[:, -1] = 1, 2
    before = ids.copy()
    corpus = types.SimpleNamespace(tokens=np.array([7, 7, 7, 8]))
    vocabulary = MaskingVocabulary(4, 60, (1, 2), corpus, np.ones(60, bool) if word_starts is None else word_starts)
    every = np.ones_like(ids, bool)
    given = MaskableRows(ids, np.full(rows, 40), every, np.arange(40) == 0, 6, vocabulary)
    assert given.text.sum() == rows * 38
    positions, targets = noise(given, draws_for(rows, noise.num_draws(40, 6)))
    assert (positions >= 0).all() and positions.min() > 0 and positions.max() < 39
    np.testing.assert_array_equal(targets, np.take_along_axis(before, positions, axis=1))
    changed = ids != before
    np.put_along_axis(changed, positions, False, axis=1)
    assert not changed.any()
    return np.take_along_axis(ids, positions, axis=1), positions, targets


def kinds(after, targets):
    return np.where(after == 4, 0, np.where(after == targets, 1, 2))


def test_a_span_is_masked_kept_or_replaced_as_a_whole():
    after, positions, targets = masked()
    kind, first = kinds(after, targets), span_ends(positions)[0]
    together = first[:, 1:] == first[:, :-1]
    assert (kind[:, 1:] == kind[:, :-1])[together].all() and together.mean() > 0.4
    heads = np.concatenate([np.ones((len(first), 1), bool), ~together], axis=1)
    shares = np.bincount(kind[heads], minlength=3) / heads.sum()
    np.testing.assert_allclose(shares, [0.8, 0.1, 0.1], atol=0.015)
    noise = after[kind == 2]
    assert set(noise.tolist()) == {7, 8} and np.mean(noise == 7) == pytest.approx(0.75, abs=0.03)


def test_pieces_are_decided_one_by_one():
    after, positions, targets = masked(words=False, longest=1)
    kind, first = kinds(after, targets), span_ends(positions)[0]
    together = first[:, 1:] == first[:, :-1]
    agree = (kind[:, 1:] == kind[:, :-1])[together].mean()
    assert agree == pytest.approx(0.8**2 + 0.1**2 + 0.1**2, abs=0.05)
    np.testing.assert_allclose(np.bincount(kind.ravel()) / kind.size, [0.8, 0.1, 0.1], atol=0.015)
    counts = np.bincount(positions.ravel(), minlength=40)[1:39]
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 90  # 37 degrees: every token alike


def test_words_are_whole_but_for_the_last():
    starts = np.zeros(50, bool)
    starts[::3] = True  # ids 12, 15, ... begin words of three pieces
    after, positions, targets = masked(word_starts=starts, longest=1)
    words = np.cumsum(starts)[targets]
    for row in range(500):
        inner = words[row][(targets[row] >= 12) & (targets[row] < 48)]  # the first and the last word have one piece
        sizes = np.bincount(inner)
        assert (sizes[sizes > 0] < 3).sum() <= 1  # the one that the budget cuts
