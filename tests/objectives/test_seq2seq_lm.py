"""Sequence-to-sequence modeling: the loss as transformers has it and in closed form, its weights, and learning."""

import keras
import numpy as np
import pytest

from kerasbert.data import Seq2SeqBatches, Seq2SeqLayout, Tokenizer
from kerasbert.models import T5, Bert, BertConfig, T5Config
from kerasbert.objectives import Seq2SeqLM
from tests.models.reference import randomize, their_model, to_numpy

TINY = dict(
    vocabulary_size=61, num_layers=1, num_heads=3, hidden_dim=24, head_dim=5, feed_forward_dim=40, num_buckets=8,
    max_distance=9, dropout=0.0,
)  # fmt: skip


def loss_of(model, *data):
    model.compile(keras.optimizers.SGD(0.0))
    return model.test_on_batch(*data, return_dict=True)


def example(rows=3):
    rng = np.random.default_rng(0)
    sources, targets = (rng.integers(2, 61, (rows, length)).astype("int32") for length in (9, 6))
    start = np.zeros((rows, 1), "int32")
    return {"token_ids": sources, "decoder_token_ids": np.concatenate([start, targets[:, :-1]], axis=1)}, targets


def test_the_loss_is_that_of_transformers(tmp_path):
    import torch
    import transformers

    config = transformers.T5Config(
        vocab_size=61, d_model=24, d_kv=5, d_ff=40, num_layers=1, num_heads=3, decoder_start_token_id=0
    )
    theirs = their_model("T5ForConditionalGeneration", config, tmp_path)
    x, y = example()
    labels = y.astype("int64")
    labels[1, 4:] = -100
    with torch.no_grad():
        expected = theirs(torch.from_numpy(x["token_ids"]).long(), labels=torch.from_numpy(labels)).loss.item()
    model = Seq2SeqLM.from_preset(tmp_path)
    results = loss_of(model, x, y, (labels >= 0).astype("float32"))
    np.testing.assert_allclose(results["loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(results["perplexity"], np.exp(expected), rtol=1e-4)
    # Padding weighs nothing by default.
    lengths = {"decoder_lengths": np.array([6, 4, 6], "int32")}
    np.testing.assert_allclose(loss_of(model, {**x, **lengths}, y)["loss"], expected, rtol=1e-5)
    whole = loss_of(model, {**x, **lengths}, y, np.array([1, 0, 1], "float32"))["loss"]
    others = {key: array[[0, 2]] for key, array in {**x, **lengths}.items()}
    np.testing.assert_allclose(whole, loss_of(model, others, y[[0, 2]])["loss"], rtol=1e-5)


def test_smoothing_and_z_loss_in_closed_form():
    """The numbers of T5's fact sheet for logits [2 1 0] and label 0: log Z 2.40761, z-loss 0.00057966."""
    model = Seq2SeqLM(T5(T5Config(**TINY)), label_smoothing=0.3, z_loss=1e-4)
    logits, label = keras.ops.convert_to_tensor([[[2.0, 1.0, 0.0]]]), np.array([[0]], "int32")
    x = {"decoder_token_ids": label}
    plain = to_numpy(model.compute_loss(x, label, logits, None, training=False))
    np.testing.assert_allclose(plain, 0.40761, atol=1e-5)
    log_probabilities = np.log(np.exp([2.0, 1.0, 0.0]) / np.exp([2.0, 1.0, 0.0]).sum())
    smoothed = -np.dot([0.8, 0.1, 0.1], log_probabilities)
    found = to_numpy(model.compute_loss(x, label, logits, None, training=True))
    np.testing.assert_allclose(found, smoothed + 0.00057966, rtol=1e-5)
    with pytest.raises(ValueError, match="Received: label_smoothing=1.0"):
        Seq2SeqLM(model.backbone, label_smoothing=1.0)


def test_a_model_that_knows_nothing_has_the_loss_of_the_vocabulary():
    model = Seq2SeqLM(T5(T5Config(**TINY)), label_smoothing=0.1)
    for variable in model.weights:
        variable.assign(np.zeros(variable.shape))
    x, y = example()
    results = loss_of(model, x, y)
    assert results["loss"] == pytest.approx(np.log(61), rel=1e-6)
    assert results["accuracy"] == 0.0 and results["perplexity"] == pytest.approx(61, rel=1e-5)
    assert loss_of(model, x, y, np.zeros(y.shape, "float32"))["loss"] == 0.0


def test_accumulated_parts_add_up_to_the_update():
    rng = np.random.default_rng(0)
    pairs = [[rng.integers(2, 61, n) for n in rng.integers(1, 9, 8)] for _ in range(2)]
    options = dict(batch_size=8, layout=Seq2SeqLayout(end_id=1), seed=None)
    model = randomize(Seq2SeqLM(T5(T5Config(**TINY))))
    whole = loss_of(model, *Seq2SeqBatches(*pairs, **options)[0])["loss"]
    parts = Seq2SeqBatches(*pairs, **options).accumulated(4)
    np.testing.assert_allclose(np.mean([loss_of(model, *part)["loss"] for part in parts]), whole, rtol=1e-5)


@pytest.mark.one_backend
def test_a_reversal_is_learnt_and_generated():
    rng = np.random.default_rng(0)
    sources = [rng.integers(2, 8, 3) for _ in range(200)]
    targets = [source[::-1] for source in sources]
    config = {**TINY, "vocabulary_size": 8, "num_heads": 4, "hidden_dim": 32, "head_dim": 16}
    model = Seq2SeqLM(T5(T5Config(**config)), z_loss=1e-4)
    model.compile(keras.optimizers.Adam(5e-3))
    batches = Seq2SeqBatches(sources, targets, batch_size=40, layout=Seq2SeqLayout(end_id=1), epochs=40)
    history = model.fit(batches, steps_per_epoch=50, verbose=0).history
    assert history["loss"][-1] < 0.3 < 1.0 < history["loss"][0]
    answers = model.generate(sources[:20], max_new_tokens=8)
    right = [list(answer) == [*target, 1] for target, answer in zip(targets, answers, strict=False)]
    assert np.mean(right) > 0.6


@pytest.mark.one_backend
def test_text_in_and_out():
    sources, targets = ["one two", "three four five", "six"] * 4, ["two", "five four", "one"] * 4
    tokenizer = Tokenizer.train("unigram", [*sources, *targets] * 3, 21)
    model = Seq2SeqLM(T5(T5Config(**{**TINY, "eos_id": tokenizer.sep_id})), tokenizer=tokenizer)
    model.compile(keras.optimizers.Adam(1e-2))
    history = model.fit(sources, targets, batch_size=4, epochs=40, verbose=0).history
    assert history["loss"][-1] < 0.5 < history["loss"][0]
    assert model.evaluate(sources, targets, verbose=0, return_dict=True)["accuracy"] > 0.8
    assert model.generate(["one two", "six"], max_new_tokens=9, num_beams=2) == ["two", "one"]
    assert isinstance(model.generate("six", max_new_tokens=2), str)
    with pytest.raises(ValueError, match="needs targets. Received: sources alone"):
        model.predict(sources)


@pytest.mark.one_backend
def test_bad_input():
    model = Seq2SeqLM(T5(T5Config(**TINY)))
    x, y = example()
    model.compile(keras.optimizers.SGD(0.0))
    with pytest.raises(ValueError, match="Labels must be between 0 and 60.*Received: 61"):
        model.fit(x, np.full(y.shape, 61, "int32"), verbose=0)
    with pytest.raises(ValueError, match="the encoder would read the targets. Received: prefix_mask, token_ids"):
        model.fit({"token_ids": y, "prefix_mask": y > 30}, y, verbose=0)
    bert = Bert(BertConfig(vocabulary_size=61, num_layers=1, num_heads=1, hidden_dim=8, feed_forward_dim=8))
    with pytest.raises(ValueError, match="Bert has no head 'seq2seq_lm'"):
        Seq2SeqLM(bert)
