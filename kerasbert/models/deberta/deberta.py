"""DeBERTa: an encoder with disentangled attention, which scores contents and relative positions separately.

He, Liu, Gao, Chen 2020, arXiv 2006.03654. New in this paper: disentangled attention, whose scores are the sum of
content-to-content, content-to-position and position-to-content scores (section 3.1); the enhanced mask decoder, which
adds absolute positions only in the last layers before the pretraining softmax (section 3.2).
"""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from ...core.blocks import BlockOutputs, present
from ...core.family import Config, Family, HuggingFaceLayout, register_family
from ...core.initializers import normal
from ...layers.attention import HIDDEN_SCORE, attend, attention_probabilities, merge_heads, split_heads
from ...layers.composite import Composite, Layer
from ...layers.dense import Dense
from ...layers.disentangled import disentangled_bias, distances_in_use
from ...layers.dropout import Dropout
from ...layers.embeddings import first_tokens
from ...layers.extras import Extras
from ...layers.feed_forward import FeedForward
from ...layers.masks import AttentionMask
from ...layers.positions import token_positions
from ..backbone import Backbone
from . import versions

# === Config ===


@dataclasses.dataclass(frozen=True)
class DebertaConfig(Config):
    vocabulary_size: int = 50_265
    embedding_dim: int | None = None  # width of the embeddings; None: `hidden_dim`
    num_layers: int = 12
    num_heads: int = 12
    hidden_dim: int = 768
    feed_forward_dim: int = 3_072
    max_length: int = 512  # number of absolute position embeddings
    num_segments: int = 0  # 0: no segment embeddings
    absolute_positions: bool = False  # whether absolute positions are added to the embeddings
    mask_decoder: bool = False  # whether the masked LM head reads the enhanced mask decoder, not the last block
    relative_attention: bool = True
    position_terms: tuple[str, ...] = ("c2p", "p2c")  # position terms that are added to content-to-content scores
    max_distance: int | None = None  # larger distances are clipped to this value; None: `max_length`
    talking_heads: bool = False  # whether heads are mixed before and after the softmax (Shazeer 2020, arXiv 2003.02436)
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
    model_type: str = "deberta"

    def __post_init__(self):
        versions.complete(self)

    def kernel_initializer(self):
        return normal(self.initializer_range)

    def distance_rows(self):
        """Returns the index of the distance embedding for each distance -n, ..., n, int32 (2 n + 1).

        Distances beyond n use the embedding of n or -n.
        """
        distances = np.arange(-self.max_distance, self.max_distance + 1)
        return np.minimum(distances + self.max_distance, 2 * self.max_distance - 1).astype("int32")


# === Sizes ===

SIZES = {
    "deberta_base": dict(num_layers=12, hidden_dim=768, num_heads=12, feed_forward_dim=3_072),
    "deberta_large": dict(num_layers=24, hidden_dim=1_024, num_heads=16, feed_forward_dim=4_096),
    "deberta_xlarge": dict(num_layers=48, hidden_dim=1_024, num_heads=16, feed_forward_dim=4_096),
}

# === Block ===


class DisentangledAttention(Layer):
    """Attention whose scores are the sum of content-to-content, content-to-position and position-to-content scores.

    Section 3.1 of the paper.

    Args:
        config: a `DebertaConfig`.

    Call:
        x: float (b, s, m), the hidden states from which keys and values are computed.
        query: float (b, s, m), the hidden states from which queries are computed. Default: `x`.
        distances: tuple of the distance embeddings in use, float (r, m), and the indices into them, int32 (2 s - 1);
            see `distances_in_use`.
        attention_mask: an `AttentionMask`.
        return_weights: whether to return the attention probabilities.

    Returns: float (b, s, m), and `Extras` with the attention probabilities (b, h, s, s) if requested.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = config.num_heads
        terms = config.position_terms
        # Each term of the scores is a dot product, and the variances of the terms add up.
        self.scale = (config.hidden_dim // config.num_heads * (1 + len(terms))) ** -0.5
        terms = terms if config.relative_attention else ()
        width, dense = config.hidden_dim, dict(kernel_initializer=config.kernel_initializer(), dtype=self.dtype_policy)
        # The columns are query, key and value of the first head, then of the second head, ... The key has no bias.
        self.in_projection = Dense(3 * width, use_bias=False, name="in_projection", **dense)
        self.relative_key = self.relative_query = self.mix_scores = self.mix_weights = None
        if "c2p" in terms:
            self.relative_key = Dense(width, use_bias=False, name="relative_key", **dense)
        if "p2c" in terms:
            self.relative_query = Dense(width, name="relative_query", **dense)
        if config.talking_heads:
            self.mix_scores = Dense(self.num_heads, use_bias=False, name="mix_scores", **dense)
            self.mix_weights = Dense(self.num_heads, use_bias=False, name="mix_weights", **dense)
        self.project = Dense(width, name="project", **dense)
        self.distance_dropout = Dropout(config.dropout, dtype=self.dtype_policy, name="distance_dropout")
        self.dropout = Dropout(config.attention_dropout, dtype="float32", name="dropout")

    def build(self, x_shape):
        self.query_bias = self.add_weight(name="query_bias", shape=(x_shape[-1],), initializer="zeros")
        self.value_bias = self.add_weight(name="value_bias", shape=(x_shape[-1],), initializer="zeros")

    def call(self, x, query=None, distances=None, attention_mask=None, return_weights=False, training=None):
        own_query, key, value = ops.split(split_heads(self.in_projection(x), self.num_heads), 3, axis=-1)
        if query is not None:
            own_query = ops.split(split_heads(self.in_projection(query), self.num_heads), 3, axis=-1)[0]
        head_shape = (self.num_heads, key.shape[-1])
        query = own_query + ops.reshape(self.query_bias, head_shape)
        value = value + ops.reshape(self.value_bias, head_shape)
        if distances is not None:
            distances = (self.distance_dropout(distances[0]), distances[1])
        bias = disentangled_bias(query, key, distances, self.relative_key, self.relative_query, self.scale)
        dropout = self.dropout if training and self.dropout.rate > 0 else None
        if self.mix_scores is not None:
            y, weights = self._talk(query, key, value, bias, attention_mask, dropout)
        else:
            y = attend(query, key, value, attention_mask, bias, self.scale, dropout)
        y = self.project(merge_heads(y))
        if return_weights and self.mix_scores is None:
            weights = attention_probabilities(query, key, attention_mask, bias, self.scale)
        return y, Extras(weights if return_weights else None)

    def _talk(self, query, key, value, bias, attention_mask, dropout):
        """Computes (output, attention probabilities), and mixes scores and probabilities across heads."""
        scores = ops.einsum("bqhd,bkhd->bqkh", query * self.scale, key)
        scores = scores + ops.transpose(bias, (0, 2, 3, 1))
        scores = ops.cast(ops.transpose(self.mix_scores(scores), (0, 3, 1, 2)), "float32")
        allowed = attention_mask.dense(ops.shape(query)[1], ops.shape(key)[1])
        weights = ops.softmax(scores if allowed is None else ops.where(allowed, scores, HIDDEN_SCORE))
        weights = weights if dropout is None else dropout(weights)
        weights = ops.transpose(self.mix_weights(ops.transpose(weights, (0, 2, 3, 1))), (0, 3, 1, 2))
        return ops.einsum("bhqk,bkhd->bqhd", ops.cast(weights, value.dtype), value), weights


class DebertaBlock(Composite):
    """Attention and feed-forward sublayers; the sum of each sublayer's input and output is normalized (post-norm).

    Args:
        config: a config with DeBERTa's fields.
        attention: the attention layer, whose name must be "attention".

    Call:
        x: float (b, s, m).
        query: float (b, s, m), used only in the mask decoder: hidden states that attend to `x`. The output of attention
            is added to them.
        distances, attention_mask, return_weights: arguments of the attention layer.

    Returns: float (b, s, m), and `Extras` with the attention probabilities (b, h, s, s) if requested.
    """

    AFTER_ATTENTION = "attention_norm"

    def __init__(self, config, attention, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        norm: dict[str, Any] = dict(epsilon=config.layer_norm_epsilon, **common)
        self.attention = attention
        self.attention_norm = keras.layers.LayerNormalization(name="attention_norm", **norm)
        self.feed_forward = FeedForward(
            config.hidden_dim,
            config.feed_forward_dim,
            config.activation,
            config.kernel_initializer(),
            name="feed_forward",
            **common,
        )
        self.feed_forward_norm = keras.layers.LayerNormalization(name="feed_forward_norm", **norm)
        self.attention_output_dropout = Dropout(config.dropout, name="attention_output_dropout", **common)
        self.feed_forward_dropout = Dropout(config.dropout, name="feed_forward_dropout", **common)

    def call(self, x, query=None, distances=None, attention_mask=None, return_weights=False):
        y, extras = self.attention(
            x, query=query, distances=distances, attention_mask=attention_mask, return_weights=return_weights
        )
        x = x if query is None else query
        x = self.attention_norm(x + self.attention_output_dropout(y))
        y = self.feed_forward(x)
        x = self.feed_forward_norm(x + self.feed_forward_dropout(y))
        return x, extras


# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class Deberta(Backbone):
    """The encoder of DeBERTa.

    Args:
        config: a `DebertaConfig`.
        embeddings: the attribute `embeddings` of another backbone, to share its embeddings, which must have the same
            sizes. Default: new embeddings.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `segment_ids`,
            `position_ids`, `sequence_ids`, `first_positions`.
        hidden_states: whether to return the embeddings and the output of each block.
        attention_weights: whether to return the attention probabilities of each block.
        decode: whether the enhanced mask decoder replaces the last block, so that its output is the `sequence_output`.

    Returns: a dict of `sequence_output` (b, s, m), `first_output` (b, m), `pooled_output`, which is the same as
        `first_output`, and if requested the lists `hidden_states` (num_layers + 1 tensors (b, s, m)) and
        `attention_weights` (num_layers tensors (b, h, s, s)). For packed rows, `first_output` is (b, n, m), or missing
        if the batch has no `first_positions`.
    """

    def __init__(self, config: DebertaConfig, embeddings: Any = None, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.learned_positions = config.absolute_positions or config.mask_decoder
        self.embed = versions.DebertaEmbeddings(config, embeddings, name="embed", **common)
        self.relative_embedding = self.mask_decoder = None
        table: dict[str, Any] = dict(embeddings_initializer=config.kernel_initializer(), **common)
        if config.relative_attention:
            self.relative_embedding = keras.layers.Embedding(
                2 * config.max_distance, config.hidden_dim, name="relative_embedding", **table
            )
        self.blocks = [
            DebertaBlock(config, DisentangledAttention(config, name="attention", **common), name=f"block_{i}", **common)
            for i in range(config.num_layers)
        ]
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
            distances = (self.relative_embedding(used), rows)
        shared: dict[str, Any] = dict(distances=distances, attention_mask=AttentionMask(sequence_ids=sequences))

        states, all_extras = [x], []
        for block in self.blocks:
            if decode and block is self.blocks[-1]:
                query = x + self.mask_decoder(token_positions(inputs))
                x, extras = versions.run_mask_decoder(block, x, query, return_weights=attention_weights, **shared)
            else:
                x, extras = block(x, return_weights=attention_weights, **shared)
            all_extras.append(extras)
            states.append(x)

        first = first_tokens(x, inputs)
        outputs = present(sequence_output=x, first_output=first, pooled_output=first)
        return {**outputs, **BlockOutputs(states, all_extras).requested(hidden_states, attention_weights)}

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


# === Heads ===

HEADS = versions.HEADS

# === Hugging Face ===

HUGGINGFACE_CONFIG = {**versions.CONFIG, "talking_heads": "talking_head"}

# The values that transformers assumes for fields missing from config.json.
HUGGINGFACE_DEFAULTS = {
    "position_biased_input": True,
    "relative_attention": False,
    "pos_att_type": None,
    "legacy": True,
}

HUGGINGFACE_CLASSES = {
    "Backbone": "DebertaModel",
    "MaskedLM": "DebertaForMaskedLM",
    "TextClassifier": "DebertaForSequenceClassification",
    "TokenClassifier": "DebertaForTokenClassification",
    "QuestionAnswerer": "DebertaForQuestionAnswering",
}

_SELF = "encoder.layer.{i}.attention.self"

HUGGINGFACE_NAMES = {
    **versions.NAMES,
    "block_{i}/attention/in_projection": f"{_SELF}.in_proj",
    "block_{i}/attention/query_bias": f"{_SELF}.q_bias",
    "block_{i}/attention/value_bias": f"{_SELF}.v_bias",
    "block_{i}/attention/relative_key": f"{_SELF}.pos_proj",
    "block_{i}/attention/relative_query": f"{_SELF}.pos_q_proj",
    "block_{i}/attention/mix_scores": f"{_SELF}.head_logits_proj",
    "block_{i}/attention/mix_weights": f"{_SELF}.head_weights_proj",
}


register_family(
    Deberta,
    Family(
        config=DebertaConfig,
        model_types=("deberta",),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            defaults=HUGGINGFACE_DEFAULTS,
            classes=HUGGINGFACE_CLASSES,
            prefix="deberta",
            names=HUGGINGFACE_NAMES,
            tied=versions.TIED,
            optional=versions.OPTIONAL,
            spelling=versions.legacy_spelling,
        ),
    ),
)
