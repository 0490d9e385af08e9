"""Feed-forward networks: the gated one by its closed form, and what activations keep for the backward pass."""

from math import erf

import numpy as np
import pytest
from keras import ops

from kerasbert.backend import compiling_for
from kerasbert.layers.feed_forward import GatedFeedForward, activation_function


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2)))


@pytest.mark.parametrize(("use_bias", "biases"), [(True, 3), (False, 0), ("outer", 1)])
def test_the_inner_half_passes_the_activation_and_the_gate_does_not(use_bias, biases):
    layer = GatedFeedForward(5, 7, use_bias=use_bias)
    x = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    layer(x)
    assert len(layer.weights) == 3 + biases
    for weight in layer.weights:
        weight.assign(np.random.default_rng(1).normal(size=weight.shape).astype("float32"))

    def dense(part, x):
        y = x @ ops.convert_to_numpy(part.kernel)
        return y if part.bias is None else y + ops.convert_to_numpy(part.bias)

    expected = dense(layer.outer, gelu(dense(layer.inner, x)) * dense(layer.gate, x))
    np.testing.assert_allclose(ops.convert_to_numpy(layer(x)), expected, atol=1e-4)


@pytest.mark.backends("jax")
@pytest.mark.parametrize("name", ["gelu", "gelu_new", "silu"])
@pytest.mark.parametrize("kind", ["gpu", "tpu"])
def test_only_the_input_of_an_activation_is_kept_on_accelerators(name, kind):
    import jax

    function, x = activation_function(name), np.linspace(-4, 4, 33, dtype="float32")

    def gradient():
        y, backward = jax.vjp(lambda x: function(x), x)
        kept = [leaf for leaf in jax.tree.leaves(backward) if np.size(leaf) == x.size]
        return y, backward(np.ones_like(x))[0], kept

    with compiling_for(kind):
        y, of_x, (kept,) = gradient()
    np.testing.assert_array_equal(kept, x)
    expected, of_x_on_cpu, all_kept = gradient()
    assert len(all_kept) > 2
    np.testing.assert_allclose(y, expected, atol=1e-6)
    np.testing.assert_allclose(of_x, of_x_on_cpu, atol=1e-6)
