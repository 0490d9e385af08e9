"""Discriminators on the samples of a frozen generator: the comparison with bigrams, and a stage of training."""

import keras
import numpy as np
import pytest

import kerasbert
from benchmarks.studies.frozen_generator import discriminator_stage
from benchmarks.studies.frozen_generator import run as frozen_generator
from benchmarks.studies.frozen_generator.run import ModernElectra, recipe_of, verdict
from kerasbert.data import Corpus, Tokenizer
from kerasbert.models import Bert, BertConfig, ModernBert, ModernBertConfig
from kerasbert.objectives import Discriminator, MaskedLM
from pipelines.recipes.optimizers import WarmupDecay

pytestmark = pytest.mark.one_backend


def test_a_modernbert_with_a_discriminator_head_scores_tokens_and_keeps_its_weights(tmp_path):
    sizes = dict(vocabulary_size=30, num_layers=2, num_heads=2, hidden_dim=8, feed_forward_dim=12)
    encoder, x = ModernBert(ModernBertConfig(**sizes)), {"token_ids": np.arange(12, dtype="int32").reshape(2, 6)}
    encoder.save_to_preset(tmp_path)
    discriminator = Discriminator(ModernElectra.from_preset(tmp_path))
    ours, theirs = (model(x)["sequence_output"] for model in (discriminator.backbone, encoder))
    np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (ours, theirs)))
    assert discriminator(x).shape == (2, 6)


def test_seeds_change_the_run():
    assert recipe_of(1, 100).seed == 1 and recipe_of(1, 100).optimizer.schedule == WarmupDecay(5e-4, warmup=5)


def test_the_gain_is_tested_against_the_goal():
    """Gains of 0.05, 0.06 and 0.07 are above 0.03 with p = 0.035; the same gains less 0.01 are not."""
    rows = [{"auc": 0.8 + gain, "bars": {"bigrams": 0.8, "frequencies": 0.6}} for gain in (0.05, 0.06, 0.07)]
    assert "gain +0.0600 ± 0.0058; a gain of 0.03 is met (p = 0.0351, 3 seeds)" in verdict(rows)
    less = [{**row, "auc": row["auc"] - 0.01} for row in rows]
    assert "gain +0.0500 ± 0.0058; a gain of 0.03 is not met (p = 0.0742, 3 seeds)" in verdict(less)
    worse = [{**row, "auc": 0.7} for row in rows[:1]] + [{**row, "auc": 0.701} for row in rows[1:]]
    assert "is not met" in verdict(worse)


def test_a_stage_trains_the_encoder_only(tmp_path):
    tokenizer = Tokenizer.train("wordpiece", ["a b c d e f g h"] * 5, vocabulary_size=21, lowercase=True)
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=12, max_length=128)
    sizes["vocabulary_size"] = tokenizer.vocabulary_size
    generator = MaskedLM(Bert(BertConfig(**sizes)), tokenizer=tokenizer, sentence_pair=False)
    generator.save_to_preset(tmp_path / "generator")
    start = ModernBert(ModernBertConfig(**sizes))
    start.save_to_preset(tmp_path / "start")
    Corpus.write(tmp_path / "corpus", ["a b c d e f g h\n" * 40] * 40, tokenizer)
    trainer = frozen_generator.make_trainer(tmp_path / "generator", tmp_path / "start", seed=0)
    assert not any(variable.trainable for variable in trainer.generator.variables)

    folders = [tmp_path / name for name in ("corpus", "trained", "generator", "start")]
    discriminator_stage.main(*folders, steps=2)
    table = start.token_embedding.embeddings
    trained = kerasbert.load(tmp_path / "trained")
    assert type(trained) is ModernBert
    trained = trained.token_embedding.embeddings
    assert np.abs(keras.ops.convert_to_numpy(trained - table)).max() > 0
    assert Tokenizer.load(tmp_path / "trained").hash == tokenizer.hash
