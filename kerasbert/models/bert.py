"""BERT: a bidirectional Transformer encoder, pretrained on masked tokens and sentence pairs.

Devlin, Chang, Lee, Toutanova 2018, arXiv 1810.04805. New in this paper: bidirectional attention, which is trained by
predicting masked tokens; one vector for the whole input, pooled from the first token; two segments, A and B, in one
sequence. The four small sizes are from Turc et al. 2019, arXiv 1908.08962. mBERT, SpanBERT and BioBERT are
checkpoints of this model.
"""

import dataclasses
from typing import Any

import keras

from ..core.blocks import present, run_blocks
from ..core.family import Config, Family, HuggingFaceLayout, register_family, transformers_classes
from ..core.initializers import truncated_normal
from ..layers.attention import MultiHeadAttention
from ..layers.composite import Composite
from ..layers.dense import Dense
from ..layers.dropout import Dropout
from ..layers.embeddings import gather_positions, needed_positions, needed_tokens
from ..layers.feed_forward import FeedForward
from ..layers.heads import PooledClassifier, SpanBoundaryHead, TokenHead, masked_lm, of_config
from ..layers.masks import AttentionMask
from ..layers.positions import token_positions
from .backbone import Backbone

# === Config ===


@dataclasses.dataclass(frozen=True)
class BertConfig(Config):
    vocabulary_size: int = 30_522
    num_layers: int = 12
    num_heads: int = 12
    hidden_dim: int = 768
    feed_forward_dim: int = 3_072
    max_length: int = 512  # number of position embeddings
    num_segments: int = 2
    dropout: float = 0.1  # after the embeddings and after each sublayer
    attention_dropout: float = 0.1  # of the attention probabilities
    classifier_dropout: float | None = None  # before fine-tuning heads; None: the same rate as `dropout`
    activation: str = "gelu"
    layer_norm_epsilon: float = 1e-12
    initializer_range: float = 0.02  # standard deviation before truncation at twice this value
    pad_id: int = 0
    model_type: str = "bert"

    def kernel_initializer(self):
        return truncated_normal(self.initializer_range)


# === Sizes ===

SIZES = {
    "bert_tiny": dict(num_layers=2, hidden_dim=128, num_heads=2, feed_forward_dim=512),
    "bert_mini": dict(num_layers=4, hidden_dim=256, num_heads=4, feed_forward_dim=1_024),
    "bert_small": dict(num_layers=4, hidden_dim=512, num_heads=8, feed_forward_dim=2_048),
    "bert_medium": dict(num_layers=8, hidden_dim=512, num_heads=8, feed_forward_dim=2_048),
    "bert_base": dict(num_layers=12, hidden_dim=768, num_heads=12, feed_forward_dim=3_072),
    "bert_large": dict(num_layers=24, hidden_dim=1_024, num_heads=16, feed_forward_dim=4_096),
    "bert_base_cased": dict(vocabulary_size=28_996),
    "bert_large_cased": dict(
        vocabulary_size=28_996, num_layers=24, hidden_dim=1_024, num_heads=16, feed_forward_dim=4_096
    ),
    "bert_base_multilingual_cased": dict(vocabulary_size=119_547),
    "bert_base_multilingual_uncased": dict(vocabulary_size=105_879),
}

# === Block ===


class BertBlock(Composite):
    """Attention and feed-forward sublayers; the sum of each sublayer's input and output is normalized (post-norm).

    Args:
        config: a config with BERT's fields.

    Call:
        x: float (b, s, m).
        attention_mask: an `AttentionMask`.
        return_weights: whether to return the attention probabilities.
        cache: in a decoder, the keys and values of the preceding tokens; see `MultiHeadAttention`.
        positions: int32 (b, p), the only positions to compute, so that the output is (b, p, m). Default: all.
        rotation: a `Rotation` of queries and keys, in models with rotary positions.

    Returns: float (b, s, m), and `Extras` with the attention probabilities (b, h, s, s) and the cache if requested.
    """

    AFTER_ATTENTION = "attention_norm"

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        initializer = config.kernel_initializer()
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        norm: dict[str, Any] = dict(epsilon=config.layer_norm_epsilon, **common)
        self.attention = MultiHeadAttention(
            config.hidden_dim, config.num_heads, config.attention_dropout, initializer, name="attention", **common
        )
        self.attention_norm = keras.layers.LayerNormalization(name="attention_norm", **norm)
        self.feed_forward = FeedForward(
            config.hidden_dim, config.feed_forward_dim, config.activation, initializer, name="feed_forward", **common
        )
        self.feed_forward_norm = keras.layers.LayerNormalization(name="feed_forward_norm", **norm)
        self.attention_output_dropout = Dropout(config.dropout, name="attention_output_dropout", **common)
        self.feed_forward_dropout = Dropout(config.dropout, name="feed_forward_dropout", **common)

    def call(self, x, attention_mask=None, return_weights=False, cache=None, positions=None, rotation=None):
        context = x
        if positions is not None:
            x, attention_mask = gather_positions(x, positions), attention_mask.of_queries(positions)
        options = dict(return_weights=return_weights, cache=cache, rotation=rotation)
        y, extras = self.attention(x, context, attention_mask=attention_mask, **options)
        x = self.attention_norm(x + self.attention_output_dropout(y))
        y = self.feed_forward(x)
        x = self.feed_forward_norm(x + self.feed_forward_dropout(y))
        return x, extras


# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class Bert(Backbone):
    """The encoder of BERT.

    Args:
        config: a `BertConfig`.
        pooler: whether to build the pooler, a dense layer with tanh on the first token.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `segment_ids`,
            `position_ids`, `sequence_ids`, `first_positions`.
        hidden_states: whether to return the embeddings and the output of each block.
        attention_weights: whether to return the attention probabilities of each block.
        output_positions: int32 (b, p), the only positions that the last block computes, so that `sequence_output` is
            (b, p, m). Cannot be combined with `hidden_states` or `attention_weights`.

    Returns: a dict of `sequence_output` (b, s, m), `pooled_output` (b, m) if there is a pooler, and if requested the
        lists `hidden_states` (num_layers + 1 tensors (b, s, m)) and `attention_weights` (num_layers tensors
        (b, h, s, s)). For packed rows, `pooled_output` is (b, n, m), or missing if the batch has no `first_positions`.

    Example:
        >>> import numpy as np
        >>> from kerasbert.models import Bert, BertConfig
        >>> config = BertConfig(vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, feed_forward_dim=32)
        >>> outputs = Bert(config)({"token_ids": np.array([[2, 7, 9, 3], [2, 8, 3, 0]]), "lengths": np.array([4, 3])})
        >>> tuple(outputs["sequence_output"].shape), tuple(outputs["pooled_output"].shape)
        ((2, 4, 16), (2, 16))
        >>> Bert.from_preset("bert_tiny", load_weights=False).count_params()
        4385920
    """

    has_output_positions = True

    def __init__(self, config: BertConfig, pooler: bool = True, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        table: dict[str, Any] = dict(
            output_dim=config.hidden_dim, embeddings_initializer=config.kernel_initializer(), **common
        )
        self.token_embedding = keras.layers.Embedding(config.vocabulary_size, name="token_embedding", **table)
        self.position_embedding = keras.layers.Embedding(config.max_length, name="position_embedding", **table)
        self.segment_embedding = keras.layers.Embedding(config.num_segments, name="segment_embedding", **table)
        self.embedding_norm = keras.layers.LayerNormalization(
            epsilon=config.layer_norm_epsilon, name="embedding_norm", **common
        )
        self.embedding_dropout = Dropout(config.dropout, name="embedding_dropout", **common)
        self.blocks = [BertBlock(config, name=f"block_{i}", **common) for i in range(config.num_layers)]
        self.pooler = None
        if pooler:
            self.pooler = Dense(
                config.hidden_dim, "tanh", kernel_initializer=config.kernel_initializer(), name="pooler", **common
            )
        self.build_now()

    def embed_tokens(self, inputs):
        token_ids = inputs["token_ids"]
        segment_ids = inputs.get("segment_ids")
        segment_ids = keras.ops.zeros_like(token_ids) if segment_ids is None else segment_ids
        x = self.token_embedding(token_ids) + self.segment_embedding(segment_ids)
        x = x + self.position_embedding(token_positions(inputs))
        return self.embedding_dropout(self.embedding_norm(x))

    def call(self, inputs, hidden_states=False, attention_weights=False, output_positions=None):
        x = self.embed_tokens(inputs)

        blocks = run_blocks(
            self.blocks,
            x,
            last={"positions": needed_positions(inputs, output_positions)},
            attention_mask=AttentionMask.from_inputs(inputs),
            return_weights=attention_weights,
        )
        x, first = needed_tokens(blocks.states[-1], inputs, output_positions)
        pooled = None if first is None or self.pooler is None else self.pooler(first)
        outputs = present(sequence_output=x, pooled_output=pooled)
        return {**outputs, **blocks.requested(hidden_states, attention_weights)}

    def get_config(self):
        return {**super().get_config(), "pooler": self.pooler is not None}


# === Heads ===


HEADS = {
    "masked_lm": masked_lm(),
    "span_boundary": lambda config, max_targets=15, **common: SpanBoundaryHead(
        config.vocabulary_size,
        config.hidden_dim,
        max_targets,
        config.activation,
        config.layer_norm_epsilon,
        config.kernel_initializer(),
        **common,
    ),
    "sentence_pair": of_config(PooledClassifier, num_labels=2),
    "classifier": of_config(PooledClassifier, "classifier_dropout"),
    "tagger": of_config(TokenHead, "classifier_dropout"),
    "span": of_config(TokenHead, num_labels=2),
    "choice": of_config(PooledClassifier, "classifier_dropout", num_labels=1),
}

POOLED_HEADS = {"sentence_pair", "classifier", "choice"}  # heads that need the pooler

# === Hugging Face ===

HUGGINGFACE_CONFIG = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "feed_forward_dim": "intermediate_size",
    "max_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "classifier_dropout": "classifier_dropout",
    "activation": "hidden_act",
    "layer_norm_epsilon": "layer_norm_eps",
    "initializer_range": "initializer_range",
    "pad_id": "pad_token_id",
    "model_type": "model_type",
}

# Of embeddings and blocks, which many families store as BERT does.
ENCODER_NAMES = {
    "token_embedding": "embeddings.word_embeddings",
    "position_embedding": "embeddings.position_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "block_{i}/attention/query": "encoder.layer.{i}.attention.self.query",
    "block_{i}/attention/key": "encoder.layer.{i}.attention.self.key",
    "block_{i}/attention/value": "encoder.layer.{i}.attention.self.value",
    "block_{i}/attention/project": "encoder.layer.{i}.attention.output.dense",
    "block_{i}/attention_norm": "encoder.layer.{i}.attention.output.LayerNorm",
    "block_{i}/feed_forward/inner": "encoder.layer.{i}.intermediate.dense",
    "block_{i}/feed_forward/outer": "encoder.layer.{i}.output.dense",
    "block_{i}/feed_forward_norm": "encoder.layer.{i}.output.LayerNorm",
}

HUGGINGFACE_NAMES = {
    **ENCODER_NAMES,
    "pooler": "pooler.dense",
    "masked_lm/dense": "cls.predictions.transform.dense",
    "masked_lm/norm": "cls.predictions.transform.LayerNorm",
    "masked_lm/bias": "cls.predictions.bias",
    # transformers has no tensors for this head, so it is stored in a separate file.
    "span_boundary/position_embedding": "kerasbert.span_boundary.position_embeddings",
    "span_boundary/dense_{i}": "kerasbert.span_boundary.dense_{i}",
    "span_boundary/norm_{i}": "kerasbert.span_boundary.norm_{i}",
    "span_boundary/bias": "kerasbert.span_boundary.bias",
    "sentence_pair/dense": "cls.seq_relationship",
    "classifier/dense": "classifier",
    "tagger/dense": "classifier",
    "span/dense": "qa_outputs",
    "choice/dense": "classifier",
}

# Pairs of names for the same tensor. Files contain one of the names or both.
HUGGINGFACE_TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}

register_family(
    Bert,
    Family(
        config=BertConfig,
        model_types=("bert",),
        sizes=SIZES,
        heads=HEADS,
        pooled_heads=frozenset(POOLED_HEADS),
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only={"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False},
            classes={
                "SpanBoundary": "BertForMaskedLM",
                **transformers_classes("Bert"),
                "MaskedLM with sentence_pair": "BertForPreTraining",
            },
            prefix="bert",
            names=HUGGINGFACE_NAMES,
            tied=HUGGINGFACE_TIED,
        ),
    ),
)
