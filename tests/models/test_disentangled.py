"""Disentangled scores against a loop over pairs of tokens; buckets of distances; rows in use."""

import numpy as np
import pytest

from kerasbert.layers.disentangled import disentangled_bias, distances_in_use, log_buckets
from tests.models.reference import to_numpy


def test_scores_are_those_of_the_worked_example():
    """One head of size 1, two rows of the table of distances on either side."""
    query, key = (np.array(x, "float32").reshape(1, 2, 1, 1) for x in ([1, 2], [1, 3]))
    used, rows = distances_in_use(np.array([0, 1, 2, 3, 3], "int32"), 2)
    tables = [np.array(x, "float32")[:, None] for x in ([0, 1, 2, 3], [0, 10, 20, 30])]
    (c2p, p2c), table = (lambda x, table=table: x @ table for table in tables), np.eye(4, dtype="float32")[used]
    both = to_numpy(disentangled_bias(query, key, (table, rows), c2p, p2c, 1.0))
    content = np.array([[1, 3], [2, 6]])
    np.testing.assert_allclose(content + both[0, 0], [[23, 34], [38, 70]])
    scaled = to_numpy(disentangled_bias(query, key, (table, rows), c2p, None, 0.5))
    np.testing.assert_allclose(scaled[0, 0], [[1, 0.5], [3, 2]])
    assert to_numpy(disentangled_bias(query, key, (table, rows), None, None, 1.0)).tolist() == [[[[0.0]]]]


@pytest.mark.parametrize("length", [1, 2, 7])
def test_scores_equal_a_loop(length):
    rng = np.random.default_rng(length)
    query, key = rng.normal(size=(2, 2, length, 3, 4)).astype("float32")
    table, c2p, p2c = rng.normal(size=(8, 5)), rng.normal(size=(5, 12)), rng.normal(size=(5, 12))
    table, c2p, p2c = (x.astype("float32") for x in (table, c2p, p2c))
    row_of = np.minimum(np.arange(-4, 5) + 4, 7).astype("int32")
    used, rows = distances_in_use(row_of, length)
    found = disentangled_bias(query, key, (table[used], rows), lambda x: x @ c2p, lambda x: x @ p2c, 0.3)
    keys, queries = ((table @ kernel).reshape(8, 3, 4) for kernel in (c2p, p2c))
    for i in range(length):
        for j in range(length):
            row = row_of[np.clip(i - j, -4, 4) + 4]
            expected = (query[:, i] * keys[row] + key[:, j] * queries[row]).sum(-1) * 0.3
            np.testing.assert_allclose(to_numpy(found)[:, :, i, j], expected, rtol=1e-4, atol=1e-5)


def test_only_the_rows_in_use_are_taken():
    rows = np.arange(9, dtype="int32")
    used, places = distances_in_use(rows, 3)
    assert used.tolist() == [2, 3, 4, 5, 6] and places.tolist() == [0, 1, 2, 3, 4]
    used, places = distances_in_use(rows, 6)
    assert used.tolist() == list(range(9)) and places.tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 8]


@pytest.mark.one_backend
def test_buckets_are_those_of_the_sheet():
    found = log_buckets(8, 16)
    middle = len(found) // 2
    assert found[middle : middle + 16].tolist() == [0, 1, 2, 3, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7, 7, 7]
    assert found[::-1].tolist() == (-found).tolist()
    found = log_buckets(256, 512)
    middle = len(found) // 2
    assert [found[middle + i] for i in (128, 129, 200, 300, 400, 511)] == [128, 129, 169, 207, 233, 255]


@pytest.mark.one_backend
@pytest.mark.parametrize("sizes", [(256, 512), (64, 512), (8, 16), (6, 23), (5, 23), (3, 9), (2, 5)])
def test_rows_equal_those_of_transformers(sizes):
    import torch
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    distances = np.arange(-600, 601)
    theirs = make_log_bucket_position(torch.from_numpy(distances), *sizes).long().numpy()
    ours = log_buckets(*sizes)
    limit = len(ours) // 2
    clipped = [np.clip(x, -sizes[0], sizes[0] - 1) for x in (ours[np.clip(distances, -limit, limit) + limit], theirs)]
    np.testing.assert_array_equal(*clipped)
