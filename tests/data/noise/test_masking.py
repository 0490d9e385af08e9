"""The masking rules of the papers beyond BERT's: n-grams, counts that are drawn, words that share a decision."""

import numpy as np
import pytest

from kerasbert.data.noise import word_selection
from kerasbert.data.noise.corruption import (
    choose_by_weight,
    choose_independently,
    drawn_count,
    positions_of,
)
from kerasbert.data.noise.masking import Tokens, masking_rule, ngram_shares
from kerasbert.data.noise.noise import albert_word_starts, rare_first_weights
from kerasbert.data.noise.word_selection import choose_in_windows, choose_ngrams, choose_share_of_words
from kerasbert.data.sampling import row_draws

from .masked_rows import MASK, VOCABULARY, apply

pytestmark = pytest.mark.one_backend


def draws_for(rows, size, seed=0):
    return row_draws(seed, 0, 0, 0, rows, size)


def test_shares_of_ngrams():
    assert ngram_shares(3) == pytest.approx((6 / 11, 3 / 11, 2 / 11))
    assert ngram_shares(2) == pytest.approx((2 / 3, 1 / 3))
    assert sum(n * share for n, share in enumerate(ngram_shares(3), start=1)) == pytest.approx(18 / 11)


def slow_ngrams(candidates, starts, count, order, lengths, longest):
    """ALBERT's loop for one row, as the sheet tells it."""
    groups = []
    for place in np.flatnonzero(candidates):
        if starts[place] or not groups:
            groups.append([])
        groups[-1].append(int(place))
    covered, number = set(), 0
    for start, wanted in zip(order, lengths, strict=True):
        if number >= count:
            break
        entries = [sum(groups[start : start + n], []) for n in range(1, longest + 1)]
        n = wanted
        while n and number + len(entries[n - 1]) > count:
            n -= 1
        if n == 0 or covered.intersection(entries[n - 1]):
            continue
        covered.update(entries[n - 1])
        number += len(entries[n - 1])
    return sorted(covered)


def test_ngrams_are_those_of_the_slow_rule():
    random = np.random.default_rng(0)
    rows, length, shares = 400, 41, (0.5, 0.3, 0.2)
    candidates = random.random((rows, length)) < 0.8
    candidates[3] = False
    starts = random.random((rows, length)) < 0.6
    counts = random.integers(0, 12, rows)
    draws = draws_for(rows, 21 + 1 + length)
    positions = choose_ngrams(candidates, starts, counts, 12, shares, draws)
    words = word_selection._words(candidates, starts)
    order = word_selection._shuffled_words(words, length, draws) - words.offsets[:, None]
    for row in range(rows):
        share = draws[row, 22 : 22 + length] * 2.0**-32
        lengths = 1 + (share >= 0.5).astype(int) + (share >= 0.8)
        number = words.counts[row]
        expected = slow_ngrams(candidates[row], starts[row], counts[row], order[row, :number], lengths[:number], 3)
        assert [p for p in positions[row].tolist() if p >= 0] == expected


def slow_walk(candidates, starts, count, sizes, shifts, order=None):
    """DeBERTa's loop for one row; `order` shuffles what it found."""
    groups = []
    for place in np.flatnonzero(candidates):
        if starts[place] or not groups:
            groups.append([])
        groups[-1].append(int(place))
    cursor, found = 0, []
    for n, shift in zip(sizes, shifts, strict=True):
        if cursor >= len(groups):
            break
        window = min(6 * n, len(groups) - cursor)
        begin = cursor + int(shift * window)
        end = min(begin + n, len(groups))
        found += range(begin, end)
        cursor = max(cursor + window, end)
    hidden = []
    for number in found if order is None else [number for number in order if number in found]:
        if len(hidden) >= count:
            break
        hidden += groups[number]
    return sorted(hidden)


@pytest.mark.parametrize("anywhere", [False, True])
def test_walks_are_those_of_a_loop(anywhere):
    random = np.random.default_rng(1)
    rows, length, turns = 300, 41, 7
    candidates = random.random((rows, length)) < 0.9
    candidates[5] = False
    starts, counts = random.random((rows, length)) < 0.6, random.integers(0, 9, rows)
    draws = draws_for(rows, 22 + 2 * turns)
    positions = choose_in_windows(candidates, starts, counts, 20, (0.5, 0.3, 0.2), draws, anywhere)
    words = word_selection._words(candidates, starts)
    order = word_selection._shuffled_words(words, length, draws) - words.offsets[:, None]
    shares = draws[:, 22:] * 2.0**-32
    for row in range(rows):
        sizes = 1 + (shares[row, :turns] >= 0.5).astype(int) + (shares[row, :turns] >= 0.8)
        shuffled = order[row, : words.counts[row]].tolist() if anywhere else None
        expected = slow_walk(candidates[row], starts[row], counts[row], sizes, shares[row, turns : 2 * turns], shuffled)
        assert positions[row][positions[row] >= 0].tolist() == expected


def test_a_walk_leaves_the_end_of_long_rows_alone():
    tokens = np.full((4_000, 512), 9, np.int32)
    rates = {}
    for rule in ("deberta", "deberta_anywhere"):
        noise = masking_rule(rule, ngrams=ngram_shares(3))
        positions, _ = apply(noise, tokens.copy(), ())
        assert positions.shape[1] == 85 and abs((positions >= 0).sum(axis=1).mean() - 77) < 0.5
        rates[rule] = np.bincount(positions[positions >= 0], minlength=512) / len(tokens)
    left, spread = rates["deberta"], rates["deberta_anywhere"]
    # One word in six is found; 77 are enough after some 460.
    assert abs(left[20:400].mean() - 1 / 6) < 0.003 and left[490:].max() < 0.01
    assert abs(spread[20:490].mean() - 77 / 512) < 0.003
    assert abs(spread[20:250].mean() - spread[260:490].mean()) < 0.003


def test_first_words_are_hidden_less_often_by_ngrams():
    rows, length = 20_000, 40
    every = np.ones((rows, length), bool)
    draws = draws_for(rows, 20 + 1 + length)
    positions = choose_ngrams(every, every, np.full(rows, 6), 6, ngram_shares(3), draws)
    rates = np.bincount(positions[positions >= 0], minlength=length) / rows
    assert (positions >= 0).all()
    assert 0.08 < rates[0] < 0.11
    assert abs(rates[4:-4] - 0.15).max() < 0.02
    # One n-gram a row, with room for it: its length follows p(n), but for what the end of the row cuts.
    single = choose_ngrams(every, every, np.full(rows, 3), 3, ngram_shares(3), draws)
    lone = (np.diff(single, axis=1) > 1).all(axis=1)
    assert 0.1 < lone.mean() < 0.5


def test_word_starts_of_albert():
    tokens = ["▁the", "ing", "s", "...", ",", "9", "é", "'s", "'", "<unk>", "[CLS]", "ABC", "▁", "a-b", "–"]
    expected = [True, False, False, False, True, True, True, True, True, True, False, False, True, False, True]
    assert albert_word_starts(tokens).tolist() == expected


def test_drawn_counts_have_the_exact_mean():
    draws = draws_for(40_000, 1)[:, 0]
    counts = drawn_count(np.full(40_000, 512), 0.15, draws)
    assert set(counts.tolist()) == {76, 77}
    assert abs((counts == 77).mean() - 0.8) < 5 * np.sqrt(0.16 / 40_000)
    assert drawn_count(np.array([20, 20]), 0.15, np.array([0, 2**32 - 1], np.uint32)).tolist() == [3, 3]


def test_independent_choice():
    candidates = np.ones((2000, 50), bool)
    candidates[:, 0] = False
    positions = choose_independently(candidates, 0.3, 50, draws_for(2000, 50))
    counts = (positions >= 0).sum(axis=1)
    assert abs(counts.mean() - 49 * 0.3) < 5 * np.sqrt(49 * 0.21 / 2000)
    assert abs(counts.var() - 49 * 0.21) < 1.5
    assert (positions != 0).all()
    assert (choose_independently(candidates, 0.3, 4, draws_for(2000, 50)) == positions[:, :4]).all()
    assert positions_of(np.array([[False, True, False, True]]), 3).tolist() == [[1, 3, -1]]


def test_tokens_by_weight():
    weights = rare_first_weights(np.array([100, 4, 0]))
    assert weights.tolist() == pytest.approx([0.1, 0.5, 0])
    rows = 30_000
    tokens = np.tile([0, 1, 2, 1], (rows, 1))
    one = choose_by_weight(np.ones((rows, 4), bool), weights[tokens], np.ones(rows), 1, draws_for(rows, 4))
    shares = np.bincount(one[:, 0], minlength=4) / rows
    assert shares == pytest.approx([1 / 11, 5 / 11, 0, 5 / 11], abs=0.015)
    three = choose_by_weight(np.ones((rows, 4), bool), weights[tokens], np.full(rows, 4), 4, draws_for(rows, 4))
    assert (three == [0, 1, 3, -1]).all()


def test_rare_tokens_of_distilbert():
    """Its sheet's example: two rows as one, 14 tokens of four kinds beside special ones, three to predict."""
    weights = rare_first_weights(np.array([0, 1, 10, 100, 1_000]), 0.7)
    assert weights.tolist() == pytest.approx([0, 1, 0.19953, 0.03981, 0.00794], abs=1e-5)
    tokens = np.tile([0, 1, 2, 3, 4, 4, 4, 0, 0, 4, 3, 3, 4, 0], (30_000, 1))
    everywhere, draws = np.ones(tokens.shape, bool), draws_for(*tokens.shape)
    first = choose_by_weight(everywhere, weights[tokens], np.ones(len(tokens)), 1, draws)
    shares = np.bincount(first[:, 0], minlength=14) / len(tokens)
    assert shares[[1, 2, 3, 4]] == pytest.approx([0.7360, 0.1469, 0.0293, 0.0058], abs=0.01)
    three = choose_by_weight(everywhere, weights[tokens], np.full(len(tokens), 3), 3, draws)
    assert (three >= 0).all() and (tokens[0][three] > 0).all() and (np.diff(three, axis=1) > 0).all()


def test_a_share_of_words():
    # Words of 2 pieces; 10 words of which 1.5 on average are hidden, whole.
    candidates = np.ones((10_000, 20), bool)
    starts = np.arange(20) % 2 == 0
    positions = choose_share_of_words(candidates, np.tile(starts, (10_000, 1)), 0.15, 6, draws_for(10_000, 12))
    counts = (positions >= 0).sum(axis=1)
    assert set(counts.tolist()) == {2, 4}
    assert abs(counts.mean() - 3) < 0.05
    assert (positions[:, 0] % 2 == 0).all() and (positions[:, 1] == positions[:, 0] + 1).all()


def masked(rule, rows=4000, length=40, word_starts=None, **settings):
    tokens = np.random.default_rng(1).integers(6, VOCABULARY, (rows, length), dtype=np.int32)
    tokens[:, 0], tokens[:, -1] = 0, 2
    inputs = tokens.copy()
    noise = masking_rule(rule, whole_words=word_starts is not None, **settings)
    positions, targets = apply(noise, inputs, (0, 2), word_starts=word_starts)
    return tokens, inputs, positions, targets


def test_roberta_hides_special_tokens_and_draws_no_leading_ones():
    tokens, inputs, positions, targets = masked("roberta")
    used = positions >= 0
    rates = np.bincount(positions[used], minlength=40) / len(tokens)
    assert abs(rates - 0.15).max() < 5 * np.sqrt(0.15 * 0.85 / 4000)
    assert set(used.sum(axis=1).tolist()) == {6}
    changed = inputs[(inputs != tokens) & (inputs != MASK)]
    assert changed.min() == 4 and changed.max() == VOCABULARY - 1


def test_xlm_never_hides_the_first_token_and_each_by_itself():
    tokens, _, positions, _ = masked("xlm")
    rates = np.bincount(positions[positions >= 0], minlength=40) / len(tokens)
    assert rates[0] == 0
    assert abs(rates[1:] - 0.15).max() < 5 * np.sqrt(0.15 * 0.85 / 4000)
    assert len(np.unique((positions >= 0).sum(axis=1))) > 8


def test_modernbert_shares_of_thirty_per_cent():
    tokens, inputs, positions, _ = masked("modernbert", mask_rate=0.3)
    rows, slots = np.nonzero(positions >= 0)
    places = positions[rows, slots]
    total = tokens.size
    assert abs(len(rows) / total - 0.3) < 5 * np.sqrt(0.21 / total)
    assert abs((inputs[rows, places] == MASK).sum() / total - 0.24 - 0.03 / VOCABULARY) < 0.005
    assert abs((inputs[rows, places] == tokens[rows, places]).sum() / total - 0.03 * (1 + 1 / VOCABULARY)) < 0.003
    assert (places == 0).any() and (places == 39).any()


def test_roberta_decides_for_whole_words():
    word_starts = np.arange(VOCABULARY) % 2 == 0
    tokens, inputs, positions, targets = masked("roberta", word_starts=word_starts)
    used = positions >= 0
    kinds = np.full(tokens.shape, -1)
    rows, slots = np.nonzero(used)
    places = positions[rows, slots]
    kinds[rows, places] = np.where(inputs[rows, places] == MASK, 0, np.where(inputs == tokens, 1, 2)[rows, places])
    word = np.cumsum(word_starts[tokens], axis=1) + 1000 * np.arange(len(tokens))[:, None]
    hidden = np.unique(word[kinds >= 0])
    assert not (np.isin(word, hidden) & (kinds < 0)).any()
    by_word = [set(kinds[word == number].tolist()) for number in hidden[:400]]
    # Masked words are masked whole; random pieces may by chance be the mask or the token itself.
    assert sum(len(kinds) > 1 for kinds in by_word) < 0.05 * len(by_word)
    assert abs(sum(0 in kinds for kinds in by_word) / len(by_word) - 0.8) < 0.1
    np.testing.assert_array_equal(tokens[rows, places], targets[used])


def test_left_padding_and_unknown_rules():
    noise = Tokens(0.9, count="independent", skip_first=True)
    maskable = np.tile([False, True, True], (50, 1))
    positions, _ = apply(noise, np.full((50, 3), 9, np.int32), (), maskable)
    assert set(positions.ravel().tolist()) == {-1, 2}
    with pytest.raises(ValueError, match="`rule` must be one of bert, roberta"):
        masked("elmo")
