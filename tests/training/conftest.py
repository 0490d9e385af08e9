"""A tiny classifier with dropout, and batches that depend on the step only."""

import keras
import numpy as np
import pytest


class Steps(keras.utils.PyDataset):
    """Batches `start` to `stop` of a run; `broken` names one whose labels' weights are nan."""

    def __init__(self, start, stop, broken=None):
        super().__init__()
        self.start, self.stop, self.broken = start, stop, broken

    def __len__(self):
        return self.stop - self.start

    def __getitem__(self, index):
        step = self.start + index
        generator = np.random.Generator(np.random.Philox(key=[0, step]))
        x = generator.integers(0, 13, (4, 5), dtype="int32")
        weight = np.full(4, np.nan if step == self.broken else 1.0, "float32")
        return x, x[:, 0] % 3, weight


def build_model(optimizer=None, width=8):
    inputs = keras.Input((5,), dtype="int32")
    x = keras.layers.Embedding(13, width)(inputs)
    x = keras.layers.LayerNormalization()(x)
    x = keras.layers.Dropout(0.3)(x)
    x = keras.layers.Dropout(0.2, seed=7)(x)
    model = keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Flatten()(x)))
    model.compile(optimizer or keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(True))
    return model


def train(model, start, stop, callbacks=(), epoch=4, broken=None, **options):
    """`stop - start` steps, in epochs of `epoch`."""
    return model.fit(
        Steps(start, stop, broken),
        epochs=(stop - start) // epoch,
        steps_per_epoch=epoch,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
        **options,
    )


def state(model):
    """Every variable of the model and its optimizer as numpy."""
    return [np.copy(keras.ops.convert_to_numpy(v)) for v in (*model.variables, *model.optimizer.variables)]


@pytest.fixture(scope="session")
def tiny():
    """`build_model`, `train`, `state` and `Steps`, for tests that cannot import from here."""
    return type("Tiny", (), {f.__name__: staticmethod(f) for f in (build_model, train, state)} | {"Steps": Steps})
