"""Dropout: how much it drops, that nothing of it hangs together, and that it is a function of its seed."""

import keras
import numpy as np
import pytest
from keras import ops

from kerasbert.layers.dropout import Dropout
from tests.models.reference import to_numpy

ROWS, WIDTH = 512, 512


@pytest.fixture(autouse=True)
def seeded():
    keras.utils.set_random_seed(0)


def masks(layer, count=1, shape=(ROWS, WIDTH)):
    return [to_numpy(layer(np.ones(shape, "float32"), training=True)) > 0 for _ in range(count)]


@pytest.mark.parametrize("seed", [1, None], ids=["seed", "no seed"])
@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.9])
def test_the_share_and_its_spread(rate, seed):
    """Of all places, of rows, and of columns: what independent draws have, within five standard errors."""
    mask = masks(Dropout(rate, seed=seed))[0]
    deviation = (rate * (1 - rate)) ** 0.5
    assert abs(mask.mean() - (1 - rate)) < 5 * deviation / mask.size**0.5
    for axis, size in ((0, WIDTH), (1, ROWS)):
        spread = mask.mean(axis).std() / (deviation / mask.shape[axis] ** 0.5)
        assert abs(spread - 1) < 5 / (2 * size) ** 0.5


@pytest.mark.parametrize("seeds", [(1, 2), (None, None)], ids=["seeds", "no seeds"])
def test_masks_of_neighbors_steps_and_layers_are_independent(seeds):
    """Correlations of 262,144 pairs are within five standard errors of 0."""
    (one, next_one), (other,) = masks(Dropout(0.3, seed=seeds[0]), 2), masks(Dropout(0.3, seed=seeds[1]))
    pairs = [(one, next_one), (one, other), (one[1:], one[:-1]), (one[:, 1:], one[:, :-1])]
    pairs += [(one[:, step:], one[:, :-step]) for step in (2, 3, 16, 128, 256)]
    pairs += [(one[step:], next_one[:-step]) for step in (1, 2, 64)]
    for first, second in pairs:
        assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 5 / first.size**0.5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4, 5), (0, 4)])
@pytest.mark.parametrize("rate", [1e-7, 0.25, 0.9999999])
def test_any_shape_dtype_and_rate(shape, dtype, rate):
    """Values are 0 or what is due."""
    y = Dropout(rate, dtype=dtype)(ops.ones(shape, dtype), training=True)
    assert keras.backend.standardize_dtype(y.dtype) == dtype and y.shape == shape
    y = to_numpy(ops.cast(y, "float32"))
    if rate > 0.5:
        assert not y.any()
    else:
        np.testing.assert_allclose(y[y != 0], 1 / (1 - rate), rtol=1e-4 if dtype == "float32" else 8e-3)


def test_values_and_seeds():
    x = np.random.default_rng(0).normal(size=(6, 5)).astype("float32")
    first, second = (to_numpy(Dropout(0.25, seed=3)(x, training=True)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first[first != 0], x[first != 0] / 0.75, rtol=1e-6)
    assert 0 < (first == 0).sum() < 20
    np.testing.assert_array_equal(to_numpy(Dropout(0.25)(x, training=False)), x)
    assert not to_numpy(Dropout(1.0)(x, training=True)).any()
    whole_columns = to_numpy(Dropout(0.5, noise_shape=(None, 1, 7), seed=1)(np.ones((4, 9, 7)), training=True))
    assert (whole_columns == whole_columns[:, :1]).all() and 0 < whole_columns.mean() < 2


@pytest.mark.parametrize("seed", [3, None], ids=["seed", "no seed"])
def test_the_gradient_has_the_mask_of_the_forward_pass(seed):
    """What XLA draws anew for the gradient is the same: of ones, values and gradients are equal."""
    values, gradients = values_and_gradients(Dropout(0.25, seed=seed), np.ones((60, 50), "float32"))
    np.testing.assert_array_equal(gradients, values)
    assert 0.6 < (values > 0).mean() < 0.9


def values_and_gradients(layer, x):
    """Of the sum of the outputs, compiled where the backend compiles."""
    if keras.backend.backend() == "jax":
        import jax

        def total(x, state):
            with keras.StatelessScope([(layer.seed_generator.state, state)]):
                y = layer(x, training=True)
            return y.sum(), y

        gradients, values = jax.jit(jax.grad(total, has_aux=True))(x, layer.seed_generator.state.value)
        return values, gradients
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        @tf.function(jit_compile=True)
        def both(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = layer(x, training=True)
            return y, tape.gradient(y, x)

        return [part.numpy() for part in both(tf.constant(x))]
    x = ops.convert_to_tensor(x).requires_grad_()
    y = layer(x, training=True)
    y.sum().backward()
    return to_numpy(y), to_numpy(x.grad)
