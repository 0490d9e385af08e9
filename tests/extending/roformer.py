"""RoFormer: BERT with rotary positions in place of a position table, as a family outside the package.

Su, Lu, Pan, Murtadha, Wen, Liu 2021, arXiv 2104.09864. New in it: queries and keys are turned by their position, so
that a score depends on the distance of its two tokens.
"""

import dataclasses

import keras
from keras import ops

from kerasbert.layers import (
    AttentionMask,
    Composite,
    Dense,
    Dropout,
    FeedForward,
    FirstTokenClassifier,
    MaskedLMHead,
    MultiHeadAttention,
    Rotation,
    TokenHead,
    first_tokens,
    token_positions,
)
from kerasbert.models import (
    Backbone,
    Config,
    Family,
    HuggingFaceLayout,
    register_family,
    run_blocks,
    transformers_classes,
    truncated_normal,
)

# === Config ===


@keras.saving.register_keras_serializable("extending")
@dataclasses.dataclass(frozen=True)
class RoFormerConfig(Config):
    vocabulary_size: int = 50_000
    num_layers: int = 12
    num_heads: int = 12
    hidden_dim: int = 768
    feed_forward_dim: int = 3_072
    embedding_dim: int = 768
    max_length: int = 1_536
    num_segments: int = 2
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation: str = "gelu"
    layer_norm_epsilon: float = 1e-12
    initializer_range: float = 0.02
    pad_id: int = 0
    model_type: str = "roformer"

    def kernel_initializer(self):
        return truncated_normal(self.initializer_range)


# === Sizes ===

SIZES = {"roformer_base": {}}

# === Block ===


class PairRotation(Rotation):
    """Turns neighboring dimensions (0 and 1, 2 and 3, ...) as the paper does, not dimensions of the two halves."""

    def __call__(self, x):
        even, odd = ops.cast(x[..., ::2], "float32"), ops.cast(x[..., 1::2], "float32")
        turned = even * self.cosines - odd * self.sines, odd * self.cosines + even * self.sines
        return ops.cast(ops.reshape(ops.stack(turned, axis=-1), ops.shape(x)), x.dtype)


@keras.saving.register_keras_serializable("extending")
class RoFormerBlock(Composite):
    """Attention with turned queries and keys, and a feed-forward layer, each added and normalized after."""

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        shared: dict = dict(dtype=self.dtype_policy)
        norm: dict = dict(epsilon=config.layer_norm_epsilon, **shared)
        initializer = config.kernel_initializer()
        self.attention = MultiHeadAttention(
            config.hidden_dim, config.num_heads, config.attention_dropout, initializer, name="attention", **shared
        )
        self.attention_norm = keras.layers.LayerNormalization(name="attention_norm", **norm)
        self.feed_forward = FeedForward(
            config.hidden_dim, config.feed_forward_dim, config.activation, initializer, name="feed_forward", **shared
        )
        self.feed_forward_norm = keras.layers.LayerNormalization(name="feed_forward_norm", **norm)
        self.dropout = Dropout(config.dropout, name="dropout", **shared)

    def call(self, x, attention_mask=None, rotation=None, return_weights=False):
        y, extras = self.attention(x, attention_mask=attention_mask, rotation=rotation, return_weights=return_weights)
        x = self.attention_norm(x + self.dropout(y))
        x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x, extras


# === Backbone ===


@keras.saving.register_keras_serializable("extending")
class RoFormer(Backbone):
    """The encoder of RoFormer. Arguments and outputs are those of `Bert`; there is no pooler."""

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        shared: dict = dict(dtype=self.dtype_policy)
        table: dict = dict(embeddings_initializer=config.kernel_initializer(), **shared)
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size, config.embedding_dim, name="token_embedding", **table
        )
        self.segment_embedding = keras.layers.Embedding(
            config.num_segments, config.embedding_dim, name="segment_embedding", **table
        )
        self.embedding_norm = keras.layers.LayerNormalization(
            epsilon=config.layer_norm_epsilon, name="embedding_norm", **shared
        )
        self.embedding_dropout = Dropout(config.dropout, name="embedding_dropout", **shared)
        self.embedding_projection = None
        if config.embedding_dim != config.hidden_dim:
            self.embedding_projection = Dense(config.hidden_dim, name="embedding_projection", **shared)
        self.blocks = [RoFormerBlock(config, name=f"block_{i}", **shared) for i in range(config.num_layers)]
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False):
        token_ids, segment_ids = inputs["token_ids"], inputs.get("segment_ids")
        segment_ids = ops.zeros_like(token_ids) if segment_ids is None else segment_ids
        x = self.token_embedding(token_ids) + self.segment_embedding(segment_ids)
        x = self.embedding_dropout(self.embedding_norm(x))
        x = x if self.embedding_projection is None else self.embedding_projection(x)
        blocks = run_blocks(
            self.blocks,
            x,
            attention_mask=AttentionMask.from_inputs(inputs),
            rotation=PairRotation.at(token_positions(inputs), self.config.hidden_dim // self.config.num_heads, 10_000),
            return_weights=attention_weights,
        )
        outputs = {"sequence_output": blocks.states[-1], "first_output": first_tokens(blocks.states[-1], inputs)}
        return {**outputs, **blocks.requested(hidden_states, attention_weights)}


# === Heads ===

HEADS = {
    "masked_lm": lambda config, **shared: MaskedLMHead(
        config.vocabulary_size,
        config.embedding_dim,
        config.activation,
        config.layer_norm_epsilon,
        config.kernel_initializer(),
        **shared,
    ),
    "classifier": lambda config, num_labels, **shared: FirstTokenClassifier(
        num_labels,
        config.hidden_dim,
        config.activation,
        config.dropout,
        config.dropout,
        config.kernel_initializer(),
        **shared,
    ),
    "tagger": lambda config, num_labels, **shared: TokenHead(
        num_labels, config.dropout, config.kernel_initializer(), **shared
    ),
    "span": lambda config, **shared: TokenHead(2, 0.0, config.kernel_initializer(), **shared),
}

# === Hugging Face ===

HUGGINGFACE_CONFIG = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "feed_forward_dim": "intermediate_size",
    "embedding_dim": "embedding_size",
    "max_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "activation": "hidden_act",
    "layer_norm_epsilon": "layer_norm_eps",
    "initializer_range": "initializer_range",
    "pad_id": "pad_token_id",
    "model_type": "model_type",
}

HUGGINGFACE_NAMES = {
    "token_embedding": "embeddings.word_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "embedding_projection": "embeddings_project",
    "block_{i}/attention/query": "encoder.layer.{i}.attention.self.query",
    "block_{i}/attention/key": "encoder.layer.{i}.attention.self.key",
    "block_{i}/attention/value": "encoder.layer.{i}.attention.self.value",
    "block_{i}/attention/project": "encoder.layer.{i}.attention.output.dense",
    "block_{i}/attention_norm": "encoder.layer.{i}.attention.output.LayerNorm",
    "block_{i}/feed_forward/inner": "encoder.layer.{i}.intermediate.dense",
    "block_{i}/feed_forward/outer": "encoder.layer.{i}.output.dense",
    "block_{i}/feed_forward_norm": "encoder.layer.{i}.output.LayerNorm",
    "masked_lm/dense": "cls.predictions.transform.dense",
    "masked_lm/norm": "cls.predictions.transform.LayerNorm",
    "masked_lm/bias": "cls.predictions.bias",
    "classifier/dense": "classifier.dense",
    "classifier/project": "classifier.out_proj",
    "tagger/dense": "classifier",
    "span/dense": "qa_outputs",
}

register_family(
    RoFormer,
    Family(
        config=RoFormerConfig,
        model_types=("roformer",),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            names=HUGGINGFACE_NAMES,
            classes=transformers_classes("RoFormer"),
            prefix="roformer",
            only={"rotary_value": False, "is_decoder": False, "add_cross_attention": False},
            tied={
                "cls.predictions.decoder.weight": "roformer.embeddings.word_embeddings.weight",
                "cls.predictions.decoder.bias": "cls.predictions.bias",
            },
            unused=lambda config, name: name == "encoder.embed_positions.weight",
        ),
    ),
)
