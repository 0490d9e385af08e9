"""What objectives and tasks have in common: a backbone, a tokenizer, and `fit` on batches, arrays or text."""

import os
import warnings

import keras
import numpy as np

from ..backend.compilation import CompilerMemory
from ..backend.distribution import batch_shards, num_replicas
from ..data.batches import Batches, ExampleBatches
from ..data.bucketing import BucketedBatches
from ..data.tokenizers import Tokenizer
from ..training.checkpointing import Checkpoints
from ..training.optimizers import LossScale, adamw
from ..training.reporting import Progress
from .backbone import Backbone, checked_inputs, inputs_are_checked
from .feeding import Epochs, Feed, class_numbers, class_weighted, is_text, joined, num_rows, report_interval, split_last
from .training_mode import TrainingMode

JIT_FROM = 1_000_000  # parameters from which training on TensorFlow is compiled by XLA


class Trainable(TrainingMode):
    """Base of objectives and tasks.

    Args:
        backbone: a `Backbone`.
        tokenizer: a `Tokenizer`; without one, text is refused.
        **kwargs: `name` and `dtype` (default: the backbone's).
    """

    default_learning_rate = 5e-5
    needs_targets = False  # whether texts and arrays are nothing to train on, or to measure, without a y
    needs_query_stream = False  # whether it reads the query stream of a backbone that has one
    needs_mask_decoder = False  # whether it reads what a backbone's mask decoder, if it has one, makes of its states

    def __init__(self, backbone, tokenizer=None, **kwargs):
        if not isinstance(backbone, Backbone):
            raise ValueError(
                f"`backbone` must be a Backbone, such as Bert(BertConfig(...)). Received: {type(backbone).__name__}."
            )
        kwargs["dtype"] = kwargs.get("dtype") or backbone.dtype_policy
        super().__init__(**kwargs)
        if tokenizer is not None and tokenizer.vocabulary_size > backbone.config.vocabulary_size:
            raise ValueError(
                "A tokenizer's ids must all be in the backbone's vocabulary. Received: a tokenizer of "
                f"{tokenizer.vocabulary_size} pieces, a backbone of {backbone.config.vocabulary_size}. "
                "Use the tokenizer the backbone was trained with."
            )
        self.backbone = backbone
        self.tokenizer = tokenizer

    def build_now(self):
        """Creates every weight; the last line of each subclass's `__init__`."""
        needs_pooler = self.needs_pooler(self.backbone.family(), self.arguments())
        for name, needed in (
            ("pooler", needs_pooler),
            ("mask_decoder", self.needs_mask_decoder),
            ("query_embedding", self.needs_query_stream),
        ):
            part = getattr(self.backbone, name, None)
            if part is not None and self.backbone.trainable:
                # One that this model does not read would get no gradient: it waits for a model that does.
                part.trainable = needed
        with checked_inputs():
            self(self.example_inputs())

    def example_inputs(self):
        return self.backbone.example_inputs()

    def __call__(self, inputs, *args, **kwargs):
        if not inputs_are_checked():
            self.check_batch(inputs)
        with checked_inputs():
            return super().__call__(inputs, *args, **kwargs)

    # === What a subclass says of itself ===

    def arguments(self):
        """Constructor arguments besides backbone and tokenizer, as json can hold them."""
        return {}

    def variant(self):
        """The row of the family's HUGGINGFACE_CLASSES that this model is saved as."""
        return type(self).__name__

    def config_extras(self):
        """What this model adds to the config.json of its backbone."""
        return {}

    @classmethod
    def arguments_from_config(cls, stored, own):
        """Constructor arguments: those given (`own`), completed from a config.json."""
        return own

    @classmethod
    def head_to_renew(cls, stored, own):
        """The kind of head that a folder has for other labels than those given (`own`), to be made new; or None."""
        return None

    @classmethod
    def open_folder(cls, folder, own):
        """(folder of the backbone, constructor arguments): a model's folder may be more than its backbone's."""
        return folder, own

    def write_extras(self, folder):
        """Writes what this model's folder has beside the files of its backbone."""

    @classmethod
    def needs_pooler(cls, family, own):
        """Whether the backbone must have its pooler for this model."""
        return False

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """The run over texts `x`; a subclass that takes text overrides it."""
        raise ValueError(f"{type(self).__name__} takes batches or arrays. Received: text.")

    def encode_labels(self, labels):
        """Targets as an array."""
        return np.asarray(labels)

    def check_batch(self, x, y=None, sample_weight=None):
        """Raises a ValueError when a batch holds what compiled code would misread in silence."""
        self.backbone.check_inputs(x)

    # === Training and prediction ===

    def compile(self, optimizer="rmsprop", jit_compile="auto", **kwargs):
        """As Keras's `compile`; for float16, the optimizer gets a loss scale that misses no overflow.

        On TensorFlow "auto" means XLA from `JIT_FROM` parameters on, for training and evaluation: steps take a quarter
        less time then, but every shape has to be compiled.
        """
        optimizer = keras.optimizers.get(optimizer)
        scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        if self.dtype_policy.name == "mixed_float16" and not scaled:
            optimizer = LossScale(optimizer)
        on_tensorflow = keras.backend.backend() == "tensorflow"
        if jit_compile == "auto" and on_tensorflow and not kwargs.get("run_eagerly") and num_replicas() == 1:
            jit_compile = self.count_params() >= JIT_FROM
        with warnings.catch_warnings():  # with deterministic operations Keras warns and goes without XLA
            warnings.filterwarnings("ignore", message=".*jit_compile=True.*")
            super().compile(optimizer, jit_compile=jit_compile, **kwargs)

    def make_predict_function(self, force=False):
        chosen = self.jit_compile
        if keras.backend.backend() == "tensorflow":  # predictions have many shapes
            self.jit_compile = False
        try:
            return super().make_predict_function(force)
        finally:
            self.jit_compile = chosen

    def compile_from_config(self, config):
        """Compiles a model that comes from a `.keras` file. Keras leaves out models with a `compile` of their own."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def fit(
        self,
        x=None,
        y=None,
        batch_size=32,
        epochs=1,
        verbose="auto",
        callbacks=None,
        validation_split=0.0,
        validation_data=None,
        class_weight=None,
        sample_weight=None,
        steps_per_epoch=None,
        shuffle=True,
        seed=0,
        **kwargs,
    ):
        """Trains on `Batches` (a whole run), on arrays, or on text.

        Args:
            x: a `Batches`; or texts; or a dict of arrays as DESIGN's batch contract has it; or whatever Keras takes.
            y, sample_weight, batch_size, epochs, validation_split, class_weight: as in Keras; for texts and arrays.
            steps_per_epoch: with `Batches`, how many steps a report, a validation and a checkpoint are apart. It must
                divide the run; default: the largest number up to 1,000 that does.
            callbacks: a `Checkpoints` among them resumes the run where its folder left it, to the bit.
            validation_data: a `Batches`, or (x, y) or (x, y, sample_weight) of arrays or texts.
            shuffle: whether every epoch has texts and arrays in an order of its own; a `Batches` has its order.
            seed: of these orders.

        Returns: the Keras History.
        """
        if epochs < 1:
            raise ValueError(f"`epochs` must be at least 1. Received: {epochs}.")
        if self._is_ours(x) and "initial_epoch" in kwargs:
            raise ValueError("`initial_epoch` would repeat data. Use a `Checkpoints` callback, which resumes a run.")
        self._check_targets(x, y)
        callbacks = list(callbacks or [])
        ours = dict(y=y, sample_weight=sample_weight, batch_size=batch_size, class_weight=class_weight)
        if validation_split:
            if not self._is_ours(x) or isinstance(x, Batches):
                raise ValueError("`validation_split` needs arrays or texts. Give validation_data instead.")
            x, ours, validation_data = split_last(x, ours, validation_split)
        if not self._is_ours(x):
            if not self.compiled:
                raise ValueError("Call `compile(optimizer)` before `fit` on a data set of unknown length.")
            validation_data = self._feed(validation_data, batch_size) if validation_data is not None else None
            with checked_inputs():
                return super().fit(
                    x,
                    epochs=epochs,
                    verbose=verbose,
                    callbacks=callbacks,
                    validation_data=validation_data,
                    class_weight=class_weight,
                    steps_per_epoch=steps_per_epoch,
                    shuffle=shuffle,
                    **kwargs,
                )
        if isinstance(x, Batches):
            if epochs != 1 or y is not None:
                raise ValueError(
                    "A Batches is a whole run with its targets: its length is the number of steps. Received: "
                    f"epochs={epochs}, y={type(y).__name__}. Make the Batches longer, and drop `epochs` and `y`."
                )
            steps_per_epoch = report_interval(len(x), steps_per_epoch)
        else:
            x = self._batches(x, epochs=epochs, seed=seed, shuffle=shuffle, **ours)
            steps_per_epoch = len(x) // epochs
        if not self.compiled:
            steps = len(x) // x.accumulation
            rate = self.default_learning_rate
            self.compile(adamw(rate, warmup=steps // 10, steps=steps, accumulation=x.accumulation))
        self.tokens_per_step = x.tokens_per_step
        feed = Feed(x, steps_per_epoch, self.check_batch)
        first = self._resume(callbacks, steps_per_epoch)
        feed.start(first)
        if verbose == "auto" and not any(isinstance(callback, Progress) for callback in callbacks):
            callbacks.append(Progress(len(x)))
        callbacks.append(CompilerMemory())
        with checked_inputs():
            return super().fit(
                feed.for_keras(),
                epochs=len(x) // steps_per_epoch,
                initial_epoch=first // steps_per_epoch,
                verbose=0 if verbose == "auto" else verbose,
                callbacks=[Epochs(feed), *callbacks],
                validation_data=None if validation_data is None else self._feed(validation_data, batch_size),
                shuffle=False,
                **kwargs,
            )

    def evaluate(self, x=None, y=None, batch_size=32, sample_weight=None, **kwargs):
        """As Keras's `evaluate`, on `Batches`, arrays or texts as well."""
        self._check_targets(x, y)
        with checked_inputs():
            if not self._is_ours(x):
                return super().evaluate(x, y, batch_size=batch_size, sample_weight=sample_weight, **kwargs)
            return super().evaluate(self._feed((x, y, sample_weight), batch_size), **kwargs)

    def predict(self, x, batch_size=32, **kwargs):
        """The outputs for `Batches`, arrays or texts, as numpy, in the order of the input.

        Texts of like length are predicted together, in batches of a few fixed widths; where outputs have a column a
        token, the columns of padding that a batch did not have are 0.
        """
        with checked_inputs():
            if not self._is_ours(x):
                return super().predict(x, batch_size=batch_size, **kwargs)
            rows = None if isinstance(x, Batches) else num_rows(x)
            if rows == 0:
                raise ValueError("`predict` needs at least one example. Received: none.")
            if rows is not None:
                smallest = 1 << (rows - 1).bit_length() if is_text(x) else batch_size
                batch_size = -(-min(batch_size, smallest) // batch_shards()) * batch_shards()
            if is_text(x):
                x = self._batches(x, None, None, batch_size, epochs=1, seed=0, shuffle=False)
            if isinstance(x, BucketedBatches):
                return self._predict_by_width(x, kwargs)
            outputs = super().predict(self._feed((x, None, None), batch_size), **kwargs)
        return keras.tree.map_structure(lambda array: array[:rows], outputs)

    def _predict_by_width(self, batches, options):
        """Outputs in the order of the examples; columns are filled with zeros up to the widest batch."""
        parts, places = [], []
        for part, examples in batches.parts():
            parts.append(super().predict(self._feed(part, None), **options))
            places.append(examples)
        # Only the last batch of all has rows of padding, and they come last.
        order = np.argsort(np.concatenate(places))
        return keras.tree.map_structure(lambda *arrays: joined(arrays, batches.pads_left)[order], *parts)

    def _resume(self, callbacks, steps_per_epoch):
        """Restores from a `Checkpoints` callback, if there is one; the first step of the rest of the run."""
        step = self.initial_step = 0
        for callback in callbacks:
            if isinstance(callback, Checkpoints):
                step = self.initial_step = callback.restore(self)
        if step % steps_per_epoch:
            raise ValueError(
                f"A run resumes where an interval of steps_per_epoch={steps_per_epoch} begins. Received: a checkpoint "
                f"at step {step}. Use the steps_per_epoch of the first part of the run."
            )
        return step

    def _check_targets(self, x, y):
        if self.needs_targets and y is None and self._is_ours(x) and not isinstance(x, Batches):
            raise ValueError(f"{type(self).__name__} needs targets. Received: y=None. Use fit(x, y), or predict(x).")

    def _is_ours(self, x):
        return isinstance(x, (Batches, dict, list, tuple)) or is_text(x)

    def _feed(self, data, batch_size):
        """A whole `Batches`, or (x, y, sample_weight) of arrays or texts once through in order, for Keras."""
        if isinstance(data, tuple):
            x, y, sample_weight = (*data, None, None)[:3]
            if not self._is_ours(x):
                return data
            data = x
            if not isinstance(x, Batches):
                data = self._batches(x, y, sample_weight, batch_size, epochs=1, seed=0, shuffle=False)
        if not isinstance(data, Batches):
            return data
        return Feed(data, len(data), self.check_batch).for_keras()

    def _batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle, class_weight=None):
        if class_weight is not None:
            class_weight = class_numbers(class_weight, getattr(self, "labels", []))
            sample_weight = class_weighted(self.encode_labels(y), sample_weight, class_weight)
        if is_text(x):
            return self.text_batches(x, y, sample_weight, batch_size, epochs, seed, shuffle)
        if isinstance(x, dict):
            return ExampleBatches(x, y, sample_weight, batch_size, epochs=epochs, seed=seed, shuffle=shuffle)
        raise ValueError(
            "Data must be Batches, a dict of arrays with `token_ids`, or text. Received: a "
            f"{type(x).__name__}{f' that begins with {x[0]!r:.40}' if isinstance(x, list) else ''}."
        )

    # === Saving ===

    def get_config(self):
        return {
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            **self.arguments(),
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        config["backbone"] = keras.saving.deserialize_keras_object(config["backbone"])
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        return cls(**config)

    def save_assets(self, folder):
        """The tokenizer inside a `.keras` file."""
        if self.tokenizer is not None:
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
                file.write(self.tokenizer.to_json())

    def load_assets(self, folder):
        path = os.path.join(folder, "tokenizer.json") if folder else None
        if path and os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self.tokenizer = Tokenizer.from_json(file.read())

    @classmethod
    def from_preset(cls, path, load_weights=True, dtype=None, **overrides):
        """A model from a folder of its backbone's family, from a size name, or from `hf://org/name`.

        Heads that the folder lacks are made new, with a warning.

        Args:
            path: see `Backbone.from_preset`.
            load_weights: False leaves the weights random.
            dtype: a Keras dtype policy.
            **overrides: arguments of this class, of the backbone, or fields of its config.
        """
        from ..checkpoints import presets

        return presets.load_trainable(cls, path, load_weights=load_weights, dtype=dtype, **overrides)

    def save_to_preset(self, path, **options):
        """Writes weights, config and tokenizer in the Hugging Face layout, heads included where it has a place.

        Options are those of `Backbone.save_to_preset`.
        """
        from ..checkpoints import presets

        presets.save(self, path, **options)

    def require_tokenizer(self):
        if self.tokenizer is None:
            raise ValueError(
                f"Text needs a tokenizer. Received text by a {type(self).__name__} without one: its folder has no "
                "tokenizer files. Pass tokenizer=Tokenizer.load(...), or give token ids."
            )
        return self.tokenizer
