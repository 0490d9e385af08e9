"""Causal language modeling: the loss in closed form and as transformers has it, its weights, and a loss that falls."""

import keras
import numpy as np
import pytest

from kerasbert.data import Tokenizer
from kerasbert.models import GPT2, Bert, BertConfig, GPT2Config
from kerasbert.objectives import CausalLM
from tests.models.reference import randomize, their_model, to_numpy

TINY = dict(
    vocabulary_size=61, num_layers=2, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=23, dropout=0.0,
    embedding_dropout=0.0, attention_dropout=0.0,
)  # fmt: skip


def loss_of(model, *data):
    model.compile(keras.optimizers.SGD(0.0))
    return model.test_on_batch(*data, return_dict=True)


def test_the_loss_is_that_of_transformers_on_shifted_targets(tmp_path):
    import torch
    import transformers

    config = transformers.GPT2Config(vocab_size=61, n_embd=24, n_layer=2, n_head=3, n_positions=23)
    theirs = their_model("GPT2LMHeadModel", config, tmp_path)
    ids = np.random.default_rng(0).integers(0, 61, (3, 12))
    labels = ids.copy()
    labels[1, 8:] = -100
    with torch.no_grad():
        expected = theirs(torch.from_numpy(ids), labels=torch.from_numpy(labels)).loss.item()
    model = CausalLM.from_preset(tmp_path)
    x, y = ids[:, :-1].astype("int32"), ids[:, 1:].astype("int32")
    results = loss_of(model, {"token_ids": x}, y, (labels[:, 1:] >= 0).astype("float32"))
    np.testing.assert_allclose(results["loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(results["perplexity"], np.exp(expected), rtol=1e-4)
    # Padding weighs nothing by default, and slots may be gathered.
    lengths = np.array([11, 7, 11], "int32")
    np.testing.assert_allclose(loss_of(model, {"token_ids": x, "lengths": lengths}, y)["loss"], expected, rtol=1e-5)
    slots = np.array([[0, 10], [6, -1], [3, 5]], "int32")
    logits, gathered = model({"token_ids": x}), model({"token_ids": x, "masked_positions": slots})
    np.testing.assert_allclose(to_numpy(gathered)[2, 1], to_numpy(logits)[2, 5], atol=1e-5)
    picked = np.take_along_axis(y, np.maximum(slots, 0), axis=1)
    weighed = np.zeros(y.shape, "float32")
    for row, slot in zip(*np.nonzero(slots >= 0), strict=True):
        weighed[row, slots[row, slot]] = 1.0
    found = loss_of(model, {"token_ids": x, "masked_positions": slots}, picked)["loss"]
    np.testing.assert_allclose(found, loss_of(model, {"token_ids": x}, y, weighed)["loss"], rtol=1e-5)


def test_a_model_that_knows_nothing_has_the_loss_of_the_vocabulary():
    model = CausalLM(GPT2(GPT2Config(**TINY)))
    for variable in model.weights:
        variable.assign(np.zeros(variable.shape))
    x = {"token_ids": np.arange(20, dtype="int32").reshape(2, 10)}
    results = loss_of(model, x, x["token_ids"] + 1)
    assert results["loss"] == pytest.approx(np.log(61), rel=1e-6)
    assert results["accuracy"] == 0.0 and results["perplexity"] == pytest.approx(61, rel=1e-5)
    assert loss_of(model, x, x["token_ids"], np.zeros((2, 10), "float32"))["loss"] == 0.0


@pytest.mark.one_backend
def test_text_is_learnt():
    texts = ["one two three four five six seven eight nine ten"] * 12
    tokenizer = Tokenizer.train("byte_bpe", texts, 280)
    config = {**TINY, "vocabulary_size": 280, "max_length": 64}
    model = CausalLM(GPT2(GPT2Config(**config)), tokenizer=tokenizer)
    model.compile(keras.optimizers.Adam(1e-2))
    history = model.fit(texts, batch_size=2, epochs=12, verbose=0).history
    assert history["loss"][-1] < 1.0 < 3.0 < history["loss"][0]


@pytest.mark.one_backend
def test_labels_outside_the_vocabulary_are_an_error():
    model = randomize(CausalLM(GPT2(GPT2Config(**TINY))))
    model.compile(keras.optimizers.SGD(0.0))
    with pytest.raises(ValueError, match="Labels must be between 0 and 60.*Received: 61"):
        model.fit({"token_ids": np.zeros((2, 4), "int32")}, np.full((2, 4), 61, "int32"), verbose=0)


@pytest.mark.one_backend
def test_an_encoder_has_no_such_head():
    with pytest.raises(ValueError, match="Bert has no head 'causal_lm'"):
        CausalLM(Bert(BertConfig(vocabulary_size=61, num_layers=1, num_heads=3, hidden_dim=24, feed_forward_dim=40)))
