"""Rotary positions: the angles, and that only distances reach the scores."""

import keras
import numpy as np

from kerasbert.layers.positions import Rotation


def test_pairs_turn_by_their_frequency():
    """position 3, theta 100, 4 dimensions: pair (0, 2) turns by 3, pair (1, 3) by 3 / 10; factor 2: by half"""
    x = np.array([1.0, 0.0, 0.0, 2.0], "float32").reshape(1, 1, 1, 4)
    for factor in (1, 2):
        rotation = Rotation.at(np.array([[3]], "int32"), 4, 100.0, factor)
        found = keras.ops.convert_to_numpy(rotation(x)).ravel()
        first, second = 3 / factor, 0.3 / factor
        expected = [np.cos(first), -2 * np.sin(second), np.sin(first), 2 * np.cos(second)]
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_scores_depend_on_distances_only():
    rng = np.random.default_rng(0)
    query, key = (rng.normal(size=(1, 1, 2, 8)).astype("float32") for _ in range(2))

    def score(query_position, key_position):
        turned = (
            keras.ops.convert_to_numpy(Rotation.at(np.array([[position]], "int32"), 8, 10_000.0)(x))
            for x, position in ((query, query_position), (key, key_position))
        )
        return np.sum(np.multiply(*turned), axis=-1).ravel()

    np.testing.assert_allclose(score(7, 4), score(45, 42), atol=1e-5)
    assert np.abs(score(7, 4) - score(7, 5)).min() > 1e-3


def test_angles_reach_a_layer_of_half_precision_in_float32():
    class Probe(keras.layers.Layer):
        def call(self, x, rotation=None):
            assert keras.backend.standardize_dtype(x.dtype) == "bfloat16"
            assert keras.backend.standardize_dtype(rotation.cosines.dtype) == "float32"
            return rotation(x)

    rotation = Rotation.at(np.array([[301]], "int32"), 2, 10_000.0)
    y = Probe(dtype="bfloat16")(np.array([1.0, 0.0], "float32").reshape(1, 1, 1, 2), rotation=rotation)
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
    found = keras.ops.convert_to_numpy(keras.ops.cast(y, "float32")).ravel()
    np.testing.assert_allclose(found, [np.cos(301), np.sin(301)], atol=4e-3)
