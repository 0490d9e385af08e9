"""Base class of all backbones: a frozen config, weights created on construction, input checks, presets."""

import dataclasses
from collections.abc import Mapping
from os import PathLike
from typing import Any, ClassVar, Self

import keras
import numpy as np

from ..backend.compilation import concrete_array, reading_weights
from ..backend.devices import chosen_policy
from ..backend.distribution import gather_weights
from ..backend.keras_adapter import Exported
from ..backend.rematerialization import is_rematerialized, rematerialized
from ..checkpoints import presets, saves
from ..checkpoints.config_checks import check_sizes_of
from ..checkpoints.sharing import Shared
from ..core.family import Family
from ..core.inputs import (
    check_arrays,
    check_keys,
    checked_inputs,
    inputs_are_checked,
    longest_sequence,
    warn_of_padding,
)
from ..core.quantization import Quantizable, as_config, quantize_layers
from ..core.summaries import known_shapes
from ..layers.embeddings import float_table, gather_positions
from ..layers.positions import token_positions


def _note_depth(variables, depth):
    for variable in variables:
        variable.block_depth = depth


class Backbone(Shared, Quantizable, Exported, keras.Model):
    """A model that maps token ids to hidden states. Each family is a subclass.

    A subclass defines `__init__(config, ...)`, which must end with `build_now()`, and `call(inputs, ...)`.
    `register_family` attaches a `Family` record to it, from which the rest of the package reads the config class,
    sizes, heads and Hugging Face tables.

    Args:
        config: the config, a frozen dataclass defined by the family.
        **kwargs: `name` and `dtype`, as for a `keras.Model`. The dtype "auto" is mixed_bfloat16 on GPUs and TPUs, and
            float32 on CPUs.

    Example:
        >>> from kerasbert.data import Tokenizer, encode_texts
        >>> from kerasbert.models import Backbone
        >>> backbone = Backbone.from_preset("bert_mini_en")
        >>> type(backbone).__name__
        'Bert'
        >>> batch = encode_texts(Tokenizer.from_preset("bert_mini_en"), ["A cat sat."])
        >>> outputs = backbone(batch, hidden_states=True)
        >>> len(outputs["hidden_states"]), tuple(outputs["sequence_output"].shape)
        (7, (1, 6, 256))
        >>> backbone.save_to_preset("saved_models/encoder")  # AutoModel of transformers reads it
    """

    config: Any  # the config of the family, such as a `BertConfig`
    family: ClassVar[Family] = None  # set by `register_family`
    blocks = None  # the blocks in order, each a layer or a tuple of layers of the same depth
    AFTER_BLOCKS = ("pooler", "final_norm", "mask_decoder")  # layers applied after the blocks; all others come before
    prediction_arguments = {}  # extra arguments of `call` when a masked LM head reads the `sequence_output`
    pair_rows = "segment_pairs"  # value of `MaskedLMBatches(rows=...)` for models with a sentence pair head
    extra_inputs = ()  # batch keys that `call` reads in addition to `BATCH_KEYS`
    takes_segments = True  # whether `call` reads `segment_ids`; if so, a `num_segments` of the config may still be 1
    has_weights = True  # False in a model that was loaded from an export, whose engine has the weights
    embeds_neighbors = False  # whether the embedding of a token also depends on the tokens beside it
    has_output_positions = False  # whether `call` takes `output_positions`, to which it can restrict the last block

    def __init__(self, config: Any, **kwargs: Any):
        super().__init__(**{**kwargs, "dtype": chosen_policy(kwargs.get("dtype"))})
        if self.family is not None and not isinstance(config, self.family.config):
            wanted = self.family.config.__name__
            raise ValueError(
                f"`config` must be a {wanted}. Received: {config!r}. "
                f"Use {type(self).__name__}({wanted}(...)) or {type(self).__name__}.from_preset(...)."
            )
        if self.dtype_policy.quantization_mode is not None:
            raise ValueError(
                "The dtype of a model must be a policy for floats. Received: "
                f"{self.dtype_policy.name!r} for a {type(self).__name__}. Quantize the finished model: "
                f"model.quantize({self.dtype_policy.quantization_mode!r})."
            )
        check_sizes_of(config)
        self.config = config

    def build_now(self):
        """Creates all weights by calling the model on a tiny input. Must be the last line of a family's `__init__`."""
        with checked_inputs():
            self(self.example_inputs(), **self.prediction_arguments)
        self.note_depths()

    def build(self, input_shape=None):
        """Does nothing: the layers build themselves in the first call, as in `layers.composite.Composite`."""

    def note_depths(self):
        """Sets the attribute `block_depth` of every variable, which `training.LayerRates` reads.

        The depth is 0 before the blocks, i + 1 in block i, and None after the blocks, as for the variables of heads.
        In a backbone that declares no `blocks`, it is -1 for all variables.
        """
        if self.blocks is None:
            _note_depth(self.variables, -1)
            return
        _note_depth(self.variables, 0)
        for depth, layers in enumerate(self.stages(), 1):
            for layer in layers:
                _note_depth(layer.variables, depth)
        for layer in self.layers_after_blocks():
            _note_depth(layer.variables, None)

    def stages(self):
        """Returns `blocks` as a list with one tuple of layers per block, or None if no `blocks` are declared."""
        if self.blocks is None:
            return None
        return [tuple(block) if isinstance(block, (list, tuple)) else (block,) for block in self.blocks]

    def layers_after_blocks(self):
        """The layers that are applied after the blocks."""
        found = (getattr(self, name, None) for name in self.AFTER_BLOCKS)
        return [layer for layer in found if layer is not None]

    def example_inputs(self):
        """A tiny batch, on which the model can be called to create its weights."""
        return {"token_ids": np.zeros((1, min(2, self.position_limit or 2)), "int32")}

    # === Calls ===

    def require_weights(self) -> None:
        """Raises a ValueError if the weights are not in this model but in the program of an export."""
        if not self.has_weights:
            raise ValueError(
                "An export computes predictions only: `predict` and what is based on it. Received: a call that needs "
                f"the weights of the {type(self).__name__}. Load the folder of the model that was exported."
            )

    def __call__(self, inputs: Mapping[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        self.require_weights()
        everywhere = [name for name in ("hidden_states", "attention_weights") if kwargs.get(name)]
        if everywhere and kwargs.get("output_positions") is not None:
            raise ValueError(
                "With `output_positions`, the last block computes only these positions, so `hidden_states` and "
                f"`attention_weights` cannot be returned. Received: {', '.join(everywhere)}. Request one or the other."
            )
        if inputs_are_checked():
            return super().__call__(inputs, *args, **kwargs)
        self.check_inputs(inputs)
        with reading_weights():
            return super().__call__(inputs, *args, **kwargs)

    def check_inputs(self, inputs):
        """Raises a ValueError for an invalid batch, for which compiled code would silently compute wrong results.

        Each key must be listed in `core.BATCH_KEYS`, and have the kind and shape given there, or be listed in
        `extra_inputs`. The values of numpy arrays and eager tensors are checked too: ids, segments and positions must
        be inside their embedding tables, masked positions inside the sequence, and masks must consist of 0 and 1. A
        warning is issued for padding tokens that no mask marks as padding.
        """
        check_keys(inputs, self.extra_inputs)
        check_arrays(inputs)
        warn_of_padding(inputs, self.config)
        for key, limit, meaning in self.input_limits():
            array = concrete_array(inputs.get(key))
            if array is not None and array.size and not (array.min() >= 0 and array.max() < limit):
                wrong = int(array.max() if array.max() >= limit else array.min())
                raise ValueError(f"`{key}` must be between 0 and {limit - 1} ({meaning}). Received: {wrong}.")
        self.check_length(inputs)
        length = inputs["token_ids"].shape[-1]
        positions = concrete_array(inputs.get("masked_positions"))
        if positions is not None and positions.size and (positions.max() >= length or positions.min() < -1):
            raise ValueError(
                f"`masked_positions` must be positions in the row, or -1 in unused entries. Received: values from "
                f"{positions.min()} to {positions.max()} for rows of length {length}."
            )

    def check_length(self, inputs, prefix=""):
        """Raises a ValueError if a sequence is longer than the position table.

        Args:
            inputs: a batch.
            prefix: prefix of the keys, such as "decoder_".
        """
        length, longest = inputs[prefix + "token_ids"].shape[-1], self.position_limit
        if length is None or not longest or inputs.get(prefix + "position_ids") is not None:
            return
        sequences = inputs.get(prefix + "sequence_ids")
        received = length if sequences is None else longest_sequence(concrete_array(sequences))
        if received is not None and received > longest:
            raise ValueError(
                f"Sequences must be no longer than the position table, max_length={longest}. Received: a sequence "
                f"of length {received}. Truncate the text, or use a config with a larger max_length."
            )

    learned_positions = True  # False if sequences may have any length
    counts_real_tokens = False  # whether learned positions are counted from the first real token of a row

    @property
    def position_limit(self):
        """The maximum length of a sequence (the size of the position table), or None if any length is possible."""
        return getattr(self.config, "max_length", None) if self.learned_positions else None

    def input_limits(self):
        """List of (batch key, limit, config field of the limit). The ids under each key must be in [0, limit)."""
        config = self.config
        limits = [("token_ids", config.vocabulary_size, "vocabulary_size")]
        if getattr(config, "num_segments", 0):
            limits.append(("segment_ids", config.num_segments, "num_segments"))
        if self.position_limit:
            limits.append(("position_ids", self.position_limit, "max_length"))
        return limits

    @property
    def reads_segments(self) -> bool:
        """Whether `segment_ids` can change the outputs."""
        return self.takes_segments and getattr(self.config, "num_segments", 2) > 1

    # === Parts that objectives and tasks use ===

    def make_head(self, kind: str, dropout: float | None = None, **arguments: Any) -> keras.Layer:
        """Creates the family's head of a given kind.

        Args:
            kind: a key of `family.heads`, such as masked_lm, sentence_pair, classifier, tagger, span or choice.
            dropout: dropout rate of the head, only for families whose config has a separate rate for heads. Default:
                the rate in the config.
            **arguments: other arguments of the head.

        Raises: ValueError if the family has no such head, or the head needs a pooler that this backbone lacks.
        """
        heads, config = self.family.heads, self.config
        if kind not in heads:
            raise ValueError(f"{type(self).__name__} has no head {kind!r}. It has: {', '.join(heads)}.")
        if kind in self.family.pooled_heads and self.get_config().get("pooler") is False:
            name = type(self).__name__
            raise ValueError(
                f"The head {kind!r} of {name} reads the output of the pooler. Received: a backbone without a pooler. "
                f"Pass pooler=True to {name} or {name}.from_preset."
            )
        if dropout is not None:
            rates = [name for name in ("classifier_dropout", "summary_dropout") if hasattr(config, name)]
            if not rates:
                raise ValueError(f"The heads of {type(self).__name__} have no separate dropout. Received: {dropout}.")
            config = dataclasses.replace(config, **dict.fromkeys(rates, dropout))
        return heads[kind](config, name=kind, dtype=self.dtype_policy, **arguments)

    def variant(self):
        """The key of the family's `HuggingFaceLayout.classes` under which this backbone is saved."""
        return "Backbone"

    def rematerialize(self) -> None:
        """Enables rematerialization, which saves memory but makes training about a third slower.

        Blocks keep only their inputs for the backward pass, which recomputes all other activations.
        """
        if self.blocks is None:
            raise ValueError(
                "Rematerialization recomputes the activations of blocks. Received: a "
                f"{type(self).__name__}, which declares no `blocks`. Train it without rematerialization."
            )
        for layer in (layer for layers in self.stages() for layer in layers):
            if not is_rematerialized(layer):
                layer.call = rematerialized(layer)

    def predict_from(self, inputs):
        """Calls the backbone on behalf of a masked LM head.

        Returns: (backbone outputs, float (b, p, m)), where the second item holds the hidden states at the
            `masked_positions`. Without `masked_positions`, it is the whole `sequence_output`.
        """
        positions = inputs.get("masked_positions")
        if positions is not None and self.has_output_positions:
            outputs = self(inputs, output_positions=keras.ops.cast(positions, "int32"))
            return outputs, outputs["sequence_output"]
        outputs = self(inputs, **self.prediction_arguments)
        x = outputs["sequence_output"]
        return outputs, x if positions is None else gather_positions(x, positions)

    def summarize(self, inputs, training=None):
        """Calls the backbone on behalf of a head that reads only the first position of each sequence.

        Where the family supports it, the last block computes no other positions.
        """
        options = {} if training is None else {"training": training}  # None would hide the mode of the outer call
        if not self.has_output_positions:
            return self(inputs, **options)
        first = keras.ops.cast(keras.ops.zeros_like(inputs["token_ids"][:, :1]), "int32")
        return self(inputs, output_positions=first, **options)

    @property
    def token_table(self):
        """The token embeddings, float (vocabulary, embedding dimension), for output layers that share them."""
        return float_table(self.token_embedding)

    def embed_tokens(self, inputs: Mapping[str, Any]) -> Any:
        """Returns the input of the first block, float (b, s, m). Families override this to compute nothing else."""
        return self(inputs, hidden_states=True)["hidden_states"][0]

    def position_vectors(self, inputs: Mapping[str, Any]) -> Any:
        """Returns rows of the `position_table`, if there is one: float (b, s, e) or (1, s, e)."""
        table: Any = self.position_table
        return table(token_positions(inputs))

    @property
    def position_table(self):
        """The layer with the embeddings of absolute positions, or None if the backbone adds none to its tokens."""
        return getattr(self, "position_embedding", None)

    def summary(self, *args: Any, **kwargs: Any) -> None:
        """Prints Keras's `summary` with the output shapes of all layers. Sizes that depend on the batch are None."""
        with known_shapes(self):
            super().summary(*args, **kwargs)

    # === Config ===

    def get_config(self):
        self.require_weights()
        policy = self.dtype_policy
        if type(policy) is keras.dtype_policies.DTypePolicy:
            dtype = policy.name  # serializing the policy itself would import TensorFlow if it is installed
        else:
            dtype = keras.dtype_policies.serialize(policy)
        return {"config": dataclasses.asdict(self.config), "name": self.name, "dtype": dtype, **as_config(self)}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        config["config"] = cls.family.config(**config["config"])
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        schemes = config.pop("quantization", {})
        backbone = cls(**config)
        quantize_layers(backbone, schemes)
        return backbone

    # === Presets ===

    @classmethod
    def from_preset(
        cls,
        path: str | PathLike,
        load_weights: bool = True,
        dtype: str | keras.DTypePolicy | None = None,
        **overrides: Any,
    ) -> Self:
        """Creates a backbone from a folder, from the Hugging Face Hub, or in a size of the paper.

        Args:
            path: a local folder, `"hf://org/name"`, or the name of a size, such as `"bert_base"`. A size has no files:
                its weights are random.
            load_weights: whether to load the weights. False leaves them random.
            dtype: a Keras dtype policy, or "auto": mixed_bfloat16 on GPUs and TPUs, float32 on CPUs. Default: the
                global policy.
            **overrides: config fields, other arguments of the class, and for the Hub `revision` and `token`. With
                `adapter`, an adapter that lies beside the weights in their file is merged into them.
        """
        return presets.load_backbone(cls, path, load_weights=load_weights, dtype=dtype, **overrides)

    def save_to_preset(self, path: str | PathLike, **options: Any) -> None:
        """Writes `config.json` and `model.safetensors` in the Hugging Face layout of the family.

        If several processes train together, all must call it, and the first one writes.

        Args:
            path: a folder, created if it does not exist.
            **options: `max_shard_size`, the maximum size of a weight file, in bytes or as a str such as "5GB". Larger
                models are split into several files.
        """
        if gather_weights(self.weights):
            saves.save(self, path, **options)
