"""The gated feed-forward network by its closed form."""

from math import erf

import numpy as np
import pytest
from keras import ops

from kerasbert.layers.feed_forward import GatedFeedForward


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2)))


@pytest.mark.parametrize("use_bias", [True, False])
def test_the_inner_half_passes_the_activation_and_the_gate_does_not(use_bias):
    layer = GatedFeedForward(5, 7, use_bias=use_bias)
    x = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    layer(x)
    assert len(layer.weights) == (6 if use_bias else 3)
    for weight in layer.weights:
        weight.assign(np.random.default_rng(1).normal(size=weight.shape).astype("float32"))

    def dense(part, x):
        y = x @ ops.convert_to_numpy(part.kernel)
        return y + ops.convert_to_numpy(part.bias) if use_bias else y

    expected = dense(layer.outer, gelu(dense(layer.inner, x)) * dense(layer.gate, x))
    np.testing.assert_allclose(ops.convert_to_numpy(layer(x)), expected, atol=1e-4)
