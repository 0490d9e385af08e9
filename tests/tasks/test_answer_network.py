"""The stochastic answer network against its formulas, step by step in numpy, and the averages of the fact sheet."""

import keras
import numpy as np
import pytest

from kerasbert.tasks import TextClassifier
from kerasbert.tasks.answer_network import AnswerNetwork, averaged
from tests.models.reference import to_numpy

STEPS = np.log(np.array([[[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.6, 0.3, 0.1]]], "float32"))


def test_averages():
    """Evaluation: the mean over all steps, loss .510826. Training with the mask (1, 0, 1): loss .430783."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    every = averaged(STEPS)
    np.testing.assert_allclose(np.exp(to_numpy(every)), [[0.6, 0.8 / 3, 0.4 / 3]], rtol=1e-5)
    assert float(loss(np.array([0]), every)) == pytest.approx(0.510826, abs=1e-6)
    some = averaged(STEPS, np.array([[True, False, True]]))
    np.testing.assert_allclose(np.exp(to_numpy(some)), [[0.481481, 0.185185, 0.074074]], rtol=1e-5)
    assert float(loss(np.array([0]), some)) == pytest.approx(0.430783, abs=1e-6)


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_the_formulas(weights, x, first, second, steps):
    """One pair: x (s, m), the places of the two texts."""
    (w1, b1), (w2, b2), (w3, b3), (kernel, recurrent, (input_bias, state_bias)) = weights
    alpha = softmax((x[first] @ w1 + b1)[:, 0])
    state, found = alpha @ x[first], []
    for _ in range(steps):
        y = softmax(x[second] @ (state @ w2 + b2)) @ x[second]
        found.append(softmax(np.concatenate([y, state, np.abs(y - state), y * state]) @ w3 + b3))
        gates_y, gates_s = y @ kernel + input_bias, state @ recurrent + state_bias
        (zy, ry, ny), (zs, rs, ns) = np.split(gates_y, 3), np.split(gates_s, 3)
        z, r = sigmoid(zy + zs), sigmoid(ry + rs)
        state = z * state + (1 - z) * np.tanh(ny + r * ns)
    return np.log(np.mean(found, axis=0))


@pytest.mark.one_backend
def test_equals_the_formulas_whatever_the_padding():
    rng = np.random.default_rng(0)
    layer = AnswerNetwork(3, 6, steps=4, dropout=0.3)
    x = rng.normal(size=(2, 7, 6)).astype("float32")
    inputs = {"token_ids": np.zeros((2, 7), "int32"), "lengths": np.array([7, 5], "int32")}
    inputs["segment_ids"] = np.array([[0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 0, 0]], "int32")
    layer(x, inputs)
    for variable in layer.trainable_variables:
        variable.assign(rng.normal(size=variable.shape))
    parts = (layer.summary, layer.query, layer.predict, layer.memory)
    weights = [[to_numpy(variable) for variable in part.trainable_variables] for part in parts]
    expected = [
        by_the_formulas(weights, x[0], slice(0, 4), slice(4, 7), 4),
        by_the_formulas(weights, x[1], slice(0, 2), slice(2, 5), 4),
    ]
    np.testing.assert_allclose(to_numpy(layer(x, inputs)), expected, atol=1e-5)
    training = np.stack([to_numpy(layer(x, inputs, training=True)) for _ in range(8)])
    assert np.isfinite(training).all() and len(np.unique(training[:, 0, 0])) > 2


def test_half_precision_is_finite():
    layer = AnswerNetwork(3, 6, dtype="mixed_float16")
    x = np.full((2, 4, 6), 100.0, "float16")
    inputs = {"token_ids": np.zeros((2, 4), "int32"), "lengths": np.array([4, 0], "int32")}
    inputs["segment_ids"] = np.array([[0, 0, 1, 1]] * 2, "int32")
    for training in (False, True):
        found = to_numpy(layer(x, inputs, training=training))
        assert found.dtype == np.float32 and np.isfinite(found).all()


@pytest.mark.one_backend
def test_size_of_a_head_for_bert_large():
    layer = AnswerNetwork(3, 1024)
    layer(np.zeros((1, 2, 1024), "float32"), {"token_ids": np.zeros((1, 2)), "segment_ids": np.array([[0, 1]])})
    assert sum(int(np.prod(variable.shape)) for variable in layer.trainable_variables) == 7_360_516


@pytest.mark.one_backend
def test_one_step_always_counts():
    layer = AnswerNetwork(2, 4)
    kept = to_numpy(layer._kept(4000))
    assert kept.any(axis=1).all()
    assert kept.mean() == pytest.approx(0.9 + 0.1 / 5, abs=0.01)


@pytest.mark.one_backend
def test_learns_pairs_and_loads_again(tiny_backbone, tokenizer, tmp_path):
    pairs = [("Ann lives in Rome .", "Bob lives in Bonn ."), ("in Rome lives Bob", "Bob lives in Bonn .")] * 2
    model = TextClassifier(tiny_backbone(), labels=["no", "yes"], answer_steps=5, tokenizer=tokenizer)
    model.compile(keras.optimizers.Adam(5e-3))
    model.fit(pairs, ["no", "yes"] * 2, batch_size=4, epochs=25, verbose=0)
    answers = model.classify(pairs[:2])
    assert [answer["label"] for answer in answers] == ["no", "yes"]
    assert sum(answers[0]["scores"].values()) == pytest.approx(1.0)
    model.save_to_preset(tmp_path)
    again = TextClassifier.from_preset(tmp_path)
    assert again.answer_steps == 5
    np.testing.assert_array_equal(again.predict(pairs, verbose=0), model.predict(pairs, verbose=0))
    with pytest.raises(ValueError, match="`answer_steps` needs problem"):
        TextClassifier(tiny_backbone(), problem="score", answer_steps=5)
