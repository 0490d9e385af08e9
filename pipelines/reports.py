"""Callbacks for fine-tuning: progress by epoch, held-out loss and scores, and restoring the best weights."""

import math
from collections.abc import Callable

import keras
import numpy as np

from kerasbert.data import Batches
from kerasbert.data.batches.bucketing import BucketedBatches
from kerasbert.training import Progress

from .examples import Examples

REPORTS = 12  # number of reports in a run of few epochs
LEAST_STEPS = 2  # minimum number of steps between two reports


def in_reports(batches: Batches, epochs: int) -> tuple[Batches, int]:
    """Divides a run into about `REPORTS` evenly spaced reports, of which one is at the end of each epoch.

    Returns: the batches of the run, and the number of steps between reports.

    If the number of steps of an epoch is not divisible, its last batches are made smaller, which adds at most one step
    in sixteen. If this is not possible, there are fewer reports.
    """
    steps = len(batches) // epochs
    for number in range(min(math.ceil(REPORTS / epochs), max(1, steps // LEAST_STEPS)), 1, -1):
        more = -steps % number
        if more == 0:
            return batches, steps // number
        if more * 16 <= steps and isinstance(batches, BucketedBatches):
            found = batches.in_multiples_of(number)
            if len(found) == (steps + more) * epochs:
                return found, (steps + more) // number
    return batches, steps


def spread(examples: Examples, most: int) -> Examples:
    """Selects at most `most` examples, evenly spaced among all."""
    if len(examples) <= most:
        return examples
    places = np.linspace(0, len(examples) - 1, most).round().astype(int)
    entries = [
        (paragraph, question)
        for article in examples.dataset
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    dataset = [{"paragraphs": [{**entries[i][0], "qas": [entries[i][1]]}]} for i in places if entries]
    return Examples([examples.x[i] for i in places], [examples.y[i] for i in places], dataset)


class HeldOut(keras.callbacks.Callback):
    """Adds the scores of held-out examples to every report, as `val_NAME`.

    Args:
        score: function that maps the model to scores by name.
    """

    def __init__(self, score: Callable[[keras.Model], dict[str, float]]):
        super().__init__()
        self.score = score

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None:
            found = {f"val_{name}": float(value) for name, value in self.score(self.model).items()}
            logs.update({name: value for name, value in found.items() if name not in logs})


def best_weights(patience: int | None = None) -> keras.callbacks.Callback:
    """Returns a callback that, at the end of training, restores the weights with the lowest held-out loss.

    Args:
        patience: stop training after this many consecutive reports without improvement. Default: never.
    """
    return keras.callbacks.EarlyStopping(
        "val_loss", mode="min", patience=10**9 if patience is None else patience, restore_best_weights=True
    )


class EpochProgress(Progress):
    """A `Progress` callback that also shows the epoch.

    Args:
        steps: steps of the run.
        steps_per_epoch: steps of one pass over the examples.
        epochs: number of passes.
    """

    def __init__(self, steps: int, steps_per_epoch: int, epochs: int):
        super().__init__(steps)
        self.steps_per_epoch, self.epochs = steps_per_epoch, epochs

    def _line(self, logs):
        epoch = min(self.epochs, -(-max(1, self.step) // self.steps_per_epoch))
        return f"epoch {epoch} of {self.epochs}  {super()._line(logs)}"
