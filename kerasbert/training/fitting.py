"""Base class with `compile`, `fit`, `evaluate` and `predict` for batches, arrays and text."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from ..backend.compilation import reading_weights
from ..backend.datasets import data_errors
from ..backend.distribution import batch_shards, check_processes
from ..backend.keras_adapter import all_layers, is_validation, replica_scope
from ..backend.layouts import check_layout
from ..backend.lost_hosts import ending_together
from ..core.caller import warn_caller
from ..core.inputs import check_keys, checked_inputs
from ..data.batches.batches import Batches
from ..data.batches.bucketing import BucketedBatches
from ..data.counts import check_counts
from .alternating import plain_optimizers
from .convert import UserData, check_options, class_numbers, num_rows, split_last
from .feed import feed_of, tokens_of
from .optimizers import adamw
from .prediction import predict_by_width, single
from .programs import Programs, is_same_state, traced_state
from .runs import SourceRun
from .schedules import LORA_FACTOR, RunDecay, fine_tuning_rate
from .sources import check_source, is_text, readable


class Fitting(UserData, Programs):
    """A Keras model whose `fit`, `evaluate` and `predict` accept `Batches`, arrays and text.

    Subclasses implement `text_batches` and `check_batch`.
    """

    default_learning_rate: float | None = None  # the peak; None: `fine_tuning_rate` of the backbone's width

    def compile(self, optimizer: str | keras.optimizers.Optimizer | None = None, **kwargs: Any) -> None:
        """Configures the model for training, as Keras's `compile` does.

        Args:
            optimizer: a Keras optimizer. Default: the one of `fit` without `compile`. This is AdamW with a warm-up of
                10% of the updates of each run, and a linear decay. Its peak is `default_learning_rate`, or, for tasks,
                the `fine_tuning_rate` of the backbone. After `add_lora`, it is ten times as high.
        """
        self.__dict__["_compile_options"] = kwargs
        super().compile(adamw(RunDecay(*self._numbers_of_run(1, 1))) if optimizer is None else optimizer, **kwargs)
        self._is_automatic = optimizer is None

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
        """Compiles a model for which the user has not chosen an optimizer, with the losses and metrics that it has.

        Args:
            steps: number of batches of the run.
            accumulation: number of batches per update of the weights.
        """
        optimizer = adamw(RunDecay(*self._numbers_of_run(steps, accumulation)), accumulation=accumulation)
        if self.compiled:
            super().compile(optimizer, **self.__dict__["_compile_options"])
        else:
            self.compile(optimizer)
        self._is_automatic = True
        self.__dict__["_traced_state"] = traced_state(self)

    def _numbers_of_run(self, steps, accumulation):
        """The arguments of the default schedule, for a run of `steps` batches: the peak, and numbers of updates."""
        updates = max(1, steps // accumulation)
        return _default_peak(self), updates // 10, updates

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

    def schedule_restored(self, steps, accumulation):
        """Sets the numbers of a run in the default schedule, which a checkpoint may have replaced."""
        if self._is_automatic and (schedule := plain_optimizers(self.optimizer)[0].schedule) is not None:
            schedule.start(*self._numbers_of_run(steps, accumulation))

    def check_schedule(self, steps):
        """Warns if a learning rate is 0 during all of the next `steps` updates."""
        for optimizer in plain_optimizers(self.optimizer):
            schedule = getattr(optimizer, "schedule", None)
            first = int(keras.ops.convert_to_numpy(optimizer.iterations))
            if schedule is None or not first or steps < 1:
                continue
            rates = [float(keras.ops.convert_to_numpy(schedule(update))) for update in (first, first + steps - 1)]
            if not any(rates):
                warn_caller(
                    "The learning rate must be above 0 for training: this run changes no weights. Received: a schedule "
                    f"that has ended, with a rate of 0 from update {first} on. Compile the model with a new optimizer, "
                    "or set model.optimizer.learning_rate = 1e-5."
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
                divide the length of the run. Default: the largest divisor of the length up to 1,000. Refused for texts
                and arrays, of which an epoch is one pass.
            callbacks: list of Keras callbacks. A `Checkpoints` resumes the run from its folder bit-exactly.
            validation_data: a `Batches`, or a tuple (x, y) or (x, y, sample_weight) of arrays or texts.
            shuffle: whether to shuffle texts and arrays in every epoch. The order of a `Batches` is fixed.
            seed: seed of the shuffling.

        Returns: the Keras `History`.

        Raises:
            TypeError: if an argument is unknown.
            ValueError: if a number is no integer of at least 1, targets are missing, data do not fit the model, all
                weights of examples are 0, text needs a tokenizer, `validation_split` leaves one part empty or is given
                beside `validation_data`, `class_weight` has an unknown label, `steps_per_epoch` does not divide the
                length of `Batches`, or the length of a source is unknown and `compile` has no optimizer.
        """
        batch_size = 32 if batch_size is None else batch_size  # as in Keras
        check_counts(epochs=epochs, batch_size=batch_size)
        check_counts(or_none=True, steps_per_epoch=steps_per_epoch)
        check_options("fit", kwargs)
        x, y, sample_weight = self.data_of(x, y, sample_weight)
        is_ours = self._is_ours(x)
        self._check_targets(x, y)
        check_processes("fit", is_ours)
        check_layout(self.trainable_variables, getattr(self.backbone.config, "num_heads", None))
        ours = dict(y=y, sample_weight=sample_weight, batch_size=batch_size, class_weight=class_weight)
        x, ours, held_out = self._held_out(x, ours, validation_data, validation_split)
        if is_ours:
            first = kwargs.pop("initial_epoch", 0)
            run = self._run_of_batches(x, epochs, first, steps_per_epoch, dict(ours, seed=seed, shuffle=shuffle))
        else:
            check_source(x, y)
            kwargs["class_weight"] = class_weight and class_numbers(class_weight, getattr(self, "labels", []))
            run = SourceRun(self, x, epochs, steps_per_epoch, shuffle)
        return self._train(run, held_out, batch_size, verbose, list(callbacks or []), kwargs)

    def _held_out(self, x, ours, validation_data, validation_split):
        """Returns (x, ours, (x, y, sample_weight) for validation or None); see `split_last`."""
        if not validation_split:
            return x, ours, None if validation_data is None else self._validation(validation_data)
        if not self._is_ours(x) or isinstance(x, Batches):
            raise ValueError("`validation_split` needs arrays or texts. Use validation_data instead.")
        if validation_data is not None:
            raise ValueError("Validation needs `validation_data` or `validation_split`. Received: both. Leave one out.")
        return split_last(x, ours, validation_split)

    def _train(self, run, held_out, batch_size, verbose, callbacks, options):
        """Trains the model, part by part of a run.

        Args:
            run: a `BatchesRun` or `SourceRun`.
            held_out: (x, y, sample_weight) for validation, or None. They are read only once the model is prepared for
                the data of the run.
            batch_size: number of examples per batch of `held_out`.
            verbose, callbacks, options: arguments of Keras's `fit`.
        """
        with replica_scope(self):
            self._start_schedule(run.steps, run.accumulation)
        run.open(self)
        held_out = held_out and self._feed(*held_out, batch_size)
        run.begin(self, held_out, callbacks)
        for part in run.parts(self, callbacks, verbose):
            with checked_inputs(), data_errors(), ending_together(), self.keeping_weights():
                history = super().fit(**part, validation_data=held_out, **options)
        return history

    def evaluate(self, x: Any = None, y: Any = None, batch_size: int = 32, sample_weight: Any = None, **kwargs: Any):
        """Computes the loss and metrics, as Keras's `evaluate` does, on any data that `fit` accepts.

        Raises:
            ValueError: if targets are missing, data do not fit the model, all weights of examples are 0, or text needs
                a tokenizer.
        """
        if is_validation(kwargs):
            return super().evaluate(x, **kwargs)
        x, y, sample_weight = self.data_of(x, y, sample_weight)
        self._check_targets(x, y)
        check_processes("evaluate", self._is_ours(x))
        if not self.compiled:
            with replica_scope(self):
                self._compile_automatically()
        source = self._feed(x, y, sample_weight, batch_size)
        if self.test_function is None:
            self.choose_programs(tokens_of(source) / 3)
        with checked_inputs(), data_errors(), ending_together(), self.keeping_weights():
            return super().evaluate(source, **kwargs)

    def predict(self, x: Any, batch_size: int = 32, **kwargs: Any) -> Any:
        """Returns the outputs for `Batches`, arrays or texts as numpy arrays, in the order of the inputs.

        Texts are sorted into batches of a few fixed widths (numbers of tokens), so that texts of similar length are
        predicted together. Outputs with one column per token are padded with zeros to the largest width. Several
        threads may call `predict` at the same time. On JAX, their calls run one after the other.

        Raises:
            ValueError: if there are no examples, inputs do not fit the model, text needs a tokenizer, or several
                processes run.
        """
        x = self.examples_of(x)
        check_processes("predict", self._is_ours(x))
        with reading_weights(), checked_inputs(), data_errors(), self.keeping_weights():
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
                x = self.batches_for_prediction(x, batch_size)
            if isinstance(x, BucketedBatches):
                predict = super().predict
                return single(predict_by_width(self, x, lambda part: predict(self._feed(part), **kwargs)))
            outputs = super().predict(self._feed(x, batch_size=batch_size), **kwargs)
        return single(keras.tree.map_structure(lambda array: array[:rows], outputs))

    def _feed(self, x, y=None, sample_weight=None, batch_size=None):
        """Returns a dataset for Keras of data in the form of `data_of`, which is read once, in order."""
        if self._is_ours(x) and not isinstance(x, Batches):
            x = self._batches(x, y, sample_weight, batch_size, epochs=1, seed=0, shuffle=False)
        else:
            check_source(x, y)
        if not isinstance(x, Batches):
            return self.prepare(readable(x, self._converted), training=False)
        feed = feed_of(self, x, len(x))
        self.prepare(feed, training=False)
        return feed.for_keras()

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


def _default_peak(model):
    """The peak of the default learning rate: that of the class of the model, or for tasks by the width of the model."""
    rate = model.default_learning_rate or fine_tuning_rate(model.backbone.config.hidden_dim)
    adapted = any(getattr(layer, "lora_enabled", False) for layer in all_layers(model.backbone))
    return LORA_FACTOR * rate if adapted else rate
