"""Batches of MPNet: those of masked language modeling, in a random order of prediction."""

import itertools

import numpy as np
import pytest

from kerasbert.data import MaskedLMBatches, MaskedPermutedLMBatches, Tokens, TokensWithReplacement
from kerasbert.data.noise.masking import RareTokens
from tests.data.batches.test_batches import same

pytestmark = pytest.mark.one_backend


@pytest.mark.parametrize("noise", [Tokens(0.15), Tokens(0.3, count="independent"), RareTokens(whole_batch=True)])
def test_they_are_the_batches_of_masked_tokens_in_another_order(noise, corpus):
    plain = MaskedLMBatches(corpus, 6, 32, seed=3, steps=5, noise=noise)
    batches = MaskedPermutedLMBatches(corpus, 6, 32, seed=3, steps=5, noise=noise)
    orders = []
    for (x, y, weights), (expected, targets, used) in zip(batches, plain, strict=True):
        np.testing.assert_array_equal(x["token_ids"], expected["token_ids"])
        np.testing.assert_array_equal(weights, used)
        np.testing.assert_array_equal(x["original_ids"], y)
        assert y.dtype == x["masked_positions"].dtype == np.int32
        for row in range(6):
            order = np.argsort(np.where(weights[row] > 0, x["masked_positions"][row], 99), kind="stable")
            np.testing.assert_array_equal(x["masked_positions"][row][order], expected["masked_positions"][row])
            np.testing.assert_array_equal(y[row][order], targets[row])
            orders.append(tuple(order[: int(used[row].sum())]))
    assert len(set(orders)) > 20  # of 30 rows


def test_all_orders_are_equally_likely(corpus):
    batches = MaskedPermutedLMBatches(corpus, 16, 24, steps=120, noise=Tokens(0.15, max_predictions=3))
    counts = dict.fromkeys(itertools.permutations(range(3)), 0)
    for x, _, weights in batches:
        for positions in x["masked_positions"][weights.sum(axis=1) == 3]:
            counts[tuple(np.argsort(positions).tolist())] += 1
    total = sum(counts.values())
    expected = total / 6
    assert total > 1_000 and sum((count - expected) ** 2 / expected for count in counts.values()) < 20.5  # p = 0.001


@pytest.mark.parametrize("noise", [Tokens(), RareTokens(whole_batch=True)])
def test_rows_do_not_depend_on_how_they_are_split(noise, corpus):
    batches = MaskedPermutedLMBatches(corpus, 8, 32, steps=3, noise=noise)
    parts = MaskedPermutedLMBatches(corpus, 8, 32, steps=3, noise=noise).accumulated(2)
    for step in range(3):
        same(batches[step], MaskedPermutedLMBatches(corpus, 8, 32, steps=3, noise=noise).starting_at(step)[0])
        halves = [parts[2 * step], parts[2 * step + 1]]
        for key in ("token_ids", "masked_positions", "original_ids"):
            joined = np.concatenate([half[0][key] for half in halves])
            np.testing.assert_array_equal(joined, batches[step][0][key])


def test_bad_input(corpus):
    with pytest.raises(ValueError, match="no sentence-pair label"):
        MaskedPermutedLMBatches(corpus, 8, 32, rows="segment_pairs")


def test_positions_that_repeat_are_refused_by_the_model(corpus):
    from kerasbert.models import MPNet, MPNetConfig

    noise = TokensWithReplacement(0.5, max_predictions=30)
    x, _, _ = MaskedPermutedLMBatches(corpus, 8, 32, noise=noise)[0]
    sizes = dict(num_layers=1, num_heads=1, hidden_dim=4, feed_forward_dim=4, max_length=32)
    with pytest.raises(ValueError, match="twice in a row. Use a noise that does not repeat"):
        MPNet(MPNetConfig(vocabulary_size=len(corpus.tokenizer().tokens), **sizes)).check_inputs(x)
