"""Base class of objectives and tasks: a backbone, a tokenizer, and `fit` on batches, arrays or text."""

import os
from os import PathLike
from typing import Any, Self

import keras
import numpy as np

from ..backend.compilation import concrete_array, reading_weights
from ..backend.devices import chosen_policy
from ..backend.distribution import gather_weights
from ..backend.layouts import gathered_for_use
from ..checkpoints import presets, saves
from ..checkpoints.with_heads import WithHeads
from ..core.caller import warn_caller
from ..core.inputs import check_numbers, check_tokenizer_size, checked_inputs, inputs_are_checked
from ..core.quantization import Quantizable, as_config, quantize_layers
from ..core.summaries import known_shapes
from ..data.batches.bucketing import BucketedBatches, Widths
from ..data.tokenizers.tokenizer import Tokenizer
from ..models.backbone import Backbone
from .fitting import Fitting
from .programs import training_program_tokens


class Trainable(WithHeads, Quantizable, Fitting):
    """Base class of objectives and tasks.

    Several models may share a backbone, and none of them changes it. Variables of the backbone that a model does not
    train, such as those of an unused pooler, are left out of the `trainable_variables` of that model only.

    Args:
        backbone: a `Backbone`.
        tokenizer: a `Tokenizer`, which is required for text inputs.
        **kwargs: `name` and `dtype`. The default dtype is the backbone's.
    """

    trains_backbone = True  # False: the backbone is frozen and only provides features
    needs_query_stream = False  # whether this model reads the query stream of a backbone that has one (XLNet)
    extra_inputs = ()  # batch keys that this model reads itself, and that the backbone does not receive
    hub_task = None  # the Hugging Face Hub's name of the task, such as "fill-mask"
    hub_purpose: str | None = None  # what the model is for, in model cards; None: what models of the task are for
    in_sentence_transformers: tuple[str, str] | None = None  # the class that loads its folder, and a call of it
    example_call = ""  # line of code for model cards, which calls `model`; "{mask}" stands for the mask token
    engine = None  # what computes the outputs in place of the layers, for a model that was loaded from an export
    pads_as_tokenizer = True  # whether texts are padded on the side that the tokenizer says
    needs_mask_decoder = False  # whether this model reads the output of the backbone's mask decoder, if it has one

    def __init__(self, backbone: Backbone, tokenizer: Tokenizer | None = None, **kwargs: Any):
        if not isinstance(backbone, Backbone):
            raise ValueError(
                f"`backbone` must be a Backbone, such as Bert(BertConfig(...)). Received: {type(backbone).__name__}."
            )
        kwargs["dtype"] = chosen_policy(kwargs.get("dtype")) or backbone.dtype_policy
        super().__init__(**kwargs)
        if tokenizer is not None:
            check_tokenizer_size(tokenizer, backbone.config.vocabulary_size)
        self.backbone = backbone
        self.tokenizer = tokenizer
        if tokenizer is not None and tokenizer.padding_side == "left" and self.pads_as_tokenizer:
            self._warn_of_left_padding()

    def _warn_of_left_padding(self):
        if self.backbone.learned_positions and not self.backbone.counts_real_tokens:
            warn_caller(
                f"Padding on the left moves the positions of {type(self.backbone).__name__}, so that the outputs for a "
                "text depend on the other texts of its batch. Received: a tokenizer that pads on the left. Unless the "
                'model was trained so, set model.tokenizer.padding_side = "right".'
            )

    def build_now(self):
        """Creates all weights by calling the model on a tiny input. Must be the last line of each `__init__`."""
        with checked_inputs():
            self(self.example_inputs())

    def build(self, input_shape=None):
        """Does nothing: the layers build themselves in the first call, as in `layers.composite.Composite`."""

    def example_inputs(self):
        """A tiny batch, on which the model can be called to create its weights."""
        return self.backbone.example_inputs()

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if inputs_are_checked():
            return super().__call__(inputs, *args, **kwargs)
        self.check_batch(inputs)
        first = next(array for array in keras.tree.flatten(inputs) if array is not None)
        if concrete_array(first) is not None:  # neither traced nor symbolic
            self.prepare([(inputs,)], bool(kwargs.get("training")))
        with reading_weights(), checked_inputs():
            return super().__call__(inputs, *args, **kwargs)

    def stateless_call(self, trainable_variables, *args, **kwargs):
        """Calls Keras's method with weights that are gathered on every device; see `gathered_for_use`."""
        return super().stateless_call(gathered_for_use(trainable_variables, self.trainable_variables), *args, **kwargs)

    def predict(self, x: Any, batch_size: int = 32, **kwargs: Any) -> Any:
        if self.engine is not None:
            return self.engine.predict(self, self.examples_of(x), batch_size)
        return super().predict(x, batch_size, **kwargs)

    predict.__doc__ = Fitting.predict.__doc__

    # === What is trained ===

    def trained_parts(self):
        """The models that this model consists of, or an empty list if it is not composed of other models.

        Each of them defines which of its variables are trained.
        """
        return []

    def untrained_variables(self):
        """The variables of this model's layers that it does not train, even if they are marked as trainable."""
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
        """Selects the variables in a list that this model trains, or if `trained` is False, does not train."""
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

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Returns the `Batches` for texts `x`. Overridden by subclasses that accept text."""
        raise ValueError(f"{type(self).__name__} takes batches or arrays. Received: text.")

    def bucketed_batches(self, x, y, sample_weight, *options, **more):
        """Returns the `BucketedBatches` of arrays, in widths that suit this model. The options are the same."""
        return BucketedBatches(x, y, sample_weight, *options, widths=self.batch_widths(), **more)

    def batch_widths(self):
        """The `Widths` of batches that suit this model."""
        return Widths(self.max_length, program_tokens=training_program_tokens(self))

    def encode_labels(self, labels):
        """Converts targets to an array."""
        return np.asarray(labels)

    def inputs_of_backbone(self, x):
        """Returns the inputs for the backbone: a batch without the keys in `extra_inputs`."""
        if not isinstance(x, dict) or not self.extra_inputs:
            return x
        return {key: array for key, array in x.items() if key not in self.extra_inputs}

    def check_batch(self, x, y=None, sample_weight=None):
        """Raises a ValueError for an invalid batch, for which compiled code would silently compute wrong results."""
        self.backbone.check_inputs(self.inputs_of_backbone(x))
        check_numbers(x, y, sample_weight)

    def summary(self, *args: Any, **kwargs: Any) -> None:
        """Prints Keras's `summary` with the output shapes of all layers. Sizes that depend on the batch are None."""
        with known_shapes(self):
            super().summary(*args, **kwargs)

    # === Saving ===

    def get_config(self):
        return {
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            **self.arguments(),
            **as_config(self),
        }

    @classmethod
    def from_config(cls, config):
        config: dict[str, Any] = dict(config)
        config["backbone"] = keras.saving.deserialize_keras_object(config["backbone"])
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        schemes = config.pop("quantization", {})
        model = cls(**config)
        quantize_layers(model, schemes)
        return model

    def save_assets(self, folder):
        """Writes the tokenizer into the assets folder of a `.keras` file."""
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
    def from_preset(
        cls,
        path: str | PathLike,
        load_weights: bool = True,
        dtype: str | keras.DTypePolicy | None = None,
        **overrides: Any,
    ) -> Self:
        """Creates a model from a folder, from the Hugging Face Hub, or in a size of the paper.

        Heads that the folder does not contain are initialized randomly, with a warning.

        Args:
            path: a local folder, `"hf://org/name"`, or the name of a size; see `Backbone.from_preset`.
            load_weights: whether to load the weights. False leaves them random.
            dtype: a Keras dtype policy, or "auto"; see `Backbone.from_preset`. Default: the global policy.
            **overrides: arguments of this class, arguments of the backbone, fields of its config, and for the Hub
                `revision` and `token`. With `adapter`, an adapter that lies beside the weights in their file is merged
                into them (jina-embeddings-v3). With `engine="onnx"`, ONNX Runtime computes the outputs, which is the
                fastest on a CPU. The model is then exported the first time (see `kerasbert.export`). The export is
                kept below kerasbert/exports in the user's cache folder.

        Raises:
            FileNotFoundError: if there is no such folder or model, or a file of weights is missing.
            ValueError: if an override is unknown, a size is loaded without `load_weights=False`, the config is not
                supported, weights do not fit, or `engine` is unknown.
            ImportError: if a package for the Hub or the engine is not installed.
            ConnectionError: if the Hub cannot be reached, and no earlier download is in the cache.
        """
        return presets.load_trainable(cls, path, load_weights=load_weights, dtype=dtype, **overrides)

    def save_to_preset(self, path: str | PathLike, **options: Any) -> None:
        """Writes weights, config and tokenizer in the Hugging Face layout of the family.

        Heads are included if the layout supports them. If several processes train together, all must call it, and the
        first one writes.

        Args:
            path: a folder, created if it does not exist.
            **options: see `Backbone.save_to_preset`.

        Raises:
            ValueError: if `path` is empty, `max_shard_size` is no size, or the model was loaded from an export, which
                has no weights.
        """
        if gather_weights(self.weights):
            saves.save(self, path, **options)

    @property
    def texts_have_segments(self) -> bool:
        """Whether this model reads the segments of its tokenizer's rows, if they have any."""
        return bool(self.tokenizer) and self.backbone.reads_segments and self.tokenizer.has_segments

    @property
    def longest_text(self) -> int:
        """The number of tokens to which a text is truncated: that of the task, else of the tokenizer and the backbone.

        Where none of them has a limit, it is 512.
        """
        limits = (self.tokenizer and self.tokenizer.max_length, getattr(self.backbone.config, "max_length", None))
        return getattr(self, "max_length", None) or min(filter(None, limits), default=512)

    def save_tokenizer(self, folder: str | PathLike) -> None:
        """Writes the tokenizer's files, with the inputs and the length that this model reads, if it has a tokenizer."""
        if self.tokenizer is not None:
            self.tokenizer.save(folder, self.texts_have_segments, self.longest_text)

    def require_tokenizer(self) -> Tokenizer:
        """Returns the tokenizer.

        Raises:
            ValueError: if there is none.
        """
        if self.tokenizer is None:
            raise ValueError(
                f"Text needs a tokenizer. Received: text for a {type(self).__name__} without one: its folder has no "
                "tokenizer files. Pass tokenizer=Tokenizer.load(...), or use token ids."
            )
        return self.tokenizer
