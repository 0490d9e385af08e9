"""Keras's own callbacks on a task: early stopping, checkpoints, a schedule by epoch, and a log."""

import csv

import keras
import numpy as np

from kerasbert.models import Bert, BertConfig
from kerasbert.tasks import TextClassifier
from tests.extending.small import SIZES, random_ids


def test_callbacks_of_keras(tmp_path):
    model = TextClassifier(Bert(BertConfig(**SIZES)), labels=2)
    x = {"token_ids": random_ids(16, 7)}
    y = x["token_ids"][:, 0] % 2
    model.compile(keras.optimizers.Adam(1e-2))
    callbacks = [
        keras.callbacks.EarlyStopping("val_loss", patience=0, restore_best_weights=True),
        keras.callbacks.ModelCheckpoint(tmp_path / "best.weights.h5", save_best_only=True, save_weights_only=True),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: 1e-2 if epoch < 2 else 1.0),
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
    ]
    data: dict = dict(validation_data=(x, y), batch_size=8, epochs=9, verbose=0)
    history = model.fit(x, y, callbacks=callbacks, **data).history
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    assert len(rows) == len(history["loss"]) < 9  # a rate of 1.0 makes it worse, which stops it
    assert [float(row["learning_rate"]) for row in rows[:3]] == [np.float32(1e-2), np.float32(1e-2), 1.0]
    best = model.predict(x, verbose=0)
    model.load_weights(tmp_path / "best.weights.h5")
    np.testing.assert_array_equal(model.predict(x, verbose=0), best)
