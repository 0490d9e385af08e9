"""Scores by distance: the shift, the sinusoids, and the buckets."""

import numpy as np
import pytest
from keras import ops

from kerasbert.layers.relative_attention import relative_shift, relative_sinusoids
from kerasbert.layers.relative_bias import BucketedBias, distance_buckets, relative_buckets


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


# === Buckets ===


@pytest.mark.one_backend
def test_the_papers_buckets():
    """First distances of the wide buckets: 8, 12, 16, 23, ... of 16 a direction; 16, 19, 21, ... of 32 for one."""
    first = [int(np.flatnonzero(distance_buckets(16, 128) == bucket)[0]) for bucket in range(8, 16)]
    assert first == [8, 12, 16, 23, 32, 46, 64, 91]
    first = [int(np.flatnonzero(distance_buckets(32, 128) == bucket)[0]) for bucket in range(16, 32)]
    assert first == [16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]


@pytest.mark.one_backend
@pytest.mark.parametrize("sizes", [(32, 128), (8, 9), (9, 20), (32, 256), (64, 1000), (4, 30), (5, 11)])
def test_buckets_equal_transformers(sizes):
    import torch
    from transformers.models.t5.modeling_t5 import T5Attention as attention

    distances = np.arange(-1_500, 1_501, dtype="int32")
    for bidirectional in (True, False):
        expected = attention._relative_position_bucket(torch.from_numpy(distances), bidirectional, *sizes)
        found = relative_buckets(ops.convert_to_tensor(distances), *sizes, bidirectional)
        np.testing.assert_array_equal(ops.convert_to_numpy(found), expected.numpy())


def test_a_bias_is_the_row_of_the_distance():
    layer = BucketedBias(3, num_buckets=8, max_distance=9, initializer="random_normal")
    distances = np.array([[0, 3, 40], [-1, -3, -40]], "int32")
    found = ops.convert_to_numpy(layer(distances))
    table = ops.convert_to_numpy(layer.embeddings)
    np.testing.assert_array_equal(found[0, :, 0].T, table[[0, 6, 7]])
    np.testing.assert_array_equal(found[0, :, 1].T, table[[1, 2, 3]])
    one_way = ops.convert_to_numpy(layer(distances, bidirectional=False))
    np.testing.assert_array_equal(one_way[0, :, 0].T, table[[0, 0, 0]])
    np.testing.assert_array_equal(one_way[0, :, 1].T, table[[1, 3, 7]])
