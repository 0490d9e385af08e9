"""Short spans: exact arrays, rates over many draws; rates that change during a run."""

import numpy as np
import pytest

from kerasbert.data import MaskedLMBatches, MixtureBatches, RareTokens, RateSchedule, Tokens, TokenSpans
from kerasbert.data.noise.noise import MaskableRows, MaskingVocabulary
from kerasbert.data.noise.token_spans import cut_into_spans

pytestmark = pytest.mark.one_backend


def rows_of(ids, slots, special=(0,), borders=()):
    ids = np.array(ids, dtype="int32")
    first = np.zeros(ids.shape, bool)
    first[:, [0, *borders]] = True
    return MaskableRows(
        ids, np.full(len(ids), ids.shape[1]), ids >= 0, first, slots, MaskingVocabulary(4, 100, special)
    )


def thirds(*numbers):
    """Draws that give these numbers from 1 to 3."""
    return np.array([[(number - 1) * (2**32 // 3) + 2**30 // 3 for number in numbers]], dtype=np.uint32)


def test_rows_are_cut_at_random_and_at_borders():
    border = np.array([[True, False, False, False, False, False]])
    starts = cut_into_spans(border, 3, thirds(2, 3, 1, 3, 3, 3))
    assert starts.tolist() == [[0, 0, 2, 3, 3, 3]]
    border[0, 4] = True
    assert cut_into_spans(border, 3, thirds(2, 3, 1, 3, 1, 3)).tolist() == [[0, 0, 2, 3, 4, 5]]


def test_spans_are_masked_kept_or_replaced_together():
    """Spans 10 11, 12, 13 14 15: the last has the smallest draw, then comes the first."""
    lengths = thirds(1, 2, 1, 1, 3, 1, 1)  # the first is that of the special token
    order = np.array([[0, 500, 0, 900, 100, 0, 0]], dtype=np.uint32)
    treatment = np.array([[0, 3_650_000_000, 0, 0, 2**32 - 1, 0, 0]], dtype=np.uint32)  # kept, masked, replaced
    rule = TokenSpans(0.5)
    further = np.array([[2**31, 2**30, 0, 2**31, 2**32 - 1]], dtype=np.uint32)
    rows = rows_of([[0, 10, 11, 12, 13, 14, 15]], 5)
    draws = np.concatenate([lengths, order, [[2**31]], treatment, further], axis=1).astype(np.uint32)
    found, targets = rule(rows, draws)  # int(3 + 0.5) = 3 tokens
    assert found.tolist() == [[4, 5, 6, -1, -1]] and targets.tolist() == [[13, 14, 15, 0, 0]]
    assert rows.token_ids.tolist() == [[0, 10, 11, 12, 50, 25, 0]]
    rows = rows_of([[0, 10, 11, 12, 13, 14, 15]], 5)
    found, targets = TokenSpans(0.6)(rows, draws)  # int(3.6 + 0.5) = 4 tokens, and the last span as a whole
    assert found.tolist() == [[1, 2, 4, 5, 6]] and targets.tolist() == [[10, 11, 13, 14, 15]]
    assert rows.token_ids.tolist() == [[0, 10, 11, 12, 0, 50, 99]]  # this one is kept


def test_rates_over_many_rows():
    rng = np.random.default_rng(0)
    rule, ids = TokenSpans(0.3, random_from=16), rng.integers(0, 100, (400, 128))
    ids[:, 0] = 1
    rows = rows_of(ids, rule.num_slots(128, 1), special=(1,))
    draws = rng.integers(0, 2**32, (400, rule.num_draws(128, rows.num_slots)), dtype=np.uint32)
    positions, targets = rule(rows, draws)
    used = positions >= 0
    assert targets[used].min() >= 16 and rows.token_ids.min() >= 0
    share = used.sum() / (ids >= 16).sum()
    assert 0.30 < share < 0.32  # the last span is selected as a whole
    values = rows.token_ids[np.nonzero(used)[0], positions[used]]
    masked, kept = (values == 4).mean(), (values == targets[used]).mean()
    assert abs(masked - 0.8) < 0.02 and 0.09 < kept < 0.12
    others = values[(values != 4) & (values != targets[used])]
    assert others.min() >= 16
    # Without special tokens between them, spans that touch are one: on average 2 / (1 - 0.3) tokens.
    rows = rows_of(rng.integers(16, 100, (400, 128)), rule.num_slots(128, 0))
    chosen = np.zeros((400, 129), bool)
    np.put_along_axis(chosen, rule(rows, draws)[0], True, axis=1)
    chosen = np.pad(chosen[:, :-1], ((0, 0), (1, 0)))
    runs = np.count_nonzero(chosen[:, 1:] & ~chosen[:, :-1])
    assert 2.6 < chosen.sum() / runs < 3.0
    assert (chosen.sum(axis=1) <= rows.num_slots).all() and rows.num_slots == 39 + 2


def test_some_token_is_always_selected():
    rule = TokenSpans(0.15)
    rows = rows_of([[0, 50, 0, 0]], rule.num_slots(4, 1))
    draws = np.zeros((1, rule.num_draws(4, rows.num_slots)), dtype=np.uint32)
    assert rule(rows, draws)[0].tolist() == [[1] + [-1] * (rows.num_slots - 1)]
    rows = rows_of([[0, 0, 0, 0]], rows.num_slots)  # no text
    assert (rule(rows, draws)[0] == -1).all()


# === Schedules ===


def test_rates_fall_during_the_run(corpus):
    rule = RateSchedule(TokenSpans(0.3), 0.15)
    assert [rule.at(p).rate for p in (0.0, 0.5, 1.0)] == pytest.approx([0.3, 0.225, 0.15])
    batches = MaskedLMBatches(corpus, 16, 64, steps=40, noise=rule)
    shares = [weights.sum() / x["lengths"].sum() for x, _, weights in batches]
    assert np.polyfit(np.arange(40), shares, 1)[0] * 40 == pytest.approx(-0.15, abs=0.03)
    constant = MaskedLMBatches(corpus, 16, 64, steps=40, noise=TokenSpans(0.225))
    for (x, _, _), (_, _, weights) in ((batches[20], constant[20]),):
        assert (x["masked_positions"] >= 0).sum() == weights.sum()
    assert batches[0][0]["masked_positions"].shape == batches[39][0]["masked_positions"].shape
    # The parts of a longer run, updates in several steps, and the rest of a run.
    second = batches.within(0.5, 1.0)
    assert second._progress(0) == 0.5 and second._progress(20) == 0.75
    assert batches.accumulated(4)._progress(20) == batches.starting_at(7)._progress(20) == 0.5
    rising = RateSchedule(Tokens(0.1), 0.4)
    assert rising.num_slots(100, 2) == Tokens(0.4).num_slots(100, 2)


def test_other_rules_can_have_schedules(corpus):
    for noise in (Tokens(0.3, count="drawn"), RareTokens(0.3, whole_batch=True)):
        batches = MaskedLMBatches(corpus, 8, 32, steps=20, noise=RateSchedule(noise, 0.1))
        first, last = (batches[step][2].sum() for step in (0, 19))
        assert first > 2 * last


def test_bad_input(corpus):
    with pytest.raises(ValueError, match="`longest` must be at least 1"):
        TokenSpans(longest=0)
    with pytest.raises(ValueError, match="above 0 and below 1. Received: 1.5"):
        RateSchedule(Tokens(0.3), 1.5)
    part = MaskedLMBatches(corpus, 8, 32, noise=RateSchedule(Tokens(0.3), 0.15))
    with pytest.raises(ValueError, match="mixture has parts without an end"):
        MixtureBatches({"a": part}, batch_size=8, steps=2)
    constant = MaskedLMBatches(corpus, 8, 32, noise=RateSchedule(Tokens(0.3), 0.3))
    assert len(MixtureBatches({"a": constant}, batch_size=8, steps=2)) == 2
