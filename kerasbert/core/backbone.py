"""What every backbone has in common: a frozen config, a build on construction, checks of its input, presets."""

import dataclasses

import keras
import numpy as np

from ..backend.compilation import concrete_array, reading_weights
from ..backend.rematerialization import rematerialized
from ..checkpoints import presets
from ..layers.embeddings import gather_positions
from .inputs import (
    check_arrays,
    check_keys,
    checked_inputs,
    inputs_are_checked,
    longest_sequence,
    warn_of_padding,
)
from .summaries import known_shapes


def refuse_quantization(model, mode):
    """Raises a ValueError: Keras would quantise tables that also serve as output layers, and leave dense layers."""
    raise ValueError(
        "Weights are float32, bfloat16 or float16: quantisation is not supported. Received: "
        f'{mode!r} for a {type(model).__name__}. Half the memory of float32 takes from_preset(path, dtype="bfloat16").'
    )


def _note_depth(variables, depth):
    for variable in variables:
        variable.block_depth = depth


class Backbone(keras.Model):
    """Token ids in, hidden states out. A family subclasses it with `__init__(config, ...)` and `call(inputs, ...)`.

    `register_family` gives it the record that the rest of the package asks for its config class, sizes, heads and
    Hugging Face tables. A backbone is built at the end of its `__init__`, so its weights exist and keep their paths.

    Args:
        config: the frozen dataclass of the family.
        **kwargs: `name` and `dtype`.
    """

    family = None  # its `Family`, by `register_family`
    blocks = None  # its blocks in order, each a layer, or a tuple of layers that stand side by side
    AFTER_BLOCKS = ("pooler", "final_norm", "mask_decoder")  # attributes that stand behind the blocks; others, before
    prediction_arguments = {}  # of `call`, when a masked LM head reads the `sequence_output`
    pair_rows = "segment_pairs"  # of `MaskedLMBatches`, for a second target
    extra_inputs = ()  # keys of a batch that `call` reads besides those that every backbone may be given
    has_output_positions = False  # whether `call` takes `output_positions`, to spare the last block the others

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        if self.family is not None and not isinstance(config, self.family.config):
            wanted = self.family.config.__name__
            raise ValueError(
                f"`config` must be a {wanted}. Received: {config!r}. "
                f"Use {type(self).__name__}({wanted}(...)) or {type(self).__name__}.from_preset(...)."
            )
        if self.dtype_policy.quantization_mode is not None:
            refuse_quantization(self, self.dtype_policy.name)
        self.config = config

    def build_now(self):
        """Creates every weight by one call on a tiny input; the last line of each family's `__init__`."""
        with checked_inputs():
            self(self.example_inputs(), **self.prediction_arguments)
        self.note_depths()

    def build(self, input_shape=None):
        """The layers build themselves in the first call, as in `layers.composite.Composite`."""

    def note_depths(self):
        """Notes at its variables how far up they stand, for `training.LayerRates`: 0 in front of the blocks, i + 1 in
        block i, none behind the blocks (and in heads); -1 everywhere in a backbone that declares no `blocks`."""
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
        """`blocks` as a list of tuples of layers; None without them."""
        if self.blocks is None:
            return None
        return [tuple(block) if isinstance(block, (list, tuple)) else (block,) for block in self.blocks]

    def layers_after_blocks(self):
        """The layers that stand behind the blocks."""
        found = (getattr(self, name, None) for name in self.AFTER_BLOCKS)
        return [layer for layer in found if layer is not None]

    def example_inputs(self):
        return {"token_ids": np.zeros((1, 2), "int32")}

    # === Calls ===

    def __call__(self, inputs, *args, **kwargs):
        everywhere = [name for name in ("hidden_states", "attention_weights") if kwargs.get(name)]
        if everywhere and kwargs.get("output_positions") is not None:
            raise ValueError(
                "With `output_positions` the last block computes these alone: there is nothing else to look at. "
                f"Received: {', '.join(everywhere)} as well. Ask for one or the other."
            )
        if inputs_are_checked():
            return super().__call__(inputs, *args, **kwargs)
        self.check_inputs(inputs)
        with reading_weights():
            return super().__call__(inputs, *args, **kwargs)

    def check_inputs(self, inputs):
        """Raises a ValueError when a batch holds what compiled code would misread in silence.

        Keys must be those of `inputs.KEYS` or `extra_inputs`, with the kinds and shapes given there. Of every array
        whose values are known (numpy, or an eager tensor): ids inside the vocabulary, sequences no longer than the
        position table, segments inside their table, positions inside the sequence, masks of 0 and 1. Padding that no
        mask hides is a warning.
        """
        check_keys(inputs, self.extra_inputs)
        check_arrays(inputs)
        warn_of_padding(inputs, self.config)
        for key, limit, meaning in self.input_limits():
            array = concrete_array(inputs.get(key))
            if array is not None and array.size and not (array.min() >= 0 and array.max() < limit):
                wrong = int(array.max() if array.max() >= limit else array.min())
                raise ValueError(f"`{key}` must be between 0 and {limit - 1} ({meaning}). Received: {wrong}.")
        length = inputs["token_ids"].shape[-1]
        longest = getattr(self.config, "max_length", None)
        if length is not None and longest and self.learned_positions and inputs.get("position_ids") is None:
            received = length
            if inputs.get("sequence_ids") is not None:
                received = longest_sequence(concrete_array(inputs["sequence_ids"]))
            if received is not None and received > longest:
                raise ValueError(
                    f"Sequences must be no longer than the position table, max_length={longest}. Received: a sequence "
                    f"of length {received}. Truncate the text, or use a config with a larger max_length."
                )
        positions = concrete_array(inputs.get("masked_positions"))
        if positions is not None and positions.size and (positions.max() >= length or positions.min() < -1):
            raise ValueError(
                f"`masked_positions` must be positions of the row, or -1 in unused slots. Received: values from "
                f"{positions.min()} to {positions.max()} for rows of length {length}."
            )

    learned_positions = True  # False where any length can be given

    def input_limits(self):
        """(key, limit, meaning): the values of each input must lie in [0, limit)."""
        config = self.config
        limits = [("token_ids", config.vocabulary_size, "vocabulary_size")]
        if getattr(config, "num_segments", 0):
            limits.append(("segment_ids", config.num_segments, "num_segments"))
        if self.learned_positions and getattr(config, "max_length", None):
            limits.append(("position_ids", config.max_length, "max_length"))
        return limits

    # === Parts that objectives and tasks use ===

    def make_head(self, kind, dropout=None, **arguments):
        """The family's head of this kind: masked_lm, sentence_pair, classifier, tagger, span, choice, ...

        Args:
            dropout: rate in the head, of a family whose config has one for its heads. Default: the config's.
        """
        heads, config = self.family.heads, self.config
        if kind not in heads:
            raise ValueError(f"{type(self).__name__} has no head {kind!r}. It has: {', '.join(heads)}.")
        if dropout is not None:
            rates = [name for name in ("classifier_dropout", "summary_dropout") if hasattr(config, name)]
            if not rates:
                raise ValueError(f"The heads of {type(self).__name__} have no rate of their own. Received: {dropout}.")
            config = dataclasses.replace(config, **dict.fromkeys(rates, dropout))
        return heads[kind](config, name=kind, dtype=self.dtype_policy, **arguments)

    def variant(self):
        """The row of the family's `classes` that this backbone is saved as."""
        return "Backbone"

    def rematerialize(self):
        """Trains in less memory and a third more time: blocks keep their input only, and compute the rest twice."""
        if self.blocks is None:
            raise ValueError(
                "Rematerialization computes the activations of blocks twice. Received: a "
                f"{type(self).__name__}, which declares no `blocks`. Train it without."
            )
        for layer in (layer for layers in self.stages() for layer in layers):
            if "call" not in vars(layer):  # it may be there already
                layer.call = rematerialized(layer)

    def predict_from(self, inputs):
        """(outputs, float (b, p, m)): the backbone's, and what a masked LM head reads at the `masked_positions`."""
        positions = inputs.get("masked_positions")
        if positions is not None and self.has_output_positions:
            outputs = self(inputs, output_positions=keras.ops.cast(positions, "int32"))
            return outputs, outputs["sequence_output"]
        outputs = self(inputs, **self.prediction_arguments)
        x = outputs["sequence_output"]
        return outputs, x if positions is None else gather_positions(x, positions)

    def summarize(self, inputs):
        """The outputs for a head that reads one vector a sequence: a last block that can makes no other tokens."""
        if not self.has_output_positions:
            return self(inputs)
        first = keras.ops.cast(keras.ops.zeros_like(inputs["token_ids"][:, :1]), "int32")
        return self(inputs, output_positions=first)

    @property
    def token_table(self):
        """float (v, e): the token embeddings, for tied output layers."""
        return keras.ops.convert_to_tensor(self.token_embedding.embeddings)

    def summary(self, *args, **kwargs):
        """As Keras's `summary`, with the shapes of outputs; None where a size depends on the batch."""
        with known_shapes(self):
            super().summary(*args, **kwargs)

    def quantize(self, mode=None, **options):
        refuse_quantization(self, mode)

    # === Config ===

    def get_config(self):
        policy = self.dtype_policy
        if type(policy) is keras.dtype_policies.DTypePolicy:
            dtype = policy.name  # to serialise it imports TensorFlow wherever it is installed
        else:
            dtype = keras.dtype_policies.serialize(policy)
        return {"config": dataclasses.asdict(self.config), "name": self.name, "dtype": dtype}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        config["config"] = cls.family.config(**config["config"])
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        return cls(**config)

    # === Presets ===

    @classmethod
    def from_preset(cls, path, load_weights=True, dtype=None, **overrides):
        """A backbone from a folder, from a size of the paper (`"bert_base"`, random weights), or from `hf://org/name`.

        Args:
            path: where to look; see above.
            load_weights: False leaves the weights random.
            dtype: a Keras dtype policy.
            **overrides: fields of the config, arguments of the class, and for the hub `revision` and `token`.
        """
        return presets.load_backbone(cls, path, load_weights=load_weights, dtype=dtype, **overrides)

    def save_to_preset(self, path, **options):
        """Writes `config.json` and `model.safetensors` in the Hugging Face layout of the family.

        Args:
            path: a folder, made if need be.
            **options: `max_shard_size`, bytes or a str such as "5GB": larger models are written in shards.
        """
        presets.save(self, path, **options)
