"""Callbacks for fine-tuning: progress by epoch, held-out loss and scores, and restoring the best weights."""

import math
from collections.abc import Callable, Container

import keras
import numpy as np

from kerasbert.data import Batches
from kerasbert.data.batches.bucketing import BucketedBatches
from kerasbert.training import Progress

from ..reading.examples import Examples

REPORTS = 12  # number of reports in a run of few epochs
LEAST_STEPS = 2  # minimum number of steps between two reports
MOST_ROWS = 1_000  # maximum number of examples in a validation
LEAST_ROWS = 32  # minimum number of examples in a validation, if there are so many
# Validation may take a tenth of the time. It reads each example twice, for the loss and for the scores, which each take
# a third of a training step.
SHARE = 0.1 / (2 / 3)
CHOICES = 4  # minimum number of validations in a run that keeps the best weights


def validation_rows(trained: int, epochs: int, choosing: bool) -> int:
    """Number of examples to validate on, so that at least one validation per epoch takes a tenth of the time in total.

    Args:
        trained: number of examples in the whole run, each counted once per epoch.
        epochs: number of epochs.
        choosing: whether the run keeps the weights with the lowest loss, which needs several validations.
    """
    validations = max(epochs, CHOICES) if choosing else epochs
    return min(MOST_ROWS, max(LEAST_ROWS, int(SHARE * trained / validations)))


def validated_reports(reports: int, epochs: int, affordable: float) -> list[int]:
    """Selects the reports with a validation: at most `affordable` of them, and always the last one.

    They are evenly spaced, unless that would be fewer than half of those that are affordable. Then those of an epoch
    are as evenly spaced as possible.

    Args:
        reports: number of reports in the run, of which one is at the end of each epoch.
        epochs: number of epochs.
        affordable: number of validations.

    Returns: numbers of reports, counted from 1, in ascending order.
    """
    per_epoch = reports // epochs
    steps = [step for step in range(1, per_epoch + 1) if per_epoch % step == 0]
    steps += [per_epoch * count for count in range(2, epochs + 1)]
    every = next((step for step in steps if reports / step <= affordable), reports)
    count = min(int(affordable / epochs), per_epoch)
    if reports / every < count * epochs / 2:
        places = [math.ceil(per_epoch * (n + 1) / count) for n in range(count)]
        return [epoch * per_epoch + place for epoch in range(epochs) for place in places]
    return sorted({*range(every, reports + 1, every), reports})


def plan_reports(
    batches: Batches, epochs: int, validation: Examples | None, validate_every: int | None = None
) -> tuple[Batches, int, list[int]]:
    """Divides a run into reports, and selects those with a validation.

    Args:
        batches: the batches of the run.
        epochs: number of epochs.
        validation: the examples to validate on, or None.
        validate_every: number of steps between validations. Default: at least one per epoch, as `validation_rows`
            assumes, and more if they take at most a tenth of the time.

    Returns: the batches of the run, the number of steps between reports, and the numbers of the reports with a
        validation, counted from 1.
    """
    wanted = REPORTS if validate_every is None else math.ceil(len(batches) / validate_every)
    batches, interval = in_reports(batches, epochs, max(REPORTS, wanted))
    affordable = float(wanted)
    if validate_every is None and validation is not None:
        affordable = max(epochs, SHARE * len(batches) * batches.batch_size / len(validation))
    return batches, interval, validated_reports(len(batches) // interval, epochs, affordable)


def in_reports(batches: Batches, epochs: int, least: int = REPORTS) -> tuple[Batches, int]:
    """Divides a run into about `least` evenly spaced reports, of which one is at the end of each epoch.

    Returns: the batches of the run, and the number of steps between reports.

    If the number of steps of an epoch is not divisible, its last batches are made smaller, which adds at most one step
    in sixteen. If this is not possible, there are fewer reports.
    """
    steps = len(batches) // epochs
    for number in range(min(math.ceil(least / epochs), max(1, steps // LEAST_STEPS)), 1, -1):
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


def few_enough(examples: Examples, rows: int) -> Examples:
    """Selects `rows` examples to validate on, or all if there are at most twice as many."""
    return examples if len(examples) <= 2 * rows else spread(examples, rows)


class HeldOut(keras.callbacks.Callback):
    """Adds the scores of held-out examples to reports, as `val_NAME`.

    Args:
        score: function that maps the model to scores by name.
        reports: numbers of the reports with scores, counted from 1.
    """

    def __init__(self, score: Callable[[keras.Model], dict[str, float]], reports: Container[int]):
        super().__init__()
        self.score, self.reports = score, reports

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None and epoch + 1 in self.reports:
            found = {f"val_{name}": float(value) for name, value in self.score(self.model).items()}
            logs.update({name: value for name, value in found.items() if name not in logs})


class BestWeights(keras.callbacks.EarlyStopping):
    """At the end of training, restores the weights with the lowest held-out loss.

    Args:
        patience: stop training after this many consecutive validations without improvement. Default: never.
        reports_per_epoch: number of reports in an epoch, for the message at the end.
    """

    def __init__(self, patience: int | None = None, reports_per_epoch: int = 1):
        super().__init__(
            "val_loss", mode="min", patience=10**9 if patience is None else patience, restore_best_weights=True
        )
        self.reports_per_epoch = reports_per_epoch

    def on_epoch_end(self, epoch, logs=None):
        if self.monitor in (logs or {}):  # not every report has a validation
            super().on_epoch_end(epoch, logs)

    def on_train_end(self, logs=None):
        super().on_train_end(logs)
        if self.best_weights is not None:
            best, last = (
                f"{(report + 1) / self.reports_per_epoch:.4g}" for report in (self.best_epoch, self.stopped_epoch)
            )
            stopped = f"stopped after epoch {last} (--patience); " if self.stopped_epoch else ""
            lowest = f"{float(self.best):.4g}"
            print(f"{stopped}the weights of epoch {best} are kept, whose validation loss is the lowest: {lowest}")


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
