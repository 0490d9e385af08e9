"""Base class with `compile`, `fit`, `evaluate` and `predict` for batches, arrays and text."""

import functools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from ..backend.compilation import CompilerMemory, compiles_shapes, reading_weights
from ..backend.datasets import data_errors
from ..backend.distribution import batch_shards
from ..backend.keras_adapter import is_validation
from ..backend.lost_hosts import ending_together
from ..core.inputs import check_arrays, check_keys, check_numbers, checked_inputs
from ..data.batches.batches import Batches, ExampleBatches
from ..data.batches.bucketing import BucketedBatches
from .alternating import plain_optimizers
from .checkpointing import Checkpoints
from .feeding import (
    Epochs,
    check_devices,
    class_numbers,
    class_weighted,
    feed_of,
    is_text,
    num_rows,
    predict_by_width,
    report_interval,
    single,
    split_last,
    tokens_of_validation,
)
from .optimizers import adamw
from .programs import Programs, is_same_state, traced_state
from .reporting import Progress, connect
from .schedules import RunDecay
from .sources import KINDS, check_source, length_of, readable, unpacked
from .user_data import UserData


class Fitting(UserData, Programs):
    """A Keras model whose `fit`, `evaluate` and `predict` accept `Batches`, arrays and text.

    Subclasses implement `text_batches` and `check_batch`.
    """

    default_learning_rate = 5e-5

    def compile_from_config(self, config):
        """Compiles a model that has been loaded from a `.keras` file.

        Keras does not do this by itself for models that override `compile`.
        """
        config = keras.saving.deserialize_keras_object(config)
        is_automatic = config.pop("automatic", False)
        self.compile(**config)
        self._is_automatic = is_automatic
        self.optimizer.build(self.trainable_variables)

    def get_compile_config(self):
        config = super().get_compile_config()
        return {**config, "automatic": True} if config and self._is_automatic else config

    def _compile_automatically(self, steps=1, accumulation=1):
        """Compiles a model that the user has not compiled.

        Args:
            steps: number of batches of the run.
            accumulation: number of batches per update of the weights.
        """
        self.compile(adamw(RunDecay(*self._numbers_of_run(steps, accumulation)), accumulation=accumulation))
        self._is_automatic = True
        self.__dict__["_traced_state"] = traced_state(self)

    def _numbers_of_run(self, steps, accumulation):
        """The arguments of the default schedule, for a run of `steps` batches: the peak, and numbers of updates."""
        updates = max(1, steps // accumulation)
        return self.default_learning_rate, updates // 10, updates

    def _start_schedule(self, steps, accumulation=1):
        """Starts the default optimizer for a run of `steps` batches, if the user has not passed one to `compile`.

        If the user has set its learning rate since the last run, its state is kept, too. Otherwise, it starts as a new
        one. It is a new one if the model has changed since it was compiled.
        """
        if not self.compiled:
            self._compile_automatically(steps or 1, accumulation)
        elif self._is_automatic and steps:
            (given,) = plain_optimizers(self.optimizer)
            if given.built and given.schedule is None and given.iterations > 0:
                return  # the user has set `optimizer.learning_rate` since the last run
            is_same = (given.gradient_accumulation_steps or 1) == accumulation and self.optimizer.built
            if is_same and is_same_state(self.__dict__.get("_traced_state"), traced_state(self)):
                self.optimizer.restart(*self._numbers_of_run(steps, accumulation))
            else:
                self._compile_automatically(steps, accumulation)
        if not self.optimizer.built:  # TensorFlow would otherwise trace the training step twice
            self.optimizer.build(self.trainable_variables)
        schedules = tuple(getattr(optimizer, "schedule", None) for optimizer in plain_optimizers(self.optimizer))
        if schedules != self.__dict__.get("_compiled_schedules", schedules):
            self.forget_programs()  # the old ones were compiled for other schedules
        self.__dict__["_compiled_schedules"] = schedules

    def _check_schedule(self, steps):
        """Warns if a learning rate is 0 during all of the next `steps` updates."""
        for optimizer in plain_optimizers(self.optimizer):
            schedule = getattr(optimizer, "schedule", None)
            first = int(keras.ops.convert_to_numpy(optimizer.iterations))
            if schedule is None or not first or steps < 1:
                continue
            rates = [float(keras.ops.convert_to_numpy(schedule(update))) for update in (first, first + steps - 1)]
            if not any(rates):
                warnings.warn(
                    "The learning rate must be above 0 for training: this run changes no weights. Received: a schedule "
                    f"that has ended, with a rate of 0 from update {first} on. Compile the model with a new optimizer, "
                    "or set model.optimizer.learning_rate = 1e-5.",
                    stacklevel=3,
                )

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int = 32,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Sequence[keras.callbacks.Callback] | None = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        class_weight: Mapping[int, float] | Mapping[str, float] | None = None,
        sample_weight: Any = None,
        steps_per_epoch: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """Trains on `Batches` (a whole run), on arrays, or on text.

        Args:
            x: a `Batches`; or texts; or a dict of arrays (a `kerasbert.core.Batch`); or a PyDataset, DataLoader,
                tf.data.Dataset or generator of batches (x, y) or (x, y, sample_weight) of arrays or texts.
            y, sample_weight, batch_size, epochs, validation_split, class_weight: the same as in Keras, for texts and
                arrays only.
            steps_per_epoch: with `Batches`, the number of steps between reports, validations and checkpoints. It must
                divide the length of the run. Default: the largest divisor of the length up to 1,000.
            callbacks: list of Keras callbacks. A `Checkpoints` resumes the run from its folder bit-exactly.
            validation_data: a `Batches`, or a tuple (x, y) or (x, y, sample_weight) of arrays or texts.
            shuffle: whether to shuffle texts and arrays in every epoch. The order of a `Batches` is fixed.
            seed: seed of the shuffling.

        Returns: the Keras `History`.
        """
        if epochs < 1:
            raise ValueError(f"`epochs` must be at least 1. Received: {epochs}.")
        x, y, sample_weight = self.data_of(x, y, sample_weight)
        check_devices(self, "fit", self._is_ours(x))
        start = kwargs.pop("initial_epoch", 0) if self._is_ours(x) else 0
        if start and (isinstance(x, Batches) or not 0 < start < epochs):
            raise ValueError(f"`initial_epoch` needs texts or arrays, and must be in [0, {epochs}). Received: {start}.")
        self._check_targets(x, y)
        ours = dict(y=y, sample_weight=sample_weight, batch_size=batch_size, class_weight=class_weight)
        if validation_split:
            if not self._is_ours(x) or isinstance(x, Batches):
                raise ValueError("`validation_split` needs arrays or texts. Use validation_data instead.")
            x, ours, validation_data = split_last(x, ours, validation_split)
        # Validation data are read only once the model is prepared for the data of the run.
        held_out = functools.partial(self._feed, validation_data, batch_size) if validation_data is not None else None
        run = dict(held_out=held_out, verbose=verbose, callbacks=list(callbacks or []), **kwargs)
        if not self._is_ours(x):
            check_source(x)
            if y is not None:
                raise ValueError(f"The batches of a {type(x).__name__} contain their targets. Received: y. Omit it.")
            run["class_weight"] = class_weight and class_numbers(class_weight, getattr(self, "labels", []))
            return self._fit_source(x, epochs, steps_per_epoch, shuffle, **run)
        if isinstance(x, Batches):
            if epochs != 1 or y is not None:
                raise ValueError(
                    "A Batches contains all steps of the run, and the targets. Received: "
                    f"epochs={epochs}, y={type(y).__name__}. Make the Batches longer, and omit `epochs` and `y`."
                )
            return self._fit_batches(x, report_interval(len(x), steps_per_epoch), **run)
        x = self._batches(x, epochs=epochs, seed=seed, shuffle=shuffle, **ours)
        return self._fit_batches(x, len(x) // epochs, start, **run)

    def _fit_source(self, x, epochs, steps_per_epoch, shuffle, held_out, **options):
        """Trains on a Keras data source, in Keras's epochs. `held_out` returns the validation data, or is None."""
        steps = steps_per_epoch or length_of(x)
        if steps is None and (not self.compiled or self._is_automatic):
            raise ValueError(
                "The length of the run must be known for the learning rate schedule. Received: a "
                f"{type(x).__name__} with an unknown number of batches. Pass `steps_per_epoch`, or call "
                "`compile(optimizer)` before `fit`."
            )
        self._start_schedule(steps and steps * epochs)
        self.choose_programs(math.inf)
        source = self.prepare(readable(x, self._converted, endless=steps_per_epoch is not None), training=True)
        accumulation = getattr(plain_optimizers(self.optimizer)[0], "gradient_accumulation_steps", None) or 1
        self._check_schedule((steps or 1) * epochs // accumulation)
        held_out = held_out and held_out()
        shuffle = shuffle and isinstance(x, keras.utils.PyDataset)
        options |= dict(epochs=epochs, steps_per_epoch=steps_per_epoch, validation_data=held_out, shuffle=shuffle)
        with checked_inputs(), data_errors():
            return super().fit(source, **options)

    def _fit_batches(self, x, steps_per_epoch, start=0, *, held_out, verbose, callbacks, **options):
        """Trains on `Batches`, with a report every `steps_per_epoch` steps.

        Args:
            start: number of reports that the run has had before.
            held_out: function that returns the validation data, or None.
        """
        self._start_schedule(len(x), x.accumulation)
        self.tokens_per_step = x.tokens_per_step
        feed = feed_of(self, x, steps_per_epoch)
        self.prepare(feed, training=True)
        held_out = held_out and held_out()
        validated = len(x) // steps_per_epoch * tokens_of_validation(held_out)
        resumable = any(isinstance(callback, Checkpoints) for callback in callbacks)
        self.choose_programs(feed.tokens + validated / 3, feed.num_widths, resumable)
        first = self._resume(callbacks, start * steps_per_epoch)
        if self._is_automatic and (schedule := plain_optimizers(self.optimizer)[0].schedule) is not None:
            schedule.start(*self._numbers_of_run(len(x), x.accumulation))  # a checkpoint has replaced the numbers
        self._check_schedule((len(x) - first) // x.accumulation)
        if verbose == "auto" and not any(isinstance(callback, Progress) for callback in callbacks):
            callbacks.append(Progress(len(x)))
        callbacks += [CompilerMemory(), keras.callbacks.History()]
        rest = -first % steps_per_epoch  # steps left in an interrupted epoch
        for steps, last in [(rest, first + rest), (steps_per_epoch, len(x))][not rest :]:
            feed.steps = steps
            feed.start(first)
            compiles = compiles_shapes() and self.train_function is None
            connect(callbacks, feed.real_tokens, feed.num_widths if compiles else 0)
            with checked_inputs(), data_errors(), ending_together():
                history = super().fit(
                    feed.for_keras(),
                    epochs=last // steps_per_epoch,
                    initial_epoch=first // steps_per_epoch,
                    verbose=0 if verbose == "auto" else verbose,
                    callbacks=[Epochs(feed, steps_per_epoch), *callbacks],
                    validation_data=held_out,
                    shuffle=False,
                    **options,
                )
            if last == len(x):
                return history
            first = self._resume(callbacks)

    def evaluate(self, x: Any = None, y: Any = None, batch_size: int = 32, sample_weight: Any = None, **kwargs: Any):
        """Computes the loss and metrics, as Keras's `evaluate` does, on any data that `fit` accepts."""
        if is_validation(kwargs):
            return super().evaluate(x, **kwargs)
        x = self.examples_of(x)
        self._check_targets(x, y)
        check_devices(self, "evaluate", self._is_ours(x))
        if not self.compiled:
            self._compile_automatically()
        source = self._feed((x, y, sample_weight), batch_size)
        if self.test_function is None:
            self.choose_programs(tokens_of_validation(source) / 3)
        with checked_inputs(), data_errors(), ending_together():
            return super().evaluate(source, **kwargs)

    def predict(self, x: Any, batch_size: int = 32, **kwargs: Any) -> Any:
        """Returns the outputs for `Batches`, arrays or texts as numpy arrays, in the order of the inputs.

        Texts are sorted into batches of a few fixed widths (numbers of tokens), so that texts of similar length are
        predicted together. Outputs with one column per token are padded with zeros to the largest width. Several
        threads may call `predict` at the same time. On JAX, their calls run one after the other.
        """
        x = self.examples_of(x)
        check_devices(self, "predict", self._is_ours(x))
        with reading_weights(), checked_inputs(), data_errors():
            if not self._is_ours(x):
                source = self.prepare(readable(x, self._converted_inputs), training=False)
                return single(super().predict(source, **kwargs))
            if isinstance(x, dict):
                check_keys(self.inputs_of_backbone(x), self.backbone.extra_inputs)
            rows = None if isinstance(x, Batches) else num_rows(x)
            if rows == 0:
                raise ValueError("`predict` needs at least one example. Received: none.")
            if rows is not None:
                smallest = 1 << (rows - 1).bit_length() if is_text(x) else batch_size
                batch_size = -(-min(batch_size, smallest) // batch_shards()) * batch_shards()
            if is_text(x):
                x = self._batches(x, None, None, batch_size, epochs=1, seed=0, shuffle=False)
            if isinstance(x, BucketedBatches):
                predict = super().predict
                return single(predict_by_width(self, x, lambda part: predict(self._feed(part, None), **kwargs)))
            outputs = super().predict(self._feed((x, None, None), batch_size), **kwargs)
        return single(keras.tree.map_structure(lambda array: array[:rows], outputs))

    def train_on_batch(self, x, *args, **kwargs):
        self.prepare([(x,)], training=True)
        return super().train_on_batch(x, *args, **kwargs)

    def test_on_batch(self, x, *args, **kwargs):
        self.prepare([(x,)], training=False)
        return super().test_on_batch(x, *args, **kwargs)

    def predict_on_batch(self, x):
        self.prepare([(x,)], training=False)
        return super().predict_on_batch(x)

    def prepare(self, batches, training):
        """Creates variables whose shapes depend on the data. Called before the data are read.

        All methods that train, evaluate or predict call this method, and so do eager calls of the model. Compiled
        programs cannot create variables, so variables whose shapes depend on the batch, such as a memory (see
        `objectives.memory`), are created here. `fit` calls this method before it restores a checkpoint.

        Args:
            batches: an iterable of batches, which are tuples that begin with the inputs.
            training: whether the model will be trained on the batches.

        Returns: an iterable of the same batches. It is a new one if `batches` is an iterator from which this method
            has read.
        """
        return batches

    def _converted(self, batch):
        """Converts a batch of a dataset to a tuple of arrays (x, y, sample_weight), without items that are None.

        Texts are encoded, and the arrays are checked.
        """
        x, y, sample_weight = unpacked(batch)
        if is_text(x):
            steps = self._batches(x, y, sample_weight, len(x), epochs=1, seed=0, shuffle=False)
            if len(steps) != 1:
                raise ValueError(
                    "Texts of a dataset are encoded batch by batch, with one row per text. Received: texts that make "
                    f"{len(steps)} batches of {len(x)} rows for a {type(self).__name__}. Pass all texts as a list."
                )
            x, y, sample_weight = steps[0]
        elif y is not None:
            y = self.array_targets(y)
        self.check_batch(x, y, sample_weight)
        return tuple(arrays for arrays in (x, y, sample_weight) if arrays is not None)

    def _converted_inputs(self, batch):
        """Converts a batch of a dataset to a tuple that holds only the inputs."""
        return self._converted(self.inputs_among(*unpacked(batch)))[:1]

    def _resume(self, callbacks, step=0):
        """Restores the model from a `Checkpoints` callback, if there is one. Returns its step, or else `step`."""
        self.initial_step = step
        for callback in callbacks:
            if isinstance(callback, Checkpoints):
                step = self.initial_step = callback.restore(self)
        return step

    def _feed(self, data, batch_size):
        """Converts data to a dataset for Keras that is read once, in order.

        Args:
            data: a `Batches`, another source of batches, or a tuple (x, y, sample_weight), where x may be one of these,
                a dict of arrays, or texts.
            batch_size: number of examples per batch of arrays or texts.
        """
        if isinstance(data, list) and len(data) in (2, 3) and not isinstance(data[0], (str, tuple)):
            data = tuple(data)  # Keras accepts lists, too
        data = data if isinstance(data, tuple) else self.examples_of(data)
        if isinstance(data, list) and is_text(data):
            self._check_targets(data, None)
            data = (data,)
        if isinstance(data, tuple):
            data, y, sample_weight = self.data_of(*(*data, None, None)[:3])
            if self._is_ours(data) and not isinstance(data, Batches):
                data = self._batches(data, y, sample_weight, batch_size, epochs=1, seed=0, shuffle=False)
            elif y is not None:
                raise ValueError(f"The batches of a {type(data).__name__} contain their targets. Received: y. Omit it.")
        if not isinstance(data, Batches):
            return self.prepare(readable(data, self._converted), training=False)
        feed = feed_of(self, data, len(data))
        self.prepare(feed, training=False)
        return feed.for_keras()

    def _batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle, class_weight=None):
        """Returns the `Batches` for a dict of arrays, or for texts. The arguments are the same as for `fit`."""
        x, y, sample_weight = self.data_of(x, y, sample_weight)
        check_numbers(x, y if isinstance(y, np.ndarray) else None, sample_weight)  # before the first step
        if class_weight is not None:
            class_weight = class_numbers(class_weight, getattr(self, "labels", []))
            sample_weight = class_weighted(self.encode_labels(y), sample_weight, class_weight)
        if is_text(x):
            return self.text_batches(x, y, sample_weight, batch_size, epochs, seed, shuffle)
        if isinstance(x, dict):
            x = {key: np.asarray(array) for key, array in x.items() if array is not None}
            inputs = self.inputs_of_backbone(x)  # checked before batches are padded to their full size
            check_keys(inputs, self.backbone.extra_inputs)
            check_arrays(inputs)
            y = None if y is None else self.array_targets(y)
            return ExampleBatches(x, y, sample_weight, batch_size, epochs=epochs, seed=seed, shuffle=shuffle)
        raise ValueError(
            f"Data must be {KINDS}. Received: a "
            f"{type(x).__name__}{f' that begins with {x[0]!r:.40}' if isinstance(x, list) else ''}."
        )
