"""Discriminators on the samples of a frozen generator: the comparison with bigrams, and a stage of training."""

import keras
import numpy as np
import pytest

import kerasbert
from benchmarks.studies.frozen_generator import discriminator_stage, joint
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


@pytest.fixture
def bert(tmp_path):
    """A tiny masked language model, its folder, and text for it."""
    tokenizer = Tokenizer.train("wordpiece", ["a b c d e f g h"] * 5, vocabulary_size=21, lowercase=True)
    sizes = dict(num_layers=3, num_heads=2, hidden_dim=8, feed_forward_dim=12, max_length=64, dropout=0.0)
    model = MaskedLM(Bert(BertConfig(**sizes, vocabulary_size=tokenizer.vocabulary_size)), tokenizer=tokenizer)
    model.save_to_preset(tmp_path / "bert")
    words = np.random.default_rng(0).choice(list("abcdefgh"), (40, 400))
    return model, tmp_path / "bert", {"text": Corpus.in_memory(list(map(" ".join, words)), tokenizer)}


def test_an_electra_from_a_bert_computes_what_it_computes(bert):
    model, folder, _ = bert
    x = {"token_ids": np.arange(12, dtype="int32").reshape(2, 6), "masked_positions": np.array([[1], [2]], "int32")}
    ours, theirs = (keras.ops.convert_to_numpy(one(x)) for one in (joint.electra_from(folder), model))
    np.testing.assert_allclose(ours, theirs, atol=0.05)  # bfloat16
    kept, blocks = joint.electra_from(folder, 2).backbone.blocks, model.backbone.blocks
    for new, old in ((kept[0], blocks[0]), (kept[1], blocks[2])):
        for variables in zip(new.weights, old.weights, strict=True):
            np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, variables))


@pytest.mark.parametrize("sharing", joint.SHARING)
def test_both_models_are_trained_together_from_one_start(bert, monkeypatch, sharing):
    _, folder, corpora = bert
    monkeypatch.setattr(joint, "make_generator", lambda start, layers, *_: joint.electra_from(start, layers))
    found = joint.run(recipe_of(0, 20), 2, sharing, corpora, corpora, folder)
    assert 0 <= found["auc"] <= 1 and set(found["bars"]) == {"frequencies", "bigrams"}


def test_finished_runs_of_another_setting_do_not_count(tmp_path):
    results, calls = tmp_path / "rows.jsonl", []
    for sharing, steps in (("a", 10), ("b", 10), ("a", 20), ("a", 10)):
        rows = frozen_generator.finished(results, 2, steps, lambda seed: calls.append(seed) or {}, sharing=sharing)
        assert [(row["seed"], row["sharing"], row["steps"]) for row in rows] == [
            (0, sharing, steps),
            (1, sharing, steps),
        ]
    assert calls == [0, 1] * 3
