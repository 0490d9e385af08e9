"""Sizes and ids that the scripts of this folder share."""

import numpy as np

SIZES: dict = dict(
    vocabulary_size=61, num_layers=2, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=16, dropout=0.0
)


def random_ids(rows, length, seed=0):
    return np.random.default_rng(seed).integers(5, 61, (rows, length)).astype("int32")
