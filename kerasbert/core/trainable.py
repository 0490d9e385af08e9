"""Base class of objectives and tasks: a backbone, a tokenizer, and `fit` on batches, arrays or text."""

import os

import keras
import numpy as np

from ..backend.compilation import concrete_array, reading_weights
from ..checkpoints import presets
from ..data.tokenizers.tokenizer import Tokenizer
from .backbone import Backbone, refuse_quantization
from .fitting import Fitting
from .inputs import checked_inputs, inputs_are_checked
from .summaries import known_shapes


class Trainable(Fitting):
    """Base class of objectives and tasks.

    Several models may share a backbone. None of them changes it: variables that a model does not train, such as those
    of a pooler that it does not read, are only left out of that model's `trainable_variables`.

    Args:
        backbone: a `Backbone`.
        tokenizer: a `Tokenizer`; without one, text inputs raise an error.
        **kwargs: `name` and `dtype` (default: the backbone's).
    """

    trains_backbone = True  # False: the backbone is frozen and only provides features
    needs_query_stream = False  # whether it reads the query stream of a backbone that has one
    extra_inputs = ()  # keys of a batch that this model reads itself
    needs_mask_decoder = False  # whether it reads the output of a backbone's mask decoder, if there is one

    def __init__(self, backbone, tokenizer=None, **kwargs):
        if not isinstance(backbone, Backbone):
            raise ValueError(
                f"`backbone` must be a Backbone, such as Bert(BertConfig(...)). Received: {type(backbone).__name__}."
            )
        kwargs["dtype"] = kwargs.get("dtype") or backbone.dtype_policy
        super().__init__(**kwargs)
        if tokenizer is not None and tokenizer.vocabulary_size > backbone.config.vocabulary_size:
            raise ValueError(
                "A tokenizer's ids must all be in the backbone's vocabulary. Received: a tokenizer with "
                f"{tokenizer.vocabulary_size} tokens, a backbone with {backbone.config.vocabulary_size}. "
                "Use the tokenizer that the backbone was trained with."
            )
        self.backbone = backbone
        self.tokenizer = tokenizer

    def build_now(self):
        """Creates every weight. Must be the last line of each subclass's `__init__`."""
        with checked_inputs():
            self(self.example_inputs())

    def build(self, input_shape=None):
        """The layers build themselves in the first call, as in `layers.composite.Composite`."""

    def example_inputs(self):
        return self.backbone.example_inputs()

    def __call__(self, inputs, *args, **kwargs):
        if inputs_are_checked():
            return super().__call__(inputs, *args, **kwargs)
        self.check_batch(inputs)
        first = next(array for array in keras.tree.flatten(inputs) if array is not None)
        if concrete_array(first) is not None:  # neither traced nor symbolic
            self.prepare([(inputs,)], bool(kwargs.get("training")))
        with reading_weights(), checked_inputs():
            return super().__call__(inputs, *args, **kwargs)

    # === What is trained ===

    def trained_parts(self):
        """The models that this one is composed of, each of which defines what it trains; empty for a single model."""
        return []

    def untrained_variables(self):
        """Variables of its layers that this model does not train, whether or not they are trainable."""
        parts = self.trained_parts()
        if parts:
            trained = {id(variable) for part in parts for variable in part.trainable_variables}
            held = {id(variable): variable for part in parts for variable in part.variables}
            return [variable for key, variable in held.items() if key not in trained]
        if not self.trains_backbone:
            return self.backbone.variables
        reads = {
            "pooler": self.needs_pooler(self.backbone.family, self.arguments()),
            "mask_decoder": self.needs_mask_decoder,
            "query_embedding": self.needs_query_stream,
        }
        layers = [getattr(self.backbone, name, None) for name, is_read in reads.items() if not is_read]
        return [variable for layer in layers if layer is not None for variable in layer.variables]

    def _selected(self, variables, trained):
        """The `variables` that this model trains, or those that it does not train."""
        untrained = {id(variable) for variable in self.untrained_variables()} if self.trainable else ()
        return [v for v in variables if (self.trainable and v.trainable and id(v) not in untrained) == trained]

    @property
    def trainable_variables(self):
        """The variables that `fit` trains."""
        return self._selected(self.variables, True)

    @property
    def non_trainable_variables(self):
        return self._selected(self.variables, False)

    @property
    def trainable_weights(self):
        return self._selected(self.weights, True)

    @property
    def non_trainable_weights(self):
        return self._selected(self.weights, False)

    # === Overridden by subclasses ===

    def arguments(self):
        """Constructor arguments besides the backbone and tokenizer, in a form that JSON can represent."""
        return {}

    def variant(self):
        """The key in the family's Hugging Face `classes` under which this model is saved."""
        return type(self).__name__

    def config_extras(self):
        """Fields that this model adds to the config.json of its backbone."""
        return {}

    @classmethod
    def arguments_from_config(cls, stored, settings):
        """The constructor arguments `settings`, completed from the content of a config.json."""
        return settings

    @classmethod
    def head_to_renew(cls, stored, settings):
        """The kind of head to initialise anew, because the folder has it for labels other than `settings`; or None."""
        return None

    @classmethod
    def open_folder(cls, folder, settings):
        """(folder of the backbone, constructor arguments), for models whose backbone may be in a subfolder."""
        return folder, settings

    def write_extras(self, folder):
        """Writes the files of this model other than those of its backbone."""

    @classmethod
    def needs_pooler(cls, family, settings):
        """Whether the backbone must have its pooler for this model."""
        return False

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """The `Batches` for texts `x`; subclasses that accept text override it."""
        raise ValueError(f"{type(self).__name__} takes batches or arrays. Received: text.")

    def encode_labels(self, labels):
        """Targets as an array."""
        return np.asarray(labels)

    def inputs_of_backbone(self, x):
        """The part of a batch that the backbone receives: all keys except those that this model reads itself."""
        if not isinstance(x, dict) or not self.extra_inputs:
            return x
        return {key: array for key, array in x.items() if key not in self.extra_inputs}

    def check_batch(self, x, y=None, sample_weight=None):
        """Raises a ValueError for a batch that compiled code would silently misread."""
        self.backbone.check_inputs(self.inputs_of_backbone(x))

    def summary(self, *args, **kwargs):
        """Keras's `summary` with output shapes, in which sizes that depend on the batch are None."""
        with known_shapes(self):
            super().summary(*args, **kwargs)

    def quantize(self, mode=None, **options):
        refuse_quantization(self, mode)

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
        """Writes the tokenizer into a `.keras` file."""
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

        Heads that the folder lacks are newly initialised, with a warning.

        Args:
            path: see `Backbone.from_preset`.
            load_weights: False leaves the weights random.
            dtype: a Keras dtype policy.
            **overrides: arguments of this class, of the backbone, or fields of its config.
        """
        return presets.load_trainable(cls, path, load_weights=load_weights, dtype=dtype, **overrides)

    def save_to_preset(self, path, **options):
        """Writes weights, config and tokenizer in the Hugging Face layout, including the heads that it supports.

        Options are those of `Backbone.save_to_preset`.
        """
        presets.save(self, path, **options)

    def require_tokenizer(self):
        if self.tokenizer is None:
            raise ValueError(
                f"Text needs a tokenizer. Received: text for a {type(self).__name__} without one: its folder has no "
                "tokenizer files. Pass tokenizer=Tokenizer.load(...), or use token ids."
            )
        return self.tokenizer
