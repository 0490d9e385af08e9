"""Batches that are encoded in chunks: the same gradients, in the memory of a chunk."""

import keras
import numpy as np
import pytest
from keras import ops

from kerasbert.backend.chunks import in_chunks
from kerasbert.models import Bert, BertConfig
from kerasbert.retrieval import AdaptiveLayer, CoSENT, MultipleNegatives
from kerasbert.tasks import Dropout, TextEmbedder
from tests.models.reference import to_numpy
from tests.retrieval.golden import R, cases

SIZES = dict(vocabulary_size=61, num_layers=1, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=16)


def embedder(objective, dropout=0.3, dtype="float32", pooling="mean"):
    keras.utils.set_random_seed(3)
    config = BertConfig(**SIZES, dropout=dropout, attention_dropout=dropout, initializer_range=0.2)
    model = TextEmbedder(Bert(config, dtype=dtype, pooler=False), pooling, objective=objective)
    model.compile(keras.optimizers.SGD(1.0))
    return model


def data(rows, texts=2):
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 12, (rows, texts))
    return {"token_ids": rng.integers(5, 61, (rows, texts, 11)).astype("int32"), "lengths": lengths.astype("int32")}


def gradients(objective, y=None, rows=5, steps=1, **options):
    """The changes of all weights by one step at a rate of 1, and the loss."""
    model = embedder(objective, **options)
    before = [to_numpy(variable.value).copy() for variable in model.trainable_variables]
    y = np.zeros(rows, "float32") if y is None else y
    keras.utils.set_random_seed(4)  # torch has no other state of its dropout
    losses = [model.train_on_batch(data(rows), y) for _ in range(steps)]
    return [b - to_numpy(v.value) for b, v in zip(before, model.trainable_variables, strict=True)], losses


def difference(one, other):
    """The length of the difference of two gradients, as a share of the length of the first."""
    squares = [(np.square(a - b).sum(), np.square(a).sum()) for a, b in zip(one, other, strict=True)]
    return np.sqrt(np.divide(*np.sum(squares, axis=0)))


def test_gradients_are_those_of_the_whole_batch():
    """With dropout, whose masks are those of the rows, and a number of rows that the chunk does not divide."""
    direct, losses = gradients(MultipleNegatives(), steps=2)
    chunked, found = gradients(MultipleNegatives(chunk=2), steps=2)
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    assert difference(direct, chunked) < 1e-5 and found[0] != found[1]


@pytest.mark.backends("torch", "jax")  # the backward pass of each calls the pooling once more
def test_dropout_after_the_pooling():
    direct, losses = gradients(MultipleNegatives(), pooling=["mean", Dropout(0.5)])
    chunked, found = gradients(MultipleNegatives(chunk=2), pooling=["mean", Dropout(0.5)])
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    assert difference(direct, chunked) < 1e-5 and difference(direct, gradients(MultipleNegatives())[0]) > 0.05


@pytest.mark.one_backend
def test_dropout_matters_above():
    direct, without = (gradients(MultipleNegatives(chunk=2), dropout=rate)[0] for rate in (0.3, 0.0))
    assert difference(direct, without) > 0.05


def test_bfloat16():
    direct, losses = gradients(MultipleNegatives(), dtype="mixed_bfloat16")
    chunked, found = gradients(MultipleNegatives(chunk=2), dtype="mixed_bfloat16")
    np.testing.assert_allclose(found, losses, rtol=1e-3)
    assert difference(direct, chunked) < 0.01  # half of the last bit, in each of some sums


@pytest.mark.one_backend
@pytest.mark.parametrize("chunk", [1, 5, 9])
def test_every_size_of_chunks(chunk):
    scores = np.float32([1, 0.2, 0.2, 0.6, 0])
    direct, _ = gradients(CoSENT(), scores)
    assert difference(direct, gradients(CoSENT(chunk=chunk), scores)[0]) < 1e-5


@pytest.mark.one_backend
def test_vectors_of_all_layers():
    direct, _ = gradients(AdaptiveLayer("ranking", layers_per_step=None))
    chunked, _ = gradients(AdaptiveLayer("ranking", layers_per_step=None, chunk=2))
    assert difference(direct, chunked) < 1e-5


def test_worked_example():
    """x @ W of the golden file: the gradient of W for chunks of 1, 3 and 7 rows."""
    (case,) = cases("embedder", "gradcache_linear")
    dense = keras.layers.Dense(6, use_bias=False)
    dense.build((None, 5))
    weight, columns, sizes = R(40, 5, 6), [R(41, 7, 5), R(42, 7, 5)], case["settings"]["mini_batch_size"]
    calls = []

    def encode(inputs):
        calls.append(1)
        return dense(inputs["x"])

    def loss(size):
        vectors = [in_chunks(encode, {"x": ops.convert_to_tensor(x)}, size, dense) for x in columns]
        return MultipleNegatives()(vectors)

    for size in sizes:
        dense.kernel.assign(weight)
        calls.clear()
        value, gradient = of_kernel(dense.kernel, lambda size=size: loss(size))
        np.testing.assert_allclose(value, case["loss"], rtol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(gradient), case["grad_norms"][0], rtol=1e-5)
        if keras.backend.backend() == "torch":  # the others trace their loops
            assert len(calls) == (case["forwards"][str(size)] if size < 7 else 2)


def of_kernel(kernel, function):
    """A function's value, and its gradient with respect to a variable."""
    if keras.backend.backend() == "jax":
        import jax

        def stateless(value):
            with keras.StatelessScope(state_mapping=[(kernel, value)]):
                return function()

        return jax.value_and_grad(stateless)(kernel.value)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = function()
        return to_numpy(value), to_numpy(tape.gradient(value, kernel.value))
    value = function()
    value.backward()
    gradient = kernel.value.grad.clone()
    kernel.value.grad = None
    return float(value.detach()), to_numpy(gradient)
