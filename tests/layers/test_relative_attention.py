"""Scores by distance: the shift, and the sinusoids."""

import numpy as np
import pytest
from keras import ops

from kerasbert.layers.relative_attention import relative_shift, relative_sinusoids


def test_the_shift_of_the_paper():
    shifted = ops.convert_to_numpy(relative_shift(np.array([[[[0.0, 1, 2], [3, 4, 5]]]], "float32"), 3))
    np.testing.assert_array_equal(shifted[0, 0, 0, :2], [1, 2])  # the third key is later: it means nothing
    np.testing.assert_array_equal(shifted[0, 0, 1], [3, 4, 5])


@pytest.mark.parametrize(("queries", "keys", "later"), [(4, 7, 0), (4, 7, 3), (1, 5, 0), (3, 3, 2)])
def test_every_key_gets_the_score_of_its_distance(queries, keys, later):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 3, queries, keys + later)).astype("float32")
    shifted = ops.convert_to_numpy(relative_shift(scores, keys))
    assert shifted.shape == (2, 3, queries, keys)
    for i in range(queries):
        for j in range(keys):
            distance = i + keys - queries - j
            if distance >= -later:
                np.testing.assert_array_equal(shifted[:, :, i, j], scores[:, :, i, keys - 1 - distance])


def test_sinusoids_stand_in_halves():
    found = ops.convert_to_numpy(relative_sinusoids(np.array([1, 0, -2]), 4))
    expected = [[0.84147, 0.0099998, 0.54030, 0.99995], [0, 0, 1, 1], [-0.90930, -0.0199987, -0.41615, 0.99980]]
    np.testing.assert_allclose(found, expected, atol=1e-5)
