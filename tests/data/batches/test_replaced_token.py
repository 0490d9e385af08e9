"""Batches for replaced token detection: the official numbers of slots, both ways to draw them, what they show."""

import numpy as np
import pytest

from kerasbert.data import ReplacedTokenBatches
from kerasbert.data.noise.masking import draw_tokens
from kerasbert.data.sampling import DYNAMIC, row_draws
from tests.data.batches.objects import batches_of

from .test_batches import same, sliced

pytestmark = pytest.mark.one_backend


def shown(x, y, mask_id):
    """Used slots as (share that shows the mask, share that shows its token)."""
    used = x["masked_positions"] >= 0
    tokens = np.take_along_axis(x["token_ids"], np.maximum(x["masked_positions"], 0), axis=1)[used]
    return np.mean(tokens == mask_id), np.mean(tokens == y["tokens"][used])


@pytest.mark.parametrize(
    ("length", "rate", "slots"), [(128, 0.15, 19), (512, 0.15, 79), (512, 0.25, 130), (4, 0.15, 1)]
)
def test_slots_of_the_official_code(corpus, length, rate, slots):
    assert batches_of(ReplacedTokenBatches, corpus, 2, length, mask_rate=rate).max_predictions == slots


@pytest.mark.parametrize("with_replacement", [False, True])
def test_contract(corpus, wordpiece, with_replacement):
    batches = batches_of(ReplacedTokenBatches, corpus, 64, 48, steps=20, with_replacement=with_replacement)
    masks, keeps, doubles = [], [], 0
    for x, y, weight in batches:
        assert x["masked_positions"].shape == y["tokens"].shape == (64, 7) and set(y) == {"tokens"}
        counts = np.clip(np.rint(x["lengths"] * 0.15), 1, 7)
        np.testing.assert_array_equal((x["masked_positions"] >= 0).sum(axis=1), counts)
        np.testing.assert_array_equal(weight["tokens"], x["masked_positions"] >= 0)
        np.testing.assert_array_equal(weight["replaced"], np.arange(48) < x["lengths"][:, None])
        assert not np.isin(y["tokens"][weight["tokens"] > 0], [wordpiece.cls_id, wordpiece.sep_id]).any()
        for positions, tokens in zip(x["masked_positions"], y["tokens"], strict=True):
            used = positions[positions >= 0]
            doubles += len(used) - len(set(used.tolist()))
            assert len(set(zip(positions.tolist(), tokens.tolist(), strict=True))) == len(set(positions.tolist()))
        mask, keep = shown(x, y, wordpiece.mask_id)
        masks.append(mask)
        keeps.append(keep)
    assert (doubles > 0) == with_replacement
    # A position with two slots shows its token only if both say so.
    assert np.mean(masks) == pytest.approx(0.85 + 0.015 * with_replacement, abs=0.012)
    assert np.mean(masks) + np.mean(keeps) == pytest.approx(1)


def test_deberta_masks_every_slot(corpus, wordpiece):
    x, y, _ = batches_of(ReplacedTokenBatches, corpus, 64, 48, mask_share=1.0)[0]
    assert shown(x, y, wordpiece.mask_id) == (1.0, 0.0)


@pytest.mark.parametrize("with_replacement", [False, True])
def test_replay_resume_shards_and_accumulation(corpus, with_replacement):
    options = dict(steps=3000, seed=4, with_replacement=with_replacement)
    batches = batches_of(ReplacedTokenBatches, corpus, 6, 32, **options)
    same(batches[2000], batches_of(ReplacedTokenBatches, corpus, 6, 32, **options).starting_at(2000)[0])
    same(batches.shard(1, 3)[7], sliced(batches[7], 2, 4))
    parts = batches_of(ReplacedTokenBatches, corpus, 6, 32, **options).accumulated(2)
    for name in ("tokens", "replaced"):
        assert parts[7][0]["loss_normalizer"][name][0] == pytest.approx(batches[3][2][name].sum() / 6)
    assert batches.recipe()["noise"]["class"] == ("TokensWithReplacement" if with_replacement else "Tokens")


def test_draws_with_replacement_are_uniform():
    candidates = np.array([[0, 1, 1, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0]], bool).repeat(
        4000, axis=0
    )
    draws = row_draws(0, 0, DYNAMIC, 0, 12_000, 6)
    positions = draw_tokens(candidates, np.full(12_000, 5), 6, draws)
    assert (positions[:, 5] == -1).all() and (positions[4000:8000] == -1).all() and (positions[8000:, :5] == 2).all()
    found = np.bincount(positions[:4000, :5].ravel(), minlength=7)
    assert found[0] == found[3] == 0
    assert ((found[[1, 2, 4, 5, 6]] - 4000) ** 2 / 4000).sum() < 30  # 4 degrees: below once in 1e5


def test_packed_rows_weigh_all_their_tokens(corpus):
    x, _, weight = ReplacedTokenBatches(corpus, 4, 64, rows="packed")[0]
    np.testing.assert_array_equal(weight["replaced"], x["sequence_ids"] > 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(mask_share=1.5), "`mask_share` must be between 0 and 1"),
        (dict(sentence_pairs=True), "no sentence-pair label"),
        (dict(rows="sentence_order"), "no sentence-pair label"),
        (dict(max_predictions=0), "must be at least 1"),
        (dict(mask_rate=1.0), "masking rate must be above 0"),
    ],
)
def test_bad_input(corpus, options, message):
    with pytest.raises(ValueError, match=message):
        batches_of(ReplacedTokenBatches, corpus, 4, 32, **options)
