"""Unsupervised SimCSE: the loss of the example and of the formula, both readings of a text, a loss that falls."""

import dataclasses

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.data import Corpus, MixtureBatches, Tokenizer, WholeTextBatches
from kerasbert.models import GPT2, Bert, BertConfig, GPT2Config, ModernBert, ModernBertConfig
from kerasbert.objectives import SimCSE
from kerasbert.tasks import TextEmbedder
from kerasbert.training import adamw
from tests.models.reference import randomize, to_numpy
from tests.objectives.test_retro_mae import FAMILIES, TINY, backbone_of

DROPOUT = {**TINY, "dropout": 0.1}


def batch(rows=4, length=6, seed=0):
    rng = np.random.default_rng(seed)
    x = {"token_ids": rng.integers(5, 31, (rows, length)).astype("int32")}
    x["lengths"] = rng.integers(3, length + 1, rows).astype("int32")
    return x, np.arange(rows, dtype="int32"), np.ones(rows, "float32")


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.mark.one_backend
def test_the_worked_example():
    """Two texts with cosines 1 and 0 at temperature 0.05: ln(1 + e ** -20)."""
    model = SimCSE(Bert(BertConfig(**DROPOUT)))
    scores = keras.ops.convert_to_tensor(np.eye(2, dtype="float32") / 0.05)
    loss = model.compute_loss({"token_ids": np.zeros((2, 3))}, np.arange(2), scores, None)
    assert float(loss) == pytest.approx(np.log1p(np.exp(-20)), abs=1e-7)


def test_the_loss_is_that_of_the_formula():
    model, (x, y, weights) = randomize(SimCSE(Bert(BertConfig(**DROPOUT), pooler=False), temperature=0.2)), batch()
    states = to_numpy(model.backbone(x)["sequence_output"])[:, 0]
    z = unit(np.tanh(states @ to_numpy(model.projection.kernel) + to_numpy(model.projection.bias)))
    scores = z @ z.T / 0.2
    np.testing.assert_allclose(to_numpy(model(x)), scores, atol=1e-5)
    weights[3] = 0  # a padding row is no text to be found, and no other text is compared with it
    losses = np.log(np.exp(scores[:3, :3]).sum(1)) - np.diag(scores)[:3]
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    found = model.test_on_batch(x, y, weights, return_dict=True)
    assert found["loss"] == pytest.approx(losses.mean(), rel=1e-4)
    assert found["contrastive_loss"] == pytest.approx(losses.mean(), rel=1e-4) and found["accuracy"] == 1


@pytest.mark.one_backend
def test_the_two_readings_differ_by_dropout_in_training_only():
    model, (x, _, _) = randomize(SimCSE(Bert(BertConfig(**DROPOUT)), temperature=1.0)), batch()
    tensors = {key: keras.ops.convert_to_tensor(array) for key, array in x.items()}
    still, training = to_numpy(model(tensors)), to_numpy(model(tensors, training=True))
    np.testing.assert_allclose(np.diag(still), 1, atol=1e-5)
    assert (np.diag(training) < 0.999).all()


@pytest.mark.one_backend
def test_every_family_of_encoders():
    x, y, weights = batch()
    rates = dict.fromkeys(("dropout", "attention_dropout", "attention_output_dropout"), 0.1)
    for name in [name for name in FAMILIES if name != "NeoBert"]:
        model = SimCSE(backbone_of(name, **rates))
        model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
        assert np.isfinite(model.train_on_batch(x, y, weights, return_dict=True)["loss"]), name


@pytest.mark.one_backend
def test_it_learns_and_an_embedder_starts_from_it(tmp_path):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice([f"w{i}" for i in range(24)], 5)) for _ in range(96)]
    tokenizer = Tokenizer.train("wordpiece", texts, 48)
    config = dict(DROPOUT, vocabulary_size=tokenizer.vocabulary_size, initializer_range=0.3)
    model = SimCSE(Bert(BertConfig(**config), pooler=False), tokenizer=tokenizer)
    model.compile(adamw(1e-2, 5, 60), run_eagerly=True)
    batches = WholeTextBatches(Corpus.in_memory(texts, tokenizer), 32, 7, steps=40)
    losses = [model.train_on_batch(*batches[0], return_dict=True)["loss"]]
    model.fit(batches, verbose=0)
    model.reset_metrics()
    losses.append(model.train_on_batch(*batches[0], return_dict=True)["loss"])
    assert losses[1] < 3 < losses[0]  # chance is ln 32 = 3.5
    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    assert type(again) is SimCSE and again.arguments() == {"temperature": 0.05}
    embedder = TextEmbedder.from_preset(tmp_path, pooling="cls")
    ids = embedder.tokenizer.encode(["w1 w2"])
    state = to_numpy(model.backbone({"token_ids": np.array(ids)})["sequence_output"])[0, 0]
    np.testing.assert_allclose(unit(embedder.embed(["w1 w2"])[0]), unit(state), atol=1e-5)
    assert np.isfinite(model.fit(["w1 w2", "w3"], batch_size=2, verbose=0).history["loss"][0])


@pytest.mark.one_backend
def test_bad_input():
    with pytest.raises(ValueError, match="differ by dropout. Received: a Bert without dropout"):
        SimCSE(Bert(BertConfig(**TINY)))
    with pytest.raises(ValueError, match="`temperature` must be above 0. Received: 0"):
        SimCSE(Bert(BertConfig(**DROPOUT)), temperature=0)
    model, (x, y, _) = SimCSE(Bert(BertConfig(**DROPOUT))), batch()
    model.compile(adamw(1e-3))
    with pytest.raises(ValueError, match="y must have the shape"):
        model.fit(x, y[:, None], verbose=0)
    packed = {"token_ids": x["token_ids"], "sequence_ids": np.ones((4, 6), "int32")}
    with pytest.raises(ValueError, match="SimCSE embeds one text per row. Received: packed rows"):
        model.fit(packed, y, verbose=0)


@pytest.mark.one_backend
@pytest.mark.parametrize("by", ["rows", "batches"])
def test_texts_of_several_corpora_are_told_apart(by):
    """The batches of each corpus number their rows by themselves."""
    tokenizer = Tokenizer.from_preset("bert_mini_en")
    parts = {
        name: WholeTextBatches(Corpus.in_memory([f"{name} number {i}" for i in range(40)], tokenizer), 4, 12)
        for name in ("a day", "a night")
    }
    batches = MixtureBatches(parts, dict.fromkeys(parts, 1.0), steps=3, batch_size=4, by=by)
    config = BertConfig(**{**DROPOUT, "vocabulary_size": tokenizer.vocabulary_size})
    model = randomize(SimCSE(Bert(config), tokenizer=tokenizer))
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    for number in range(3):
        x, y, weights = batches[number]
        scores = to_numpy(model(x))
        expected = np.mean(np.log(np.exp(scores).sum(axis=1)) - np.diag(scores))
        assert model.test_on_batch(x, y, weights, return_dict=True)["loss"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.one_backend
def test_what_cannot_be_learned_from_is_refused():
    model = SimCSE(Bert(BertConfig(**DROPOUT)), tokenizer=Tokenizer.train("wordpiece", ["a b c"] * 9, 11))
    with pytest.raises(ValueError, match="SimCSE compares the texts of a batch. Received: one text"):
        model.fit(["a b"], batch_size=1, verbose=0)
    x, y, _ = batch()
    texts = WholeTextBatches(Corpus.in_memory(["a b", "b c"], model.tokenizer), batch_size=1, length=8)
    with pytest.raises(ValueError, match="SimCSE compares the texts of a batch. Received: one text"):
        model.fit(texts, verbose=0)
    last = {key: array[:1] for key, array in x.items()}
    history = model.fit(iter([(x, y), (last, y[:1])]), steps_per_epoch=2, verbose=0).history
    assert np.isfinite(history["loss"]).all()  # the last batch of a source may have a single text
    with pytest.raises(ValueError, match="SimCSE needs an encoder that predicts masked tokens.*Received: a GPT2"):
        SimCSE(GPT2(GPT2Config(vocabulary_size=9, num_layers=1, num_heads=2, hidden_dim=8, max_length=8, dropout=0.1)))
    config = ModernBertConfig(vocabulary_size=9, num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=8)
    config = dataclasses.replace(config, attention_output_dropout=0.0)
    with pytest.raises(ValueError, match="without dropout. Set .*embedding_dropout=0.1.*--set model.*=0.1"):
        SimCSE(ModernBert(config))
