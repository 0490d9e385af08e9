"""Embeddings that train a part of a table only."""

import keras
import numpy as np
from keras import ops

from kerasbert.objectives.shared_embeddings import DisentangledEmbedding
from tests.models.reference import gradient, to_numpy


def test_a_disentangled_table_trains_its_difference_only():
    class Table(keras.layers.Layer):
        embeddings = np.arange(15, dtype="float32").reshape(5, 3)

    table, ids = Table.embeddings, np.array([[1, 4, 1]])
    layer = DisentangledEmbedding(Table())
    layer.build()
    np.testing.assert_array_equal(to_numpy(layer.embeddings), table)
    np.testing.assert_array_equal(to_numpy(layer(ids)), table[ids])

    def total(table, read):
        Table.embeddings = table
        return ops.sum(read() ** 2)

    for read in (lambda: ops.take(layer.embeddings, ids, axis=0), lambda: layer(ids)):
        assert not gradient(lambda table, read=read: total(table, read), table).any()
