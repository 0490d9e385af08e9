"""What `fit` reads: `Batches`, all of whose steps are known, or another source of batches."""

import math

import keras

from ..backend.compilation import CompilerMemory, compiles_shapes
from .alternating import plain_optimizers
from .checkpointing import Checkpoints
from .feed import Epochs, feed_of, tokens_of
from .reporting import Progress, connect
from .sources import length_of, readable


class BatchesRun:
    """A run on `Batches`, which can be interrupted after any step and resumed.

    Args:
        batches: the `Batches` of all steps.
        interval: number of steps between reports, validations and checkpoints.
        start: number of reports that the run has had before.
    """

    def __init__(self, batches, interval, start=0):
        self.batches, self.interval, self.first = batches, interval, start * interval
        self.steps, self.accumulation = len(batches), batches.accumulation

    def open(self, model):
        """Prepares a model for the data."""
        model.tokens_per_step = self.batches.tokens_per_step
        self.feed = feed_of(model, self.batches, self.interval)
        model.prepare(self.feed, training=True)

    def begin(self, model, held_out, callbacks):
        """Chooses the programs, restores a checkpoint, if there is one, and warns of a schedule that has ended.

        Args:
            model: the model, whose optimizer has been made.
            held_out: the dataset for validation, or None.
            callbacks: the callbacks of `fit`.
        """
        validated = self.steps // self.interval * tokens_of(held_out)
        resumable = any(isinstance(callback, Checkpoints) for callback in callbacks)
        model.choose_programs(self.feed.tokens + validated / 3, self.feed.num_widths, resumable)
        self._resume(model, callbacks)
        model.schedule_restored(self.steps, self.accumulation)
        model.check_schedule((self.steps - self.first) // self.accumulation)

    def _resume(self, model, callbacks):
        model.initial_step = self.first
        for callback in callbacks:
            if isinstance(callback, Checkpoints):
                self.first = model.initial_step = callback.restore(model)

    def parts(self, model, callbacks, verbose):
        """Yields the arguments of Keras's `fit` for the rest of an interrupted epoch, if any, and for all others."""
        feed, interval = self.feed, self.interval
        if verbose == "auto" and not any(isinstance(callback, Progress) for callback in callbacks):
            callbacks.append(Progress(self.steps))
        callbacks += [CompilerMemory(), keras.callbacks.History()]
        rest = -self.first % interval
        for steps, last in [(rest, self.first + rest), (interval, self.steps)][not rest :]:
            feed.steps = steps
            feed.start(min(self.first, self.steps - steps))  # Keras looks at a batch even if none is left to train on
            compiles = compiles_shapes() and model.train_function is None
            connect(callbacks, feed.real_tokens, feed.num_widths if compiles else 0)
            yield dict(
                x=feed.for_keras(),
                epochs=last // interval,
                initial_epoch=self.first // interval,
                verbose=0 if verbose == "auto" else verbose,
                callbacks=[Epochs(feed, interval), *callbacks],
                shuffle=False,
            )
            if last == self.steps:
                return
            self._resume(model, callbacks)


class SourceRun:
    """A run on another source of batches, such as a `PyDataset` or a generator, in Keras's epochs.

    Args:
        model: the model.
        source: the source.
        epochs: number of epochs.
        steps_per_epoch: number of batches per epoch. Default: the length of the source.
        shuffle: whether to shuffle a `PyDataset`.

    Raises: ValueError if the default learning rate schedule needs a length that is unknown.
    """

    accumulation = 1

    def __init__(self, model, source, epochs, steps_per_epoch, shuffle):
        steps = steps_per_epoch or length_of(source)
        if steps is None and (not model.compiled or model._is_automatic):
            raise ValueError(
                "The length of the run must be known for the learning rate schedule. Received: a "
                f"{type(source).__name__} with an unknown number of batches. Pass `steps_per_epoch`, or call "
                "`compile(optimizer)` before `fit`."
            )
        self.source, self.steps = source, steps and steps * epochs
        is_shuffled = shuffle and isinstance(source, keras.utils.PyDataset)
        self.options = dict(epochs=epochs, steps_per_epoch=steps_per_epoch, shuffle=is_shuffled)

    def open(self, model):
        """Prepares a model for the data."""
        endless = self.options["steps_per_epoch"] is not None
        self.readable = model.prepare(readable(self.source, model._converted, endless), training=True)

    def begin(self, model, held_out, callbacks):
        """Chooses the programs, and warns of a schedule that has ended."""
        model.choose_programs(math.inf)
        accumulation = getattr(plain_optimizers(model.optimizer)[0], "gradient_accumulation_steps", None) or 1
        model.check_schedule((self.steps or self.options["epochs"]) // accumulation)

    def parts(self, model, callbacks, verbose):
        """Yields the arguments of Keras's `fit`."""
        yield dict(self.options, x=self.readable, callbacks=callbacks, verbose=verbose)


def report_interval(steps, steps_per_epoch):
    """Returns the number of steps in one Keras epoch of a run of `steps` steps.

    This is `steps_per_epoch`, which must divide `steps`, or by default the largest divisor of `steps` up to 1,000.
    """
    if steps_per_epoch is None:
        return next(interval for interval in range(min(steps, 1_000), 0, -1) if steps % interval == 0)
    if steps % steps_per_epoch:
        near = [d for d in range(1, steps + 1) if steps % d == 0]
        near = sorted(near, key=lambda d: abs(d - steps_per_epoch))[:3]
        raise ValueError(
            f"`steps_per_epoch` must divide the length of the run. Received: steps_per_epoch={steps_per_epoch} for "
            f"{steps} steps. Use {', '.join(map(str, sorted(near)))}."
        )
    return steps_per_epoch
