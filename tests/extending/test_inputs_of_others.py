"""Batches that come from tf.data, a PyTorch DataLoader, Grain or a PyDataset."""

import keras
import numpy as np

from kerasbert.models import Bert, BertConfig
from kerasbert.tasks import TextClassifier
from tests.extending.small import SIZES, random_ids

IDS = random_ids(16, 7)
LABELS = IDS[:, 0] % 2


class Rows(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, number):
        part = slice(8 * number, 8 * number + 8)
        return {"token_ids": IDS[part]}, LABELS[part]


def by_tensorflow():
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(({"token_ids": IDS}, LABELS)).batch(8)  # pyright: ignore


def by_torch():
    import torch

    rows = [({"token_ids": ids}, label) for ids, label in zip(torch.tensor(IDS), torch.tensor(LABELS), strict=True)]
    return torch.utils.data.DataLoader(rows, batch_size=8)  # pyright: ignore


def by_grain():
    import grain

    rows = [({"token_ids": ids}, label) for ids, label in zip(IDS, LABELS, strict=True)]
    return grain.MapDataset.source(rows).batch(8)


def test_training_is_that_of_arrays():
    model = TextClassifier(Bert(BertConfig(**SIZES)), labels=2)
    model.compile(keras.optimizers.SGD(0.1))
    weights = model.get_weights()
    sources = [by_torch, by_grain, Rows, *([by_tensorflow] if keras.backend.backend() == "tensorflow" else [])]
    expected = model.fit({"token_ids": IDS}, LABELS, batch_size=8, shuffle=False, verbose=0).history["loss"]
    for source in sources:
        model.set_weights(weights)
        found = model.fit(source(), verbose=0).history["loss"]
        np.testing.assert_allclose(found, expected, rtol=1e-4, err_msg=source.__name__)
