"""Initializers are rebuilt from their configs, with a new seed, or as zeros while a model is loaded."""

import json

import keras
import numpy as np
import pytest

from kerasbert.core import initializers
from kerasbert.core.initializers import zero_weights

pytestmark = pytest.mark.one_backend

INITIALIZERS = {
    "truncated_normal": lambda: initializers.truncated_normal(0.5),
    "cutoff": lambda: initializers.truncated_normal(0.5, 1.0),
    "normal": lambda: initializers.normal(0.5, 1.0),
    "glorot_uniform": initializers.glorot_uniform,
    "orthogonal": initializers.orthogonal,
    "uniform": lambda: initializers.uniform(0.5),
    "by_inputs": initializers.uniform_by_inputs,
    "zero_row": lambda: initializers.with_zero_row(initializers.normal(0.5), 3),
    "zero_row_with_cutoff": lambda: initializers.with_zero_row(initializers.truncated_normal(0.5, 1.0), 3),
    "sinusoidal": initializers.SinusoidalTable,
}


def values(initializer):
    return keras.ops.convert_to_numpy(initializer((40, 30), "float32"))


def rebuilt(initializer):
    stored = json.loads(json.dumps(keras.saving.serialize_keras_object(initializer)))
    return keras.saving.deserialize_keras_object(stored)


@pytest.mark.parametrize("name", INITIALIZERS)
def test_rebuilt_initializers_draw_from_the_same_distribution(name):
    first, second = (values(initializer) for initializer in (INITIALIZERS[name](), rebuilt(INITIALIZERS[name]())))
    np.testing.assert_allclose([second.mean(), second.std()], [first.mean(), first.std()], atol=0.06)
    assert np.array_equal(first, second) == (name == "sinusoidal")  # a new seed
    assert (not first[3].any()) == (not second[3].any()) == name.startswith("zero_row")


@pytest.mark.parametrize("name", sorted(set(INITIALIZERS) - {"sinusoidal"}))
def test_an_initializer_of_zeros_is_rebuilt_as_the_one_that_it_replaces(name):
    with zero_weights():
        zeros = INITIALIZERS[name]()
        assert not values(zeros).any() and not values(rebuilt(zeros)).any()
    again = rebuilt(zeros)
    assert type(again) is type(INITIALIZERS[name]()) and values(again).any()


def test_zeros_without_a_history_stay_zeros():
    assert not values(rebuilt(initializers.CountedZeros())).any()
