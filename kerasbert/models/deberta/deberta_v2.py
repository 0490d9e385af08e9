"""DeBERTa versions 2 and 3: distances in logarithmic buckets, projected by the same layers as the content.

Version 2, the 1.5-billion-parameter model of He, Liu, Gao, Chen 2020 (arXiv 2006.03654), adds to version 1: distance
buckets, a layer norm on their embeddings, projections shared with the content, and a convolution over the input of the
first block. Version 3 (He, Gao, Chen 2021, arXiv 2111.09543) pretrains the same encoder to detect replaced tokens.
"""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from ...core.blocks import BlockOutputs, present
from ...core.family import Config, Family, HuggingFaceLayout, register_family, transformers_classes
from ...core.initializers import normal, uniform_by_inputs
from ...core.weight_names import Field
from ...layers.attention import attend, attention_probabilities, merge_heads, split_heads
from ...layers.composite import Composite
from ...layers.dense import Dense
from ...layers.disentangled import disentangled_bias, distances_in_use, log_buckets
from ...layers.dropout import Dropout
from ...layers.embeddings import first_tokens, gather_positions
from ...layers.extras import Extras
from ...layers.feed_forward import activation_function
from ...layers.masks import AttentionMask
from ...layers.positions import token_positions
from ..backbone import Backbone
from . import versions
from .convolution import NeighborConvolution
from .deberta import DebertaBlock

# === Config ===


@dataclasses.dataclass(frozen=True)
class DebertaV2Config(Config):
    vocabulary_size: int = 128_100
    embedding_dim: int | None = None  # width of the embeddings; None: `hidden_dim`
    num_layers: int = 12
    num_heads: int = 12
    head_dim: int | None = None  # None: `hidden_dim / num_heads`, the only width that works in transformers
    hidden_dim: int = 768
    feed_forward_dim: int = 3_072
    max_length: int = 512  # number of absolute position embeddings
    num_segments: int = 0  # 0: no segment embeddings
    absolute_positions: bool = False  # whether absolute positions are added to the embeddings
    mask_decoder: bool = False  # whether the masked LM head reads the enhanced mask decoder, not the last block
    relative_attention: bool = True
    position_terms: tuple[str, ...] = ("p2c", "c2p")  # position terms that are added to content-to-content scores
    max_distance: int | None = None  # distances from this one on share the last bucket; None: `max_length`
    distance_buckets: int | None = 256  # in each direction; half of them hold one distance each; None: no buckets
    shared_projections: bool = True  # whether distances are projected by the same layers as the content
    distance_norm: bool = True  # whether a layer norm is applied to the distance embeddings
    convolution_width: int = 0  # kernel width of the convolution over the input of the first block; 0: no convolution
    convolution_groups: int = 1
    convolution_activation: str = "gelu"
    dropout: float = 0.1  # after the embeddings, the distance embeddings, and each sublayer
    attention_dropout: float = 0.1  # of the attention probabilities
    pooler_dropout: float = 0.0  # of the first token, before the classifier's pooler
    classifier_dropout: float | None = None  # after the pooler; None: the same rate as `dropout`
    activation: str = "gelu"
    pooler_activation: str = "gelu"
    layer_norm_epsilon: float = 1e-7
    initializer_range: float = 0.02
    legacy_head: bool = False  # whether files use BERT's names for the masked LM head
    pad_id: int = 0
    model_type: str = "deberta-v2"

    def __post_init__(self):
        versions.complete(self)
        object.__setattr__(self, "head_dim", self.head_dim or self.hidden_dim // self.num_heads)
        if self.distance_buckets is not None and not 1 <= self.distance_buckets // 2 < self.max_distance - 1:
            raise ValueError(
                "Half of `distance_buckets` must be at least 1 and less than `max_distance` - 1. Received: "
                f"distance_buckets={self.distance_buckets}, max_distance={self.max_distance}."
            )
        if self.convolution_width and not self.convolution_width % 2:
            raise ValueError(f"`convolution_width` must be odd, or 0. Received: {self.convolution_width}.")
        if self.hidden_dim % self.convolution_groups:
            raise ValueError(
                "`convolution_groups` must divide `hidden_dim`. Received: convolution_groups="
                f"{self.convolution_groups}, hidden_dim={self.hidden_dim}."
            )

    def kernel_initializer(self):
        return normal(self.initializer_range)

    @property
    def num_rows(self):
        """The number of distance embeddings in each direction."""
        return self.distance_buckets or self.max_distance

    def distance_rows(self):
        """Returns the index of the distance embedding for each distance -n, ..., n, int32 (2 n + 1)."""
        if self.distance_buckets is None:
            buckets = np.arange(-self.max_distance, self.max_distance + 1)
        else:
            buckets = log_buckets(self.distance_buckets, self.max_distance)
        return np.clip(buckets + self.num_rows, 0, 2 * self.num_rows - 1).astype("int32")


# === Sizes ===

_XLARGE = dict(hidden_dim=1_536, num_heads=24, feed_forward_dim=6_144, convolution_width=3)
_XSMALL = dict(hidden_dim=384, num_heads=6, feed_forward_dim=1_536)
_BASE = dict(hidden_dim=768, num_heads=12, feed_forward_dim=3_072)
_LARGE = dict(hidden_dim=1_024, num_heads=16, feed_forward_dim=4_096)

SIZES = {
    "deberta_v2_xlarge": dict(num_layers=24, **_XLARGE),
    "deberta_v2_xxlarge": dict(num_layers=48, **_XLARGE),
    "deberta_v3_xsmall": dict(num_layers=12, **_XSMALL),
    "deberta_v3_small": dict(num_layers=6, **_BASE),
    "deberta_v3_base": dict(num_layers=12, **_BASE),
    "deberta_v3_large": dict(num_layers=24, **_LARGE),
    # Generators have the width of their discriminators, and half of the layers.
    "deberta_v3_xsmall_generator": dict(num_layers=6, mask_decoder=True, **_XSMALL),
    "deberta_v3_small_generator": dict(num_layers=3, mask_decoder=True, **_BASE),
    "deberta_v3_base_generator": dict(num_layers=6, mask_decoder=True, **_BASE),
    "deberta_v3_large_generator": dict(num_layers=12, mask_decoder=True, **_LARGE),
    "mdeberta_v3_base": dict(vocabulary_size=251_000, num_layers=12, **_BASE),
    "mdeberta_v3_base_generator": dict(vocabulary_size=251_000, num_layers=6, mask_decoder=True, **_BASE),
}

# === Block ===

# The block is the same as in version 1, but with a different attention layer.


class BucketedAttention(Composite):
    """Disentangled attention that projects distances with the layers of the content or with separate layers.

    Inputs and outputs are the same as in `DisentangledAttention`.

    Args:
        config: a `DebertaV2Config`.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.num_heads, terms = config.num_heads, config.position_terms
        # Each term of the scores is a dot product, and the variances of the terms add up.
        self.scale = (config.head_dim * (1 + len(terms))) ** -0.5
        width = config.num_heads * config.head_dim
        dense: dict[str, Any] = dict(kernel_initializer=config.kernel_initializer(), dtype=self.dtype_policy)
        self.query = Dense(width, name="query", **dense)
        self.key = Dense(width, name="key", **dense)
        self.value = Dense(width, name="value", **dense)
        self.relative_key = self.key if "c2p" in terms else None
        self.relative_query = self.query if "p2c" in terms else None
        if config.relative_attention and not config.shared_projections:
            if "c2p" in terms:
                self.relative_key = Dense(width, name="relative_key", **dense)
            if "p2c" in terms:
                self.relative_query = Dense(width, name="relative_query", **dense)
        self.project = Dense(config.hidden_dim, name="project", **dense)
        self.distance_dropout = Dropout(config.dropout, dtype=self.dtype_policy, name="distance_dropout")
        self.dropout = Dropout(config.attention_dropout, dtype="float32", name="dropout")

    def call(self, x, query=None, distances=None, attention_mask=None, return_weights=False, training=None):
        query = split_heads(self.query(x if query is None else query), self.num_heads)
        key = split_heads(self.key(x), self.num_heads)
        value = split_heads(self.value(x), self.num_heads)
        if distances is not None:
            distances = (self.distance_dropout(distances[0]), distances[1])
        bias = disentangled_bias(query, key, distances, self.relative_key, self.relative_query, self.scale)
        dropout = self.dropout if training and self.dropout.rate > 0 else None
        y = self.project(merge_heads(attend(query, key, value, attention_mask, bias, self.scale, dropout)))
        weights = attention_probabilities(query, key, attention_mask, bias, self.scale) if return_weights else None
        return y, Extras(weights)


# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class DebertaV2(Backbone):
    """The encoder of DeBERTa, versions 2 and 3.

    Args:
        config: a `DebertaV2Config`.
        embeddings: the attribute `embeddings` of another backbone, to share its embeddings, which must have the same
            sizes. Default: new embeddings.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `segment_ids`,
            `position_ids`, `sequence_ids`, `first_positions`.
        hidden_states: whether to return the embeddings and the output of each block.
        attention_weights: whether to return the attention probabilities of each block.
        decode: whether the enhanced mask decoder replaces the last block, so that its output is the `sequence_output`.

    Returns: a dict of `sequence_output` (b, s, m), `first_output` (b, m), `pooled_output`, which is the same as
        `first_output`, `first_output_per_token` (b, 1, m), and if requested the lists `hidden_states` (num_layers + 1
        tensors (b, s, m)) and `attention_weights` (num_layers tensors (b, h, s, s)). For packed rows, `first_output` is
        (b, n, m), or missing if the batch has no `first_positions`, and `first_output_per_token` is (b, s, m), the
        output at the first token of the sequence to which each token belongs.
    """

    def __init__(self, config: DebertaV2Config, embeddings: Any = None, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        norm: dict[str, Any] = dict(epsilon=config.layer_norm_epsilon, **common)
        self.learned_positions = config.absolute_positions or config.mask_decoder
        self.embed = versions.DebertaEmbeddings(config, embeddings, name="embed", **common)
        self.relative_embedding = self.relative_norm = self.convolution = self.mask_decoder = None
        table: dict[str, Any] = dict(embeddings_initializer=config.kernel_initializer(), **common)
        if config.relative_attention:
            self.relative_embedding = keras.layers.Embedding(
                2 * config.num_rows, config.hidden_dim, name="relative_embedding", **table
            )
            if config.distance_norm:
                self.relative_norm = keras.layers.LayerNormalization(name="relative_norm", **norm)
        self.blocks = [
            DebertaBlock(config, BucketedAttention(config, name="attention", **common), name=f"block_{i}", **common)
            for i in range(config.num_layers)
        ]
        if config.convolution_width:
            self.convolution = NeighborConvolution(
                config.convolution_width,
                config.convolution_groups,
                config.convolution_activation,
                config.dropout,
                config.layer_norm_epsilon,
                uniform_by_inputs(),  # torch's default, which the official code uses
                name="convolution",
                **common,
            )
        if config.mask_decoder:
            self.mask_decoder = keras.layers.Embedding(
                config.max_length, config.hidden_dim, name="mask_decoder", **table
            )
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False, decode=False):
        sequences = versions.sequences_of(inputs)
        x = self.embed(inputs, sequence_ids=sequences)
        distances = None
        if self.relative_embedding is not None:
            used, rows = distances_in_use(self.config.distance_rows(), ops.shape(x)[1])
            table = self.relative_embedding(used)
            distances = (table if self.relative_norm is None else self.relative_norm(table), rows)
        shared: dict[str, Any] = dict(distances=distances, attention_mask=AttentionMask(sequence_ids=sequences))

        states, all_extras = [x], []
        for i, block in enumerate(self.blocks):
            if decode and block is self.blocks[-1]:
                query = x + self.mask_decoder(token_positions(inputs))
                x, extras = versions.run_mask_decoder(block, x, query, return_weights=attention_weights, **shared)
            else:
                x, extras = block(x, return_weights=attention_weights, **shared)
            all_extras.append(extras)
            if i == 0 and self.convolution is not None:
                x = self.convolution(x, states[0], sequence_ids=sequences)
            states.append(x)

        first = first_tokens(x, inputs)
        outputs = present(sequence_output=x, first_output=first, pooled_output=first)
        outputs["first_output_per_token"] = _first_tokens_per_token(x, inputs)
        return {**outputs, **BlockOutputs(states, all_extras).requested(hidden_states, attention_weights)}

    def stages(self):
        first, *others = super().stages()
        return [first if self.convolution is None else (*first, self.convolution), *others]

    @property
    def embeddings(self):
        """The layers that a generator may share with its discriminator: token, position and segment embeddings."""
        return self.embed.token_embedding, self.embed.position_embedding, self.embed.segment_embedding

    @property
    def token_embedding(self):
        return self.embed.token_embedding

    def embed_tokens(self, inputs):
        return self.embed(inputs, sequence_ids=versions.sequences_of(inputs))

    @property
    def position_table(self):
        return self.embed.position_embedding

    @property
    def prediction_arguments(self):
        return {"decode": self.config.mask_decoder}


def _first_tokens_per_token(x, inputs):
    if inputs.get("sequence_ids") is None:
        return x[:, :1]
    within = token_positions({**inputs, "position_ids": None})
    return gather_positions(x, ops.arange(ops.shape(x)[1], dtype="int32") - within)


# === Heads ===


class DebertaReplacedTokenHead(Composite):
    """Version 3's replaced token detection head: layer norm, dense layer, activation and output layer.

    The input is the sum of the outputs at each token and at the first token of its sequence.

    Args:
        config: a `DebertaV2Config`.

    Call:
        outputs: dict of the outputs of the backbone.

    Returns: logits, float (b, s), of the probability that the token was replaced.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.activation = activation_function(config.activation)
        self.norm = keras.layers.LayerNormalization(epsilon=config.layer_norm_epsilon, name="norm", **common)
        dense: dict[str, Any] = dict(kernel_initializer=config.kernel_initializer(), **common)
        self.dense = Dense(config.hidden_dim, name="dense", **dense)
        self.project = Dense(1, name="project", **dense)

    def call(self, outputs):
        x = self.norm(outputs["sequence_output"] + outputs["first_output_per_token"])
        return ops.squeeze(self.project(self.activation(self.dense(x))), axis=-1)


HEADS = {**versions.HEADS, "replaced_token": lambda config, **common: DebertaReplacedTokenHead(config, **common)}

# === Hugging Face ===

HUGGINGFACE_CONFIG = {
    **versions.CONFIG,
    "head_dim": "attention_head_size",
    "distance_buckets": Field(
        "position_buckets",
        load=lambda stored: stored["position_buckets"] if stored["position_buckets"] > 0 else None,
        save=lambda config: config.distance_buckets or -1,
    ),
    "shared_projections": "share_att_key",
    "distance_norm": Field(
        "norm_rel_ebd",
        load=lambda stored: "layer_norm" in [part.strip() for part in stored["norm_rel_ebd"].lower().split("|")],
        save=lambda config: "layer_norm" if config.distance_norm else "none",
    ),
    "convolution_width": "conv_kernel_size",
    "convolution_groups": "conv_groups",
    "convolution_activation": "conv_act",
}

# The values that transformers assumes for fields missing from config.json.
HUGGINGFACE_DEFAULTS = {
    "num_hidden_layers": 24,
    "num_attention_heads": 24,
    "hidden_size": 1_536,
    "intermediate_size": 6_144,
    "position_biased_input": True,
    "relative_attention": False,
    "pos_att_type": None,
    "position_buckets": -1,
    "share_att_key": False,
    "norm_rel_ebd": "none",
    "conv_act": "tanh",
    "legacy": True,
}

_SELF = "encoder.layer.{i}.attention.self"

HUGGINGFACE_NAMES = {
    **versions.NAMES,
    "relative_norm": "encoder.LayerNorm",
    "convolution": "encoder.conv.conv",
    "convolution/norm": "encoder.conv.LayerNorm",
    "block_{i}/attention/query": f"{_SELF}.query_proj",
    "block_{i}/attention/key": f"{_SELF}.key_proj",
    "block_{i}/attention/value": f"{_SELF}.value_proj",
    "block_{i}/attention/relative_key": f"{_SELF}.pos_key_proj",
    "block_{i}/attention/relative_query": f"{_SELF}.pos_query_proj",
    "replaced_token/norm": "mask_predictions.LayerNorm",
    "replaced_token/dense": "mask_predictions.dense",
    "replaced_token/project": "mask_predictions.classifier",
}


register_family(
    DebertaV2,
    Family(
        config=DebertaV2Config,
        model_types=("deberta-v2",),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            defaults=HUGGINGFACE_DEFAULTS,
            classes={"Discriminator": "DebertaV2Model", **transformers_classes("DebertaV2")},
            prefix="deberta",
            names=HUGGINGFACE_NAMES,
            tied=versions.TIED,
            optional=versions.OPTIONAL,
            spelling=versions.legacy_spelling,
        ),
    ),
)
