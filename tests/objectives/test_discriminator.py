"""A discriminator alone: its two losses in closed form, and that it learns from labels."""

import keras
import numpy as np
import pytest

from kerasbert.models import Electra, ElectraConfig
from kerasbert.objectives import Discriminator
from kerasbert.objectives.discriminator import AUC, copied_or_predicted
from kerasbert.training import adamw
from tests.models.reference import randomize, to_numpy

SIZES = dict(
    **dict(vocabulary_size=31, embedding_dim=10, num_layers=1, num_heads=2, hidden_dim=12, feed_forward_dim=20),
    **dict(max_length=13, dropout=0.0, attention_dropout=0.0),
)


def batch(rows=4):
    rng = np.random.default_rng(0)
    lengths = np.full(rows, 11, "int32")
    lengths[-1] = 7
    x = {"token_ids": rng.integers(0, 31, (rows, 11)).astype("int32"), "lengths": lengths}
    return x, (x["token_ids"] > 24).astype("int32")  # some tokens are never original


def test_binary_loss_in_closed_form():
    model = randomize(Discriminator(Electra(ElectraConfig(**SIZES))), 0.3)
    x, y = batch()
    logits, real = to_numpy(model(x)), np.arange(11) < x["lengths"][:, None]
    expected = np.log1p(np.exp(np.where(y, -logits, logits)))
    model.compile(keras.optimizers.SGD(0.0))
    results = model.evaluate(x, y, verbose=0, return_dict=True)
    assert results["loss"] == pytest.approx(expected[real].mean(), rel=1e-5)
    assert results["accuracy"] == pytest.approx(((logits > 0) == y)[real].mean(), rel=1e-5)


def test_predicting_all_tokens_in_closed_form():
    model = randomize(Discriminator(Electra(ElectraConfig(**SIZES)), masked_lm=True), 0.3)
    x, _ = batch()
    originals = np.where(np.arange(11) % 3, x["token_ids"], 5).astype("int32")
    outputs, real = model(x), np.arange(11) < x["lengths"][:, None]
    logits, copy = to_numpy(outputs["tokens"]), 1 / (1 + np.exp(to_numpy(outputs["replaced"])))
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True) * (1 - copy[..., None])
    np.put_along_axis(
        shares, ids := x["token_ids"][..., None], np.take_along_axis(shares, ids, -1) + copy[..., None], -1
    )
    expected = -np.log(np.take_along_axis(shares, originals[..., None], -1))[..., 0]
    model.compile(keras.optimizers.SGD(0.0))
    results = model.evaluate(x, originals, verbose=0, return_dict=True)
    assert results["loss"] == pytest.approx(expected[real].mean(), rel=1e-4)
    tensors = {name: keras.ops.convert_to_tensor(value) for name, value in outputs.items()}
    found = to_numpy(copied_or_predicted(tensors, keras.ops.convert_to_tensor(x["token_ids"])))
    np.testing.assert_array_equal(found, shares.argmax(-1))
    assert results["accuracy"] == pytest.approx((found == originals)[real].mean(), rel=1e-5)


@pytest.mark.one_backend
def test_it_learns_from_labels():
    model = Discriminator(Electra(ElectraConfig(**SIZES)))
    x, y = batch(rows=64)
    model.compile(adamw(1e-2))
    model.fit(x, y, batch_size=16, epochs=15, verbose=0)
    results = model.evaluate(x, y, verbose=0, return_dict=True)
    assert results["auc"] > 0.95 and results["loss"] < 0.3


def test_the_area_under_the_curve_is_that_of_the_ranks():
    """Also where all probabilities are close to each other."""
    rng = np.random.default_rng(0)
    labels = rng.random((20, 50)) < 0.1
    logits = (-3 + 0.1 * rng.normal(size=labels.shape) + 0.1 * labels).astype("float32")
    above = logits[labels][:, None] - logits[~labels]
    metric = AUC()
    metric.update_state(*map(keras.ops.convert_to_tensor, (labels, logits)))
    assert float(metric.result()) == pytest.approx(np.mean(above > 0), abs=2e-3)
