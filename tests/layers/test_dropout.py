"""Dropout: how much it drops, that nothing of it hangs together, and that it is a function of its seed."""

import keras
import numpy as np
import pytest
from keras import ops

from kerasbert.layers.dropout import Dropout
from tests.models.reference import to_numpy

ROWS, WIDTH = 512, 512


def masks(layer, count=1, shape=(ROWS, WIDTH)):
    return [to_numpy(layer(np.ones(shape, "float32"), training=True)) > 0 for _ in range(count)]


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.9])
def test_the_share_and_its_spread(rate):
    """Of all places, of rows, and of columns: what independent draws have, within five standard errors."""
    mask = masks(Dropout(rate, seed=1))[0]
    deviation = (rate * (1 - rate)) ** 0.5
    assert abs(mask.mean() - (1 - rate)) < 5 * deviation / mask.size**0.5
    for axis, size in ((0, WIDTH), (1, ROWS)):
        spread = mask.mean(axis).std() / (deviation / mask.shape[axis] ** 0.5)
        assert abs(spread - 1) < 5 / (2 * size) ** 0.5


def test_masks_of_neighbours_steps_and_layers_are_independent():
    """Correlations of 262,144 pairs are within five standard errors of 0."""
    (one, next_one), (other,) = masks(Dropout(0.3, seed=1), 2), masks(Dropout(0.3, seed=2))
    pairs = [(one, next_one), (one, other), (one[1:], one[:-1]), (one[:, 1:], one[:, :-1])]
    pairs += [(one[:, step:], one[:, :-step]) for step in (2, 3, 16, 128, 256)]
    pairs += [(one[step:], next_one[:-step]) for step in (1, 2, 64)]
    for first, second in pairs:
        assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 5 / first.size**0.5


def test_values_gradients_and_seeds():
    x = np.random.default_rng(0).normal(size=(6, 5)).astype("float32")
    first, second = (to_numpy(Dropout(0.25, seed=3)(x, training=True)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first[first != 0], x[first != 0] / 0.75, rtol=1e-6)
    assert 0 < (first == 0).sum() < 20
    np.testing.assert_array_equal(to_numpy(Dropout(0.25)(x, training=False)), x)
    assert not to_numpy(Dropout(1.0)(x, training=True)).any()
    whole_columns = to_numpy(Dropout(0.5, noise_shape=(None, 1, 7), seed=1)(np.ones((4, 9, 7)), training=True))
    assert (whole_columns == whole_columns[:, :1]).all() and 0 < whole_columns.mean() < 2


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="drawn anew for the gradient by JAX alone")
def test_the_gradient_has_the_mask_of_the_forward_pass():
    import jax

    layer = Dropout(0.25, seed=3)
    state = layer.seed_generator.state.value

    def dropped(x):
        with keras.StatelessScope([(layer.seed_generator.state, state)]):
            return layer(x, training=True)

    gradient = jax.jit(jax.grad(lambda x: dropped(x).sum()))(ops.ones((60, 50)))
    np.testing.assert_array_equal(gradient, dropped(ops.ones((60, 50))))
