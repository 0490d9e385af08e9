"""MobileBERT: a BERT for mobile phones, as deep as BERT-large, with a quarter of BERT-base's parameters.

Sun, Yu, Song, Liu, Yang, Zhou 2020, arXiv 2004.02984. New in this paper: bottlenecks that reduce the width inside each
block; several feed-forward networks per block, to balance them with attention; narrow token embeddings, which are read
three at a time; for speed, ReLU, and an element-wise scale and shift in place of the layer norm. The teacher, IB-BERT,
is the same network with inverted bottlenecks, which are wide inside the blocks and narrow between them.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from ..core.blocks import present, run_blocks
from ..core.family import Config, Family, HuggingFaceLayout, register_family, transformers_classes
from ..core.initializers import truncated_normal, with_zero_row
from ..core.weight_names import Tensor
from ..layers.attention import attend, attention_probabilities, merge_heads, split_heads
from ..layers.composite import Composite, Layer
from ..layers.dense import Dense
from ..layers.dropout import Dropout
from ..layers.embeddings import first_tokens
from ..layers.extras import Extras
from ..layers.feed_forward import FeedForward, activation_function
from ..layers.masks import AttentionMask
from ..layers.positions import token_positions
from . import bert
from .backbone import Backbone

# === Config ===


@dataclasses.dataclass(frozen=True)
class MobileBertConfig(Config):
    vocabulary_size: int = 30_522
    num_layers: int = 24
    num_heads: int = 4
    hidden_dim: int = 512  # width between the blocks, and of position and segment embeddings
    bottleneck_dim: int = 128  # width inside the blocks
    embedding_dim: int = 128  # width of token embeddings
    feed_forward_dim: int = 512
    num_feed_forwards: int = 4  # in each block
    max_length: int = 512
    num_segments: int = 2
    dropout: float = 0.0  # after the embeddings and the output bottleneck
    attention_dropout: float = 0.1
    classifier_dropout: float | None = None  # before fine-tuning heads; None: the same rate as `dropout`
    activation: str = "relu"
    normalization: str = "no_norm"  # or "layer_norm"
    layer_norm_epsilon: float = 1e-12
    fixed_layer_norm_epsilon: float = 1e-5  # after embeddings and the last feed-forward; transformers has no such field
    trigram_input: bool = True  # whether the input of a token includes the embeddings of its two neighbors
    use_bottleneck: bool = True  # whether the width inside the blocks differs from `hidden_dim`
    use_bottleneck_attention: bool = False  # whether query, key and value read the output of the input bottleneck
    key_query_shared_bottleneck: bool = True  # if not: whether query and key read the output of another bottleneck
    classifier_activation: bool = False  # whether the pooler has a dense layer with tanh
    initializer_range: float = 0.02
    pad_id: int = 0
    model_type: str = "mobilebert"

    def kernel_initializer(self):
        return truncated_normal(self.initializer_range)

    @property
    def block_dim(self):
        """The width inside the blocks."""
        return self.bottleneck_dim if self.use_bottleneck else self.hidden_dim


# === Sizes ===

SIZES = {
    "mobilebert": {},
    "mobilebert_tiny": dict(num_feed_forwards=2, use_bottleneck_attention=True, key_query_shared_bottleneck=False),
    "mobilebert_without_opt": dict(activation="gelu_new", normalization="layer_norm"),
    # The teacher. Its queries and keys are computed from the hidden states between the blocks. It has a separate model
    # type, because transformers does not have this model.
    "ib_bert_large": dict(
        bottleneck_dim=1_024,
        feed_forward_dim=4_096,
        num_feed_forwards=1,
        dropout=0.1,
        activation="gelu_new",
        normalization="layer_norm",
        fixed_layer_norm_epsilon=1e-12,
        key_query_shared_bottleneck=False,
        classifier_activation=True,
        model_type="ib-bert",
    ),
}

# === Block ===


class NoNorm(Layer):
    """A learned scale and shift of each feature, in place of a layer norm (section 3.3)."""

    def build(self, x_shape):
        self.gamma = self.add_weight(name="gamma", shape=x_shape[-1:], initializer="ones")
        self.beta = self.add_weight(name="beta", shape=x_shape[-1:], initializer="zeros")

    def call(self, x):
        return x * self.gamma + self.beta


def _norm(config, epsilon=None, **common):
    if config.normalization == "no_norm":
        return NoNorm(**common)
    if config.normalization == "layer_norm":
        return keras.layers.LayerNormalization(epsilon=epsilon or config.layer_norm_epsilon, **common)
    raise ValueError(f"`normalization` must be no_norm or layer_norm. Received: {config.normalization!r}.")


class Bottleneck(Layer):
    """A dense layer and a norm, which map float (b, s, hidden_dim) to (b, s, block_dim)."""

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.dense = Dense(
            config.block_dim, kernel_initializer=config.kernel_initializer(), dtype=self.dtype_policy, name="dense"
        )
        self.norm = _norm(config, name="norm", dtype=self.dtype_policy)

    def build(self, x_shape):
        self.dense.build(x_shape)
        self.norm.build((*x_shape[:-1], self.dense.units))

    def call(self, x):
        return self.norm(self.dense(x))


class BottleneckAttention(Composite):
    """Attention of width `block_dim`.

    Queries and keys are computed from `x`, float (b, s, any width), and values from `content`, float (b, s, any width).

    Returns: float (b, s, block_dim), and `Extras` with the attention probabilities (b, h, s, s) if requested.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        if config.block_dim % config.num_heads:
            nearest = -(-config.block_dim // config.num_heads) * config.num_heads
            raise ValueError(
                "`bottleneck_dim` (without a bottleneck, `hidden_dim`) must be a multiple of `num_heads`. "
                f"Received: {config.block_dim}, num_heads={config.num_heads}. Use {nearest}."
            )
        self.num_heads = config.num_heads
        dense: dict[str, Any] = dict(kernel_initializer=config.kernel_initializer(), dtype=self.dtype_policy)
        self.query = Dense(config.block_dim, name="query", **dense)
        self.key = Dense(config.block_dim, name="key", **dense)
        self.value = Dense(config.block_dim, name="value", **dense)
        self.project = Dense(config.block_dim, name="project", **dense)
        self.dropout = Dropout(config.attention_dropout, dtype="float32", name="dropout")

    def call(self, x, content, attention_mask=None, return_weights=False, training=None):
        query = split_heads(self.query(x), self.num_heads)
        key = split_heads(self.key(x), self.num_heads)
        value = split_heads(self.value(content), self.num_heads)
        dropout = self.dropout if training and self.dropout.rate > 0 else None
        y = self.project(merge_heads(attend(query, key, value, attention_mask, dropout=dropout)))
        return y, Extras(attention_probabilities(query, key, attention_mask) if return_weights else None)


class MobileBertBlock(Layer):
    """A bottleneck, attention, a stack of feed-forward networks and an output projection (figure 1c; post-norm).

    Inputs and outputs are those of `BertBlock`.
    """

    AFTER_ATTENTION = "attention_norm"

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        initializer = config.kernel_initializer()
        dropout = 0.0 if config.use_bottleneck else config.dropout
        self.use_bottleneck = config.use_bottleneck
        self.use_bottleneck_attention = config.use_bottleneck_attention
        self.input_bottleneck = self.shared_bottleneck = None
        if config.use_bottleneck:
            self.input_bottleneck = Bottleneck(config, name="input_bottleneck", **common)
            if config.key_query_shared_bottleneck:
                self.shared_bottleneck = Bottleneck(config, name="shared_bottleneck", **common)
            self.output_dense = Dense(config.hidden_dim, kernel_initializer=initializer, name="output_dense", **common)
            self.output_dropout = Dropout(config.dropout, name="output_dropout", **common)
            self.output_norm = _norm(config, name="output_norm", **common)
        self.attention = BottleneckAttention(config, name="attention", **common)
        self.attention_output_dropout = Dropout(dropout, name="attention_output_dropout", **common)
        self.attention_norm = _norm(config, name="attention_norm", **common)
        sizes = (config.block_dim, config.feed_forward_dim, config.activation, initializer)
        extra = range(config.num_feed_forwards - 1)
        self.extra_feed_forwards = [FeedForward(*sizes, name=f"extra_feed_forward_{j}", **common) for j in extra]
        self.extra_norms = [_norm(config, name=f"extra_norm_{j}", **common) for j in extra]
        self.feed_forward = FeedForward(*sizes, name="feed_forward", **common)
        self.feed_forward_dropout = Dropout(dropout, name="feed_forward_dropout", **common)
        self.feed_forward_norm = _norm(config, config.fixed_layer_norm_epsilon, name="feed_forward_norm", **common)

    def build(self, x_shape):
        # With `use_bottleneck_attention`, this layer is unused, but files contain it.
        if self.shared_bottleneck is not None:
            self.shared_bottleneck.build(x_shape)

    def call(self, x, attention_mask=None, return_weights=False):
        inner = self.input_bottleneck(x) if self.use_bottleneck else x
        if self.use_bottleneck_attention:
            matched, content = inner, inner
        elif self.shared_bottleneck is not None:
            matched, content = self.shared_bottleneck(x), x
        else:
            matched, content = x, x
        y, extras = self.attention(matched, content, attention_mask=attention_mask, return_weights=return_weights)
        inner = self.attention_norm(inner + self.attention_output_dropout(y))
        for feed_forward, norm in zip(self.extra_feed_forwards, self.extra_norms, strict=True):
            inner = norm(inner + feed_forward(inner))
        inner = self.feed_forward_norm(inner + self.feed_forward_dropout(self.feed_forward(inner)))
        x = self.output_norm(x + self.output_dropout(self.output_dense(inner))) if self.use_bottleneck else inner
        return x, extras


# === Backbone ===


class TrigramProjection(Layer):
    """A dense layer from the embeddings of the next, the current and the previous token to width `hidden_dim`.

    Neighbors beyond the ends of a row, or of a sequence in packed rows, count as zeros. If padding follows the last
    token, it counts as the next token, as in the released checkpoints.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.trigram = config.trigram_input
        self.needed = config.trigram_input or config.embedding_dim != config.hidden_dim
        self.dense = Dense(
            config.hidden_dim, kernel_initializer=config.kernel_initializer(), dtype=self.dtype_policy, name="dense"
        )

    def build(self, x_shape):
        self.dense.build((*x_shape[:-1], x_shape[-1] * (3 if self.trigram else 1)))

    def call(self, x, sequence_ids=None):
        if self.trigram:
            following, previous = x[:, 1:], x[:, :-1]
            if sequence_ids is not None:
                same = (sequence_ids[:, 1:] == sequence_ids[:, :-1])[:, :, None]
                following, previous = ops.where(same, following, 0.0), ops.where(same, previous, 0.0)
            following = ops.pad(following, [[0, 0], [0, 1], [0, 0]])
            previous = ops.pad(previous, [[0, 0], [1, 0], [0, 0]])
            x = ops.concatenate([following, x, previous], axis=-1)
        return self.dense(x) if self.needed else x


@keras.saving.register_keras_serializable("kerasbert")
class MobileBert(Backbone):
    """The encoder of MobileBERT and of its teacher IB-BERT. Inputs and outputs are the same as in `Bert`.

    Padding is completely masked, as in transformers. In the official code, the scores of padding are only reduced by 6.

    Args:
        config: a `MobileBertConfig`.
        pooler: whether to return a `pooled_output`. It is the first token, or if `config.classifier_activation` is
            True, the output of a dense layer with tanh on the first token.
    """

    def __init__(self, config: MobileBertConfig, pooler: bool = True, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        table: dict[str, Any] = dict(embeddings_initializer=config.kernel_initializer(), **common)
        tokens = with_zero_row(config.kernel_initializer(), config.pad_id)  # zeros, like neighbors beyond the row
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size, config.embedding_dim, tokens, name="token_embedding", **common
        )
        self.token_projection = TrigramProjection(config, name="token_projection", **common)
        self.position_embedding = keras.layers.Embedding(
            config.max_length, config.hidden_dim, name="position_embedding", **table
        )
        self.segment_embedding = keras.layers.Embedding(
            config.num_segments, config.hidden_dim, name="segment_embedding", **table
        )
        self.embedding_norm = _norm(config, config.fixed_layer_norm_epsilon, name="embedding_norm", **common)
        self.embedding_dropout = Dropout(config.dropout, name="embedding_dropout", **common)
        self.blocks = [MobileBertBlock(config, name=f"block_{i}", **common) for i in range(config.num_layers)]
        self.has_pooler, self.pooler = pooler, None
        if pooler and config.classifier_activation:
            self.pooler = Dense(
                config.hidden_dim, "tanh", kernel_initializer=config.kernel_initializer(), name="pooler", **common
            )
        self.build_now()

    @property
    def embeds_neighbors(self):
        return self.config.trigram_input

    def call(self, inputs, hidden_states=False, attention_weights=False):
        token_ids = inputs["token_ids"]
        segment_ids = inputs.get("segment_ids")
        segment_ids = ops.zeros_like(token_ids) if segment_ids is None else segment_ids
        x = self.token_projection(self.token_embedding(token_ids), inputs.get("sequence_ids"))
        x = x + self.position_embedding(token_positions(inputs)) + self.segment_embedding(segment_ids)
        x = self.embedding_dropout(self.embedding_norm(x))
        mask = AttentionMask.from_inputs(inputs)
        blocks = run_blocks(self.blocks, x, attention_mask=mask, return_weights=attention_weights)
        x = blocks.states[-1]
        first = first_tokens(x, inputs) if self.has_pooler else None
        pooled = first if first is None or self.pooler is None else self.pooler(first)
        outputs = present(sequence_output=x, pooled_output=pooled)
        return {**outputs, **blocks.requested(hidden_states, attention_weights)}

    def get_config(self):
        return {**super().get_config(), "pooler": self.has_pooler}


# === Heads ===


class SplitMaskedLMHead(Layer):
    """BERT's masked LM head, whose output weights are the narrow token embeddings and additional weights.

    The norm is always a layer norm, even with normalization="no_norm". Inputs and outputs are the same as in
    `MaskedLMHead`.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        wide, narrow, common = config.hidden_dim, config.embedding_dim, dict(dtype=self.dtype_policy)
        if wide < narrow:
            raise ValueError(f"`hidden_dim` must be at least `embedding_dim`. Received: {wide} and {narrow}.")
        self.shape = (wide - narrow, config.vocabulary_size)
        self.initializer = config.kernel_initializer()
        self.activation = activation_function(config.activation)
        self.dense = Dense(wide, kernel_initializer=self.initializer, name="dense", **common)
        self.norm = keras.layers.LayerNormalization(epsilon=config.layer_norm_epsilon, name="norm", **common)

    def build(self, x_shape, table_shape=None):
        self.extra_table = self.add_weight(name="extra_table", shape=self.shape, initializer=self.initializer)
        self.bias = self.add_weight(name="bias", shape=self.shape[1:], initializer="zeros")

    def call(self, x, table):
        x = self.norm(self.activation(self.dense(x)))
        tied, extra = x[..., : table.shape[1]], x[..., table.shape[1] :]
        return ops.einsum("bpm,vm->bpv", tied, table) + ops.matmul(extra, self.extra_table) + self.bias


HEADS = {**bert.HEADS, "masked_lm": SplitMaskedLMHead}
del HEADS["span_boundary"]  # this head requires token embeddings of width `hidden_dim`

POOLED_HEADS = bert.POOLED_HEADS

# === Hugging Face ===

HUGGINGFACE_CONFIG = {
    **bert.HUGGINGFACE_CONFIG,
    "bottleneck_dim": "intra_bottleneck_size",
    "embedding_dim": "embedding_size",
    "num_feed_forwards": "num_feedforward_networks",
    "normalization": "normalization_type",
    "fixed_layer_norm_epsilon": "fixed_layer_norm_eps",  # kerasbert only
    "trigram_input": "trigram_input",
    "use_bottleneck": "use_bottleneck",
    "use_bottleneck_attention": "use_bottleneck_attention",
    "key_query_shared_bottleneck": "key_query_shared_bottleneck",
    "classifier_activation": "classifier_activation",
}

# Additional names. BERT's names apply to attention, the last feed-forward network and the heads.
HUGGINGFACE_NAMES = {
    **bert.HUGGINGFACE_NAMES,
    "token_projection/dense": "embeddings.embedding_transformation",
    "block_{i}/input_bottleneck/dense": "encoder.layer.{i}.bottleneck.input.dense",
    "block_{i}/input_bottleneck/norm": "encoder.layer.{i}.bottleneck.input.LayerNorm",
    "block_{i}/shared_bottleneck/dense": "encoder.layer.{i}.bottleneck.attention.dense",
    "block_{i}/shared_bottleneck/norm": "encoder.layer.{i}.bottleneck.attention.LayerNorm",
    "block_{i}/extra_feed_forward_{j}/inner": "encoder.layer.{i}.ffn.{j}.intermediate.dense",
    "block_{i}/extra_feed_forward_{j}/outer": "encoder.layer.{i}.ffn.{j}.output.dense",
    "block_{i}/extra_norm_{j}": "encoder.layer.{i}.ffn.{j}.output.LayerNorm",
    "block_{i}/output_dense": "encoder.layer.{i}.output.bottleneck.dense",
    "block_{i}/output_norm": "encoder.layer.{i}.output.bottleneck.LayerNorm",
    "masked_lm/extra_table": Tensor("cls.predictions.dense.weight"),
}

HUGGINGFACE_TIED = {
    "cls.predictions.decoder.weight": "mobilebert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}

register_family(
    MobileBert,
    Family(
        config=MobileBertConfig,
        model_types=("mobilebert", "ib-bert"),
        sizes=SIZES,
        heads=HEADS,
        pooled_heads=frozenset(POOLED_HEADS),
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            # The released models have no pooler layer, but the class in transformers has one by default.
            defaults={"classifier_activation": True},
            classes={**transformers_classes("MobileBert"), "MaskedLM with sentence_pair": "MobileBertForPreTraining"},
            prefix="mobilebert",
            names=HUGGINGFACE_NAMES,
            tied=HUGGINGFACE_TIED,
        ),
    ),
)
