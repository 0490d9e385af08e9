"""ALBERT: BERT with parameters shared by all layers, and narrow embeddings.

Lan, Chen, Goodman, Gimpel, Sharma, Soricut 2019, arXiv 1909.11942. New in this paper: embeddings of width E, which is
far smaller than the hidden width H, and one dense layer from E to H (section 3.1, factorized embeddings); layers that
share their parameters; sentence order prediction instead of next sentence prediction (label 0: in order, 1: swapped).
"""

import dataclasses
from typing import Any

import keras
import numpy as np

from ..core.blocks import BlockOutputs, present
from ..core.family import Config, Family, HuggingFaceLayout, register_family, transformers_classes
from ..core.initializers import truncated_normal
from ..core.weight_names import Field
from ..layers.attention import MultiHeadAttention
from ..layers.composite import Composite
from ..layers.dense import Dense
from ..layers.dropout import Dropout
from ..layers.embeddings import gather_positions, needed_positions, needed_tokens
from ..layers.extras import Extras
from ..layers.feed_forward import FeedForward
from ..layers.heads import PooledClassifier, TokenHead, masked_lm, of_config
from ..layers.masks import AttentionMask
from ..layers.positions import token_positions
from .backbone import Backbone
from .bert import HUGGINGFACE_CONFIG as BERT_CONFIG

# === Config ===


@dataclasses.dataclass(frozen=True)
class AlbertConfig(Config):
    vocabulary_size: int = 30_000
    embedding_dim: int = 128  # E, width of the embeddings and of the masked LM head
    num_layers: int = 12
    num_groups: int = 1  # groups of consecutive layers that share parameters; more than one only with sharing="all"
    num_inner_layers: int = 1  # each layer consists of this number of layers with different parameters
    num_heads: int = 12
    hidden_dim: int = 768  # H, width of the hidden states
    feed_forward_dim: int = 3_072
    max_length: int = 512  # number of position embeddings
    num_segments: int = 2
    sharing: str = "all"  # which parameters layers share: "all", "attention", "feed_forward" or "none" (table 4)
    embedding_projection: bool | None = None  # whether a dense layer maps E to H; None: only if they differ
    dropout: float = 0.0  # after the embeddings and after each sublayer
    attention_dropout: float = 0.0  # of the attention probabilities
    classifier_dropout: float = 0.1  # before fine-tuning heads, but not the sentence-order head
    activation: str = "gelu_new"
    layer_norm_epsilon: float = 1e-12
    initializer_range: float = 0.02  # standard deviation before truncation at twice this value
    pad_id: int = 0
    model_type: str = "albert"

    def __post_init__(self):
        if self.sharing not in ("all", "attention", "feed_forward", "none"):
            raise ValueError(
                f"`sharing` must be 'all', 'attention', 'feed_forward' or 'none'. Received: {self.sharing!r}."
            )
        if not 1 <= self.num_groups <= self.num_layers or (self.num_groups > 1 and self.sharing != "all"):
            raise ValueError(
                "`num_groups` must be between 1 and `num_layers`, and 1 unless sharing='all'. Received: num_groups="
                f"{self.num_groups}, num_layers={self.num_layers}, sharing={self.sharing!r}."
            )
        if self.embedding_projection is False and self.embedding_dim != self.hidden_dim:
            raise ValueError(
                "Without `embedding_projection`, `embedding_dim` must equal `hidden_dim`. Received: embedding_dim="
                f"{self.embedding_dim}, hidden_dim={self.hidden_dim}."
            )

    @property
    def projects_embeddings(self):
        """Whether a dense layer maps the embeddings from width E to width H."""
        differ = self.embedding_dim != self.hidden_dim
        return differ if self.embedding_projection is None else self.embedding_projection

    def num_copies(self, part):
        """Returns the number of blocks with separate parameters. `part` is "attention" or "feed_forward"."""
        return self.num_groups if self.sharing in ("all", part) else self.num_layers

    def kernel_initializer(self):
        return truncated_normal(self.initializer_range)


# === Sizes ===

_BASE = dict(num_layers=12, hidden_dim=768, num_heads=12, feed_forward_dim=3_072)
_LARGE = dict(num_layers=24, hidden_dim=1_024, num_heads=16, feed_forward_dim=4_096)
_XLARGE = dict(num_layers=24, hidden_dim=2_048, num_heads=16, feed_forward_dim=8_192)
_XXLARGE = dict(num_layers=12, hidden_dim=4_096, num_heads=64, feed_forward_dim=16_384)
_DROPOUT = dict(dropout=0.1, attention_dropout=0.1)

SIZES = {
    "albert_base_v1": {**_BASE, **_DROPOUT},
    "albert_large_v1": {**_LARGE, **_DROPOUT},
    "albert_xlarge_v1": {**_XLARGE, **_DROPOUT},
    "albert_xxlarge_v1": _XXLARGE,
    "albert_base_v2": _BASE,
    "albert_large_v2": _LARGE,
    "albert_xlarge_v2": _XLARGE,
    "albert_xxlarge_v2": _XXLARGE,
}

# === Block ===

# A layer consists of two blocks, because layers may share only their attention or only their feed-forward network.


class AlbertAttentionBlock(Composite):
    """The first half of a layer: attention. The sum of its input and output is normalized (post-norm).

    Args:
        config: an `AlbertConfig`.

    Call:
        x: float (b, s, m).
        attention_mask: an `AttentionMask`.
        return_weights: whether to return the attention probabilities.
        positions: int32 (b, p), the only positions to compute, so that the output is (b, p, m). Default: all.

    Returns: float (b, s, m), and `Extras` with the attention probabilities (b, h, s, s) if requested.
    """

    AFTER_ATTENTION = "norm"

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        initializer = config.kernel_initializer()
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.attention = MultiHeadAttention(
            config.hidden_dim, config.num_heads, config.attention_dropout, initializer, name="attention", **common
        )
        self.dropout = Dropout(config.dropout, name="dropout", **common)
        self.norm = keras.layers.LayerNormalization(epsilon=config.layer_norm_epsilon, name="norm", **common)

    def call(self, x, attention_mask=None, return_weights=False, positions=None):
        context = x
        if positions is not None:
            x, attention_mask = gather_positions(x, positions), attention_mask.of_queries(positions)
        y, extras = self.attention(x, context, attention_mask=attention_mask, return_weights=return_weights)
        return self.norm(x + self.dropout(y)), extras


class AlbertFeedForwardBlock(Composite):
    """The second half of a layer: a feed-forward network. The sum of its input and output is normalized (post-norm).

    Args:
        config: an `AlbertConfig`.

    Call:
        x: float (b, s, m).

    Returns: float (b, s, m), and empty `Extras`.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        initializer = config.kernel_initializer()
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.feed_forward = FeedForward(
            config.hidden_dim, config.feed_forward_dim, config.activation, initializer, name="feed_forward", **common
        )
        self.dropout = Dropout(config.dropout, name="dropout", **common)
        self.norm = keras.layers.LayerNormalization(epsilon=config.layer_norm_epsilon, name="norm", **common)

    def call(self, x):
        y = self.feed_forward(x)
        return self.norm(x + self.dropout(y)), Extras()


# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class Albert(Backbone):
    """The encoder of ALBERT.

    Args:
        config: an `AlbertConfig`.
        pooler: whether to build the pooler, a dense layer with tanh on the first token.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `segment_ids`,
            `position_ids`, `sequence_ids`, `first_positions`.
        hidden_states: whether to return the projected embeddings and the output of each layer.
        attention_weights: whether to return the attention probabilities of each layer.
        output_positions: int32 (b, p), the only positions that the last layer computes, so that `sequence_output` is
            (b, p, m). Cannot be combined with `hidden_states` or `attention_weights`.

    Returns: a dict of `sequence_output` (b, s, m), `pooled_output` (b, m) if there is a pooler, and if requested the
        `hidden_states` (num_layers * num_inner_layers + 1 tensors (b, s, m)) and `attention_weights` (b, h, s, s).
    """

    pair_rows = "sentence_order"
    has_output_positions = True

    def __init__(self, config: AlbertConfig, pooler: bool = True, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        kernel: dict[str, Any] = dict(kernel_initializer=config.kernel_initializer(), **common)
        table: dict[str, Any] = dict(embeddings_initializer=config.kernel_initializer(), **common)
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size, config.embedding_dim, name="token_embedding", **table
        )
        self.position_embedding = keras.layers.Embedding(
            config.max_length, config.embedding_dim, name="position_embedding", **table
        )
        self.segment_embedding = keras.layers.Embedding(
            config.num_segments, config.embedding_dim, name="segment_embedding", **table
        )
        self.embedding_norm = keras.layers.LayerNormalization(
            epsilon=config.layer_norm_epsilon, name="embedding_norm", **common
        )
        self.embedding_dropout = Dropout(config.dropout, name="embedding_dropout", **common)
        self.embedding_projection = None
        if config.projects_embeddings:
            self.embedding_projection = Dense(config.hidden_dim, name="embedding_projection", **kernel)
        inner = range(config.num_inner_layers)
        self.attentions = [
            [AlbertAttentionBlock(config, name=f"attention_{i}_{j}", **common) for j in inner]
            for i in range(config.num_copies("attention"))
        ]
        self.feed_forwards = [
            [AlbertFeedForwardBlock(config, name=f"feed_forward_{i}_{j}", **common) for j in inner]
            for i in range(config.num_copies("feed_forward"))
        ]
        self.pooler = Dense(config.hidden_dim, "tanh", name="pooler", **kernel) if pooler else None
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False, output_positions=None):
        token_ids = inputs["token_ids"]
        segment_ids = inputs.get("segment_ids")
        segment_ids = keras.ops.zeros_like(token_ids) if segment_ids is None else segment_ids
        x = self.token_embedding(token_ids) + self.segment_embedding(segment_ids)
        x = x + self.position_embedding(token_positions(inputs))
        x = self.embedding_dropout(self.embedding_norm(x))
        x = self.embedding_projection(x) if self.embedding_projection else x

        mask = AttentionMask.from_inputs(inputs)
        states, all_extras = [x], []
        needed = needed_positions(inputs, output_positions)
        for i in range(self.config.num_layers):
            attentions, feed_forwards = self._copy(self.attentions, i), self._copy(self.feed_forwards, i)
            for j, (attention, feed_forward) in enumerate(zip(attentions, feed_forwards, strict=True)):
                last = i == self.config.num_layers - 1 and j == self.config.num_inner_layers - 1
                positions = needed if last else None
                x, extras = attention(x, attention_mask=mask, return_weights=attention_weights, positions=positions)
                x, _ = feed_forward(x)
                all_extras.append(extras)
                states.append(x)

        x, first = needed_tokens(x, inputs, output_positions)
        pooled = None if first is None or self.pooler is None else self.pooler(first)
        found = BlockOutputs(states, all_extras).requested(hidden_states, attention_weights)
        return {**present(sequence_output=x, pooled_output=pooled), **found}

    @property
    def blocks(self):
        """One tuple of blocks per layer. Blocks that several layers share are listed only for the first of them."""
        stages, seen = [], set()
        for i in range(self.config.num_layers):
            layers = [*self._copy(self.attentions, i), *self._copy(self.feed_forwards, i)]
            stages.append(tuple(layer for layer in layers if id(layer) not in seen))
            seen |= set(map(id, layers))
        return [stage for stage in stages if stage]

    def _copy(self, copies, layer):
        """Returns the element of `copies` that a layer uses. Layers are grouped as in the official code."""
        return copies[int(layer / (self.config.num_layers / len(copies)))]

    def get_config(self):
        return {**super().get_config(), "pooler": self.pooler is not None}


# === Heads ===


def _classifier(num_labels, config, common):
    return PooledClassifier(num_labels, config.classifier_dropout, config.kernel_initializer(), **common)


HEADS = {
    "masked_lm": masked_lm("embedding_dim"),
    "sentence_pair": of_config(PooledClassifier, num_labels=2),
    "classifier": lambda config, num_labels, **common: _classifier(num_labels, config, common),
    "tagger": of_config(TokenHead, "classifier_dropout"),
    "span": of_config(TokenHead, num_labels=2),
    "choice": lambda config, **common: _classifier(1, config, common),
}

# === Hugging Face ===

HUGGINGFACE_CONFIG = {
    **BERT_CONFIG,
    "embedding_dim": "embedding_size",
    # If layers do not share all parameters, the file has one group per layer, and stores shared parameters repeatedly.
    "num_groups": Field(
        "num_hidden_groups",
        load=lambda stored: stored["num_hidden_groups"] if stored.get("sharing", "all") == "all" else 1,
        save=lambda config: config.num_groups if config.sharing == "all" else config.num_layers,
    ),
    "num_inner_layers": "inner_group_num",
    "sharing": "sharing",  # kerasbert only, like `embedding_projection`; transformers keeps unknown fields
    "embedding_projection": "embedding_projection",
    "classifier_dropout": "classifier_dropout_prob",
}

_LAYER = "encoder.albert_layer_groups.{i}.albert_layers.{j}"

HUGGINGFACE_NAMES = {
    "token_embedding": "embeddings.word_embeddings",
    "position_embedding": "embeddings.position_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "embedding_projection": "encoder.embedding_hidden_mapping_in",
    "attention_{i}_{j}/attention/query": f"{_LAYER}.attention.query",
    "attention_{i}_{j}/attention/key": f"{_LAYER}.attention.key",
    "attention_{i}_{j}/attention/value": f"{_LAYER}.attention.value",
    "attention_{i}_{j}/attention/project": f"{_LAYER}.attention.dense",
    "attention_{i}_{j}/norm": f"{_LAYER}.attention.LayerNorm",
    "feed_forward_{i}_{j}/feed_forward/inner": f"{_LAYER}.ffn",
    "feed_forward_{i}_{j}/feed_forward/outer": f"{_LAYER}.ffn_output",
    "feed_forward_{i}_{j}/norm": f"{_LAYER}.full_layer_layer_norm",
    "pooler": "pooler",
    "masked_lm/dense": "predictions.dense",
    "masked_lm/norm": "predictions.LayerNorm",
    "masked_lm/bias": "predictions.bias",
    "sentence_pair/dense": "sop_classifier.classifier",
    "classifier/dense": "classifier",
    "tagger/dense": "classifier",
    "span/dense": "qa_outputs",
    "choice/dense": "classifier",
}


def huggingface_implied(config):
    """Describes additional tensors that transformers needs: copies of shared parameters, and an identity projection.

    Returns: {stored name: the stored name that it duplicates, or the value of the tensor}.
    """
    implied = {}
    if not config.projects_embeddings:
        implied["encoder.embedding_hidden_mapping_in.weight"] = np.eye(config.hidden_dim, dtype="float32")
        implied["encoder.embedding_hidden_mapping_in.bias"] = np.zeros(config.hidden_dim, "float32")
    shared = [theirs for ours, theirs in HUGGINGFACE_NAMES.items() if ours.startswith(f"{config.sharing}_{{i}}")]
    for i in range(1, config.num_layers):
        for j in range(config.num_inner_layers):
            for name in shared:
                for leaf in ("weight", "bias"):
                    implied[f"{name.format(i=i, j=j)}.{leaf}"] = f"{name.format(i=0, j=j)}.{leaf}"
    return implied


register_family(
    Albert,
    Family(
        config=AlbertConfig,
        model_types=("albert",),
        sizes=SIZES,
        heads=HEADS,
        pooled_heads=frozenset({"sentence_pair", "classifier", "choice"}),  # heads that need the pooler
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only={"position_embedding_type": "absolute"},
            # For missing fields, transformers uses the values of xxlarge, and always a projection.
            defaults=dict(
                hidden_size=4_096, num_attention_heads=64, intermediate_size=16_384, embedding_projection=True
            ),
            classes={**transformers_classes("Albert"), "MaskedLM with sentence_pair": "AlbertForPreTraining"},
            prefix="albert",
            names=HUGGINGFACE_NAMES,
            tied={
                "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
                "predictions.decoder.bias": "predictions.bias",
            },
            implied=huggingface_implied,
        ),
    ),
)
