"""BERT's masking rule, by the fact sheet's worked examples, by a slow implementation, and by frequencies."""

import numpy as np
import pytest

from kerasbert.data.noise.corruption import choose_tokens, num_to_predict, replace_tokens
from kerasbert.data.noise.masking import Tokens, WholeWords
from kerasbert.data.noise.word_selection import choose_words
from kerasbert.data.sampling import DYNAMIC, row_draws

from .masked_rows import apply

pytestmark = pytest.mark.one_backend

MASK, CLS, SEP, VOCABULARY = 4, 2, 3, 50


def draws_for(rows, length, slots=0, step=0):
    return row_draws(0, step, DYNAMIC, 0, rows, -(-length // 2) + 1 + slots)


@pytest.mark.parametrize(
    ("length", "slots", "count"),
    [(3, 77, 1), (10, 77, 2), (20, 77, 3), (30, 77, 4), (128, 20, 19), (512, 77, 77), (512, 20, 20), (0, 77, 1)],
)
def test_num_to_predict(length, slots, count):
    assert num_to_predict(np.array([length]), 0.15, slots).tolist() == [count]
    assert count == min(slots, max(1, int(round(length * 0.15))))


def slow_keys(draws, row, length, count):
    """The order of `choose_tokens` and `choose_words`, one number at a time."""
    bits = max(1, (length - 1).bit_length())
    half = -(-length // 2)
    low = (1 << bits) - 1
    random = draws[row, :half].view(np.uint16)
    return [int(random[place]) << bits | (place ^ (int(draws[row, half]) & low)) for place in range(count)]


def slow_words(candidates, starts, count):
    groups = []
    for position in np.flatnonzero(candidates):
        if groups and not starts[position]:
            groups[-1].append(int(position))
        else:
            groups.append([int(position)])
    return groups


def test_choices_equal_a_slow_implementation():
    random = np.random.default_rng(0)
    for step in range(150):
        rows, length = int(random.integers(1, 6)), int(random.integers(2, 40))
        slots = int(random.integers(1, length + 3))
        candidates = random.random((rows, length)) < random.random()
        starts = random.random((rows, length)) < random.random()
        counts = random.integers(0, slots + 1, rows)
        draws = draws_for(rows, length, step=step)
        tokens = choose_tokens(candidates, counts, slots, draws)
        words = choose_words(candidates, starts, counts, slots, draws)
        assert tokens.dtype == words.dtype == np.int32 and tokens.shape == words.shape == (rows, slots)
        for row in range(rows):
            keys = slow_keys(draws, row, length, length)
            places = sorted(np.flatnonzero(candidates[row]).tolist(), key=keys.__getitem__)[: counts[row]]
            assert tokens[row].tolist() == sorted(places) + [-1] * (slots - len(places))
            groups = slow_words(candidates[row], starts[row], counts[row])
            keys = slow_keys(draws, row, length, len(groups))
            taken = []
            for group in sorted(range(len(groups)), key=keys.__getitem__):
                if len(taken) + len(groups[group]) <= counts[row]:
                    taken += groups[group]
            assert words[row].tolist() == sorted(taken) + [-1] * (slots - len(taken))


def test_every_subset_is_equally_likely():
    rows = 60_000
    candidates = np.tile([False, True, True, False, True, True, False], (rows, 1))
    positions = choose_tokens(candidates, np.full(rows, 2), 3, draws_for(rows, 7))
    assert (positions[:, 2] == -1).all()
    pairs, counts = np.unique(positions[:, :2], axis=0, return_counts=True)
    assert pairs.tolist() == [[1, 2], [1, 4], [1, 5], [2, 4], [2, 5], [4, 5]]
    assert abs(counts - rows / 6).max() < 5 * np.sqrt(rows / 6)


def test_equal_random_bits_favor_no_place():
    rows, length = 40_000, 4
    draws = draws_for(rows, length).copy()
    draws[:, :2] = 0x00070007
    chosen = choose_tokens(np.ones((rows, length), bool), np.ones(rows, int), 1, draws)[:, 0]
    assert abs(np.bincount(chosen, minlength=4) - rows / 4).max() < 5 * np.sqrt(rows / 4)


def test_words_that_do_not_fit_are_skipped_not_cut():
    # One word of three pieces and one of one piece; two tokens to predict: only the short word ever fits.
    candidates = np.tile([False, True, True, True, True, False], (200, 1))
    starts = np.tile([False, True, False, False, True, False], (200, 1))
    positions = choose_words(candidates, starts, np.full(200, 2), 2, draws_for(200, 6))
    assert (positions == [4, -1]).all()
    both = choose_words(candidates, starts, np.full(200, 4), 4, draws_for(200, 6))
    assert (both == [1, 2, 3, 4]).all()
    three = choose_words(candidates, starts, np.full(200, 3), 3, draws_for(200, 6))
    assert {tuple(row) for row in three.tolist()} == {(1, 2, 3), (4, -1, -1)}


def test_a_piece_at_the_start_of_b_joins_the_last_word_of_a():
    # [CLS] a b [SEP] ##c d [SEP]: front truncation left B with ##c, and [SEP] does not separate words.
    candidates = np.tile([False, True, True, False, True, True, False], (300, 1))
    starts = np.tile([True, True, True, True, False, True, True], (300, 1))
    positions = choose_words(candidates, starts, np.full(300, 2), 2, draws_for(300, 7))
    assert {tuple(row) for row in positions.tolist()} == {(2, 4), (1, 5)}


def test_replacements_by_the_draw():
    tokens = np.arange(10, 20, dtype=np.int32).reshape(1, 10)
    thresholds = np.array([[0, 0.8 - 1e-9, 0.8, 0.9 - 1e-9, 0.9, 0.95, 1 - 1e-9, 0]]) * 2**32
    positions = np.array([[0, 1, 2, 3, 4, 5, 9, -1]], dtype=np.int32)
    draws = np.ceil(thresholds).astype(np.uint32)
    targets = replace_tokens(tokens, positions, draws, MASK, VOCABULARY)
    assert targets.tolist() == [[10, 11, 12, 13, 14, 15, 19, 0]]
    assert tokens.tolist() == [[MASK, MASK, 12, 13, 0, VOCABULARY // 2, 16, 17, 18, VOCABULARY - 1]]


@pytest.mark.parametrize("shares", [(0.8, 0.1), (1.0, 0.0), (0.8, 0.0), (0.8, 0.2), (0.0, 1.0), (0.0, 0.0)])
def test_shares_of_masked_kept_and_random(shares):
    rows, length = 200, 102
    tokens = np.full((rows, length), 30, dtype=np.int32)
    positions = np.tile(np.arange(1, 101, dtype=np.int32), (rows, 1))
    targets = replace_tokens(tokens, positions, row_draws(0, 0, 0, 0, rows, 100)[:, :100], MASK, VOCABULARY, shares)
    assert (targets == 30).all()
    assert (tokens[:, [0, -1]] == 30).all()
    counts = np.bincount(tokens[:, 1:101].ravel(), minlength=VOCABULARY)
    number = rows * 100
    random = (1 - sum(shares)) / VOCABULARY
    expected = np.full(VOCABULARY, random)
    expected[MASK] += shares[0]
    expected[30] += shares[1]
    deviation = np.sqrt(number * expected * (1 - expected)) + 1e-9
    assert (abs(counts - number * expected) <= 5 * deviation).all()


def sentences(rows, length, random):
    tokens = random.integers(5, VOCABULARY, (rows, length)).astype(np.int32)
    lengths = random.integers(4, length + 1, rows).astype(np.int32)
    for row, size in enumerate(lengths):
        tokens[row, [0, size // 2, size - 1]] = [CLS, SEP, SEP]
        tokens[row, size:] = 0
    return tokens, lengths


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_token_masking(whole_words, left):
    tokens, lengths = sentences(300, 60, np.random.default_rng(0))
    if left:
        tokens = np.stack([np.roll(row, 60 - size) for row, size in zip(tokens, lengths, strict=True)])
    word_starts = np.arange(VOCABULARY) % 3 > 0 if whole_words else None
    noise = (WholeWords if whole_words else Tokens)(max_predictions=9)
    columns, inputs = np.arange(60), tokens.copy()
    real = columns >= 60 - lengths[:, None] if left else columns < lengths[:, None]
    positions, targets = apply(noise, inputs, (CLS, SEP), real, word_starts, MASK)
    used = positions >= 0
    rows, slots = np.nonzero(used)
    np.testing.assert_array_equal(tokens[rows, positions[used]], targets[used])
    assert (targets[~used] == 0).all()
    assert not np.isin(targets[used], [CLS, SEP, 0]).any()
    counts = num_to_predict(lengths, 0.15, 9)
    assert (used.sum(axis=1) <= counts).all() if whole_words else (used.sum(axis=1) == counts).all()
    assert used.sum() > 0.9 * counts.sum()
    untouched = np.ones(tokens.shape, bool)
    untouched[rows, positions[used]] = False
    np.testing.assert_array_equal(inputs[untouched], tokens[untouched])
    assert 0.7 < (inputs[rows, positions[used]] == MASK).mean() < 0.9
    steps = np.diff(np.where(used, positions, 60 + np.arange(9)), axis=1)
    assert (steps > 0).all()


def test_rows_without_candidates():
    words = WholeWords(max_predictions=2)
    tokens = np.array([[0, 0, 0, 0], [CLS, SEP, 0, 0], [CLS, 9, SEP, 0]], dtype=np.int32)
    real = np.arange(4) < np.array([0, 2, 3])[:, None]
    for noise in (Tokens(max_predictions=2), words):
        positions, targets = apply(noise, tokens.copy(), (CLS, SEP), real)
        assert positions.tolist() == [[-1, -1], [-1, -1], [1, -1]]
        assert targets.tolist() == [[0, 0], [0, 0], [9, 0]]
    positions, _ = apply(words, tokens[:2].copy(), (CLS, SEP), real[:2])
    assert (positions == -1).all()


def test_every_position_is_as_likely_as_any():
    rows, length = 20_000, 21
    tokens = np.full((rows, length), 9, dtype=np.int32)
    tokens[:, 0], tokens[:, 20] = CLS, SEP
    positions, _ = apply(Tokens(max_predictions=3), tokens, (CLS, SEP))
    counts = np.bincount(positions.ravel(), minlength=length)
    assert counts[[0, 20]].tolist() == [0, 0]
    assert abs(counts[1:20] - rows * 3 / 19).max() < 5 * np.sqrt(rows * 3 / 19)


def test_too_long_rows_are_refused():
    with pytest.raises(ValueError, match="at most 32,768"):
        choose_tokens(np.ones((1, 40_000), bool), np.array([1]), 1, draws_for(1, 40_000))
