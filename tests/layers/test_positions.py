"""Rotary positions: the angles, and that only distances reach the scores."""

import keras
import numpy as np

from kerasbert.layers.positions import rotary_angles, rotate


def test_pairs_turn_by_their_frequency():
    """position 3, theta 100, 4 dimensions: pair (0, 2) turns by 3, pair (1, 3) by 3 / 10"""
    angles = rotary_angles(np.array([[3]], "int32"), 4, 100.0)
    x = np.array([1.0, 0.0, 0.0, 2.0], "float32").reshape(1, 1, 1, 4)
    found = keras.ops.convert_to_numpy(rotate(x, angles)).ravel()
    expected = [np.cos(3), -2 * np.sin(0.3), np.sin(3), 2 * np.cos(0.3)]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_scores_depend_on_distances_only():
    rng = np.random.default_rng(0)
    query, key = (rng.normal(size=(1, 1, 2, 8)).astype("float32") for _ in range(2))

    def score(query_position, key_position):
        turned = (
            keras.ops.convert_to_numpy(rotate(x, rotary_angles(np.array([[position]], "int32"), 8, 10_000.0)))
            for x, position in ((query, query_position), (key, key_position))
        )
        return np.sum(np.multiply(*turned), axis=-1).ravel()

    np.testing.assert_allclose(score(7, 4), score(45, 42), atol=1e-5)
    assert np.abs(score(7, 4) - score(7, 5)).min() > 1e-3


def test_half_precision_turns_in_float32():
    """in bfloat16 position 301 would be read as 302"""
    angles = rotary_angles(np.array([[301]], "int32"), 2, 10_000.0)
    x = keras.ops.cast(np.array([1.0, 0.0], "float32").reshape(1, 1, 1, 2), "bfloat16")
    y = rotate(x, angles)
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
    found = keras.ops.convert_to_numpy(keras.ops.cast(y, "float32")).ravel()
    np.testing.assert_allclose(found, [np.cos(301), np.sin(301)], atol=4e-3)
