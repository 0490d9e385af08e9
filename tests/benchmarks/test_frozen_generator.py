"""The comparison of ELECTRA's discriminator with a detector that counts bigrams."""

import keras
import numpy as np
import pytest

from benchmarks.frozen_generator import as_electra, recipe_of, verdict
from kerasbert.models import Bert, BertConfig

pytestmark = pytest.mark.one_backend


def test_a_bert_as_electra_computes_the_same_and_has_its_own_weights():
    bert = Bert(
        BertConfig(vocabulary_size=30, num_layers=2, num_heads=2, hidden_dim=8, feed_forward_dim=12, dropout=0.0)
    )
    electra, x = as_electra(bert), {"token_ids": np.arange(12, dtype="int32").reshape(2, 6)}
    ours, theirs = (keras.ops.convert_to_numpy(model(x)["sequence_output"]) for model in (electra, bert))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    electra.token_embedding.embeddings.assign(keras.ops.zeros((30, 8)))
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(bert(x)["sequence_output"]), theirs)


def test_seeds_change_the_run():
    assert recipe_of(1, 100).seed == 1 and recipe_of(1, 100).schedule == {"peak": 5e-4, "warmup": 10}


def test_the_gain_is_tested_against_the_goal():
    """Gains of 0.05, 0.06 and 0.07 are above 0.03 with p = 0.035; the same gains less 0.01 are not."""
    rows = [{"auc": 0.8 + gain, "bars": {"bigrams": 0.8, "frequencies": 0.6}} for gain in (0.05, 0.06, 0.07)]
    assert "gain +0.0600 +- 0.0058; a gain of 0.03 is met (p = 0.0351, 3 seeds)" in verdict(rows)
    less = [{**row, "auc": row["auc"] - 0.01} for row in rows]
    assert "gain +0.0500 +- 0.0058; a gain of 0.03 is not met (p = 0.0742, 3 seeds)" in verdict(less)
    worse = [{**row, "auc": 0.7} for row in rows[:1]] + [{**row, "auc": 0.701} for row in rows[1:]]
    assert "is not met" in verdict(worse)
