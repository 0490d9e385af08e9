"""Batches of GPT-BERT: masked rows as in masked language modeling, and causal rows in a fixed ratio."""

import numpy as np
import pytest

from kerasbert.data import HybridLMBatches, MaskedLMBatches, RareTokens, RateSchedule, TokenSpans
from tests.data.batches.test_batches import same

pytestmark = pytest.mark.one_backend


@pytest.mark.parametrize("rows", ["packed", "chunks"])
def test_masked_rows_are_those_of_masked_language_modeling(rows, corpus):
    plain = MaskedLMBatches(corpus, 8, 32, seed=3, steps=5, rows=rows, noise=TokenSpans(0.3))
    batches = HybridLMBatches(corpus, 8, 32, 3, 5, rows, TokenSpans(0.3), causal_share=1 / 4)
    for (x, y, weights), (expected, targets, used) in zip(batches, plain, strict=True):
        assert x["causal_rows"].tolist() == [False, False, False, True] * 2
        assert x.keys() - {"causal_rows"} == expected.keys() - {"masked_positions"}
        assert (y.shape, y.dtype, weights.dtype) == ((8, 32), np.int32, np.float32)
        masked = ~x["causal_rows"]
        np.testing.assert_array_equal(x["token_ids"][masked], expected["token_ids"][masked])
        row, slot = np.nonzero(used)
        column = expected["masked_positions"][row, slot]
        np.testing.assert_array_equal(y[row, column], targets[row, slot])
        wanted = np.zeros((8, 32), "float32")
        wanted[row, column] = 1
        np.testing.assert_array_equal(weights[masked], wanted[masked])
        # Causal rows have no masks, and all tokens but the first of each text are targets.
        np.testing.assert_array_equal(x["token_ids"][~masked], y[~masked])
        first = x["position_ids"] == 0 if rows == "packed" else np.arange(32) == 0
        real = x["sequence_ids"] > 0 if rows == "packed" else np.arange(32) < x["lengths"][:, None]
        np.testing.assert_array_equal(weights[~masked], (real & ~first)[~masked])


def test_with_a_number_of_targets_there_are_slots(corpus):
    whole = HybridLMBatches(corpus, 8, 32, steps=30, noise=TokenSpans(0.3), causal_share=0.5)
    batches = HybridLMBatches(corpus, 8, 32, steps=30, noise=TokenSpans(0.3), causal_share=0.5, causal_targets=5)
    seen = []
    for (x, y, weights), (expected, tokens, predicted) in zip(batches, whole, strict=True):
        np.testing.assert_array_equal(x["token_ids"], expected["token_ids"])
        slots = x["masked_positions"]
        assert slots.shape == y.shape == weights.shape == (8, TokenSpans(0.3).num_slots(32, 2))
        np.testing.assert_array_equal(weights, slots >= 0)
        row, slot = np.nonzero(weights)
        np.testing.assert_array_equal(y[row, slot], tokens[row, slots[row, slot]])
        assert (predicted[row, slots[row, slot]] == 1).all() and not y[slots < 0].any()
        causal = x["causal_rows"]
        np.testing.assert_array_equal(weights[~causal].sum(1), predicted[~causal].sum(1))
        np.testing.assert_array_equal(weights[causal].sum(1), np.minimum(predicted[causal].sum(1), 5))
        seen += slots[causal][:, :5].ravel().tolist()
    assert set(seen) - {-1} == set(range(1, 32)) or len(set(seen)) > 28  # drawn from the whole row


@pytest.mark.parametrize(
    ("share", "counts"),
    [(1 / 16, [0, 1] * 3), (0.0, [0] * 6), (1.0, [8] * 6), (0.1, [0, 1, 1, 1, 1, 0])],
)
def test_the_ratio_holds_over_the_run(share, counts, corpus):
    batches = HybridLMBatches(corpus, 8, 32, steps=6, causal_share=share)
    assert [int(x["causal_rows"].sum()) for x, _, _ in batches] == counts


@pytest.mark.parametrize("noise", [RateSchedule(TokenSpans(0.3), 0.15), RareTokens(whole_batch=True)])
@pytest.mark.parametrize("targets", [None, 4])
def test_rows_do_not_depend_on_how_they_are_split(noise, targets, corpus):
    def make():
        return HybridLMBatches(corpus, 8, 32, steps=3, noise=noise, causal_share=0.25, causal_targets=targets)

    batches, parts = make(), make().accumulated(2)
    for step in range(3):
        same(batches[step], make().starting_at(step)[0])
        halves, (x, y, weights) = [parts[2 * step], parts[2 * step + 1]], batches[step]
        for key in x:
            np.testing.assert_array_equal(np.concatenate([half[0][key] for half in halves]), x[key])
        np.testing.assert_array_equal(np.concatenate([half[1] for half in halves]), y)
        causal = x["causal_rows"]
        for half in halves:
            normalizers = half[0]["loss_normalizer"]
            assert {name: array.shape for name, array in normalizers.items()} == {"masked": (4,), "causal": (4,)}
            np.testing.assert_allclose(normalizers["masked"] * 8, weights[~causal].sum(), rtol=1e-6)
            np.testing.assert_allclose(normalizers["causal"] * 8, weights[causal].sum(), rtol=1e-6)
        hosts = [make().shard(index, 2)[step] for index in range(2)]
        np.testing.assert_array_equal(np.concatenate([host[1] for host in hosts]), y)


def test_bad_input(corpus):
    with pytest.raises(ValueError, match="no sentence-pair label"):
        HybridLMBatches(corpus, 8, 32, rows="segment_pairs")
    with pytest.raises(ValueError, match="`causal_share` must be between 0 and 1. Received: 15"):
        HybridLMBatches(corpus, 8, 32, causal_share=15)
    with pytest.raises(ValueError, match="`causal_targets` must be between 1 and `length`, 32, .*Received: 33"):
        HybridLMBatches(corpus, 8, 32, causal_targets=33)
