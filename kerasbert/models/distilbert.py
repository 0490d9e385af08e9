"""DistilBERT: a BERT with half of the layers, distilled from BERT.

Sanh, Debut, Chaumond, Wolf 2019, arXiv 1910.01108. New in this paper: the student is initialized with every second
layer of its teacher, and learns from the probabilities and hidden states of the teacher. Unlike BERT, it has no
segments, no pooler, and no dropout after attention.
"""

import dataclasses
from typing import Any

import keras

from ..core.blocks import present, run_blocks
from ..core.family import Config, Family, HuggingFaceLayout, register_family, transformers_classes
from ..core.initializers import SinusoidalTable, normal
from ..layers.attention import MultiHeadAttention
from ..layers.composite import Composite
from ..layers.dropout import Dropout
from ..layers.embeddings import gather_positions, needed_positions, needed_tokens
from ..layers.feed_forward import FeedForward
from ..layers.heads import FirstTokenClassifier, TokenHead, masked_lm, of_config
from ..layers.masks import AttentionMask
from ..layers.positions import token_positions
from .backbone import Backbone

# === Config ===


@dataclasses.dataclass(frozen=True)
class DistilBertConfig(Config):
    vocabulary_size: int = 30_522
    num_layers: int = 6
    num_heads: int = 12
    hidden_dim: int = 768
    feed_forward_dim: int = 3_072
    max_length: int = 512  # number of position embeddings
    sinusoidal_positions: bool = False  # whether positions are untrained sinusoids instead of learned embeddings
    dropout: float = 0.1  # after the embeddings and after the feed-forward network
    attention_dropout: float = 0.1  # of the attention probabilities
    classifier_dropout: float = 0.2  # inside the classification and choice heads
    span_dropout: float = 0.1  # before the question answering head
    activation: str = "gelu"
    initializer_range: float = 0.02  # standard deviation of the normal distribution
    pad_id: int = 0
    model_type: str = "distilbert"

    def kernel_initializer(self):
        return normal(self.initializer_range)


LAYER_NORM_EPSILON = 1e-12  # the same for all models of this family, whose config.json has no field for it

# === Sizes ===

SIZES = {
    "distilbert_base": dict(),
    "distilbert_base_cased": dict(vocabulary_size=28_996),
    "distilbert_base_multilingual_cased": dict(vocabulary_size=119_547),
}

# === Block ===


class DistilBertBlock(Composite):
    """BERT's post-norm block without dropout after attention.

    Args:
        config: a `DistilBertConfig`.

    Call:
        x: float (b, s, m).
        attention_mask: an `AttentionMask`.
        return_weights: whether to return the attention probabilities.
        positions: int32 (b, p), the only positions to compute, so that the output is (b, p, m). Default: all.

    Returns: float (b, s, m), and `Extras` with the attention probabilities (b, h, s, s) if requested.
    """

    AFTER_ATTENTION = "attention_norm"

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        initializer = config.kernel_initializer()
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        norm: dict[str, Any] = dict(epsilon=LAYER_NORM_EPSILON, **common)
        self.attention = MultiHeadAttention(
            config.hidden_dim, config.num_heads, config.attention_dropout, initializer, name="attention", **common
        )
        self.attention_norm = keras.layers.LayerNormalization(name="attention_norm", **norm)
        self.feed_forward = FeedForward(
            config.hidden_dim, config.feed_forward_dim, config.activation, initializer, name="feed_forward", **common
        )
        self.feed_forward_dropout = Dropout(config.dropout, name="feed_forward_dropout", **common)
        self.feed_forward_norm = keras.layers.LayerNormalization(name="feed_forward_norm", **norm)

    def call(self, x, attention_mask=None, return_weights=False, positions=None):
        context = x
        if positions is not None:
            x, attention_mask = gather_positions(x, positions), attention_mask.of_queries(positions)
        y, extras = self.attention(x, context, attention_mask=attention_mask, return_weights=return_weights)
        x = self.attention_norm(x + y)
        y = self.feed_forward(x)
        x = self.feed_forward_norm(x + self.feed_forward_dropout(y))
        return x, extras


# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class DistilBert(Backbone):
    """The encoder of DistilBERT.

    Args:
        config: a `DistilBertConfig`.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `position_ids`,
            `sequence_ids`, `first_positions`.
        hidden_states: whether to return the embeddings and the output of each block.
        attention_weights: whether to return the attention probabilities of each block.
        output_positions: int32 (b, p), the only positions that the last block computes, so that `sequence_output` is
            (b, p, m). Cannot be combined with `hidden_states` or `attention_weights`.

    Returns: a dict of `sequence_output` (b, s, m), `first_output` (b, m), and if requested the lists `hidden_states`
        (num_layers + 1 tensors (b, s, m)) and `attention_weights` (num_layers tensors (b, h, s, s)). For packed rows,
        `first_output` is (b, n, m), or missing if the batch has no `first_positions`.
    """

    takes_segments = False
    has_output_positions = True

    def __init__(self, config: DistilBertConfig, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        initializer = config.kernel_initializer()
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size,
            config.hidden_dim,
            embeddings_initializer=initializer,
            name="token_embedding",
            **common,
        )
        if config.sinusoidal_positions:
            initializer = SinusoidalTable()
        self.position_embedding = keras.layers.Embedding(
            config.max_length,
            config.hidden_dim,
            embeddings_initializer=initializer,
            trainable=not config.sinusoidal_positions,
            name="position_embedding",
            **common,
        )
        self.embedding_norm = keras.layers.LayerNormalization(
            epsilon=LAYER_NORM_EPSILON, name="embedding_norm", **common
        )
        self.embedding_dropout = Dropout(config.dropout, name="embedding_dropout", **common)
        self.blocks = [DistilBertBlock(config, name=f"block_{i}", **common) for i in range(config.num_layers)]
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False, output_positions=None):
        x = self.token_embedding(inputs["token_ids"]) + self.position_embedding(token_positions(inputs))
        x = self.embedding_dropout(self.embedding_norm(x))

        blocks = run_blocks(
            self.blocks,
            x,
            last={"positions": needed_positions(inputs, output_positions)},
            attention_mask=AttentionMask.from_inputs(inputs),
            return_weights=attention_weights,
        )
        x, first = needed_tokens(blocks.states[-1], inputs, output_positions)
        outputs = present(sequence_output=x, first_output=first)
        return {**outputs, **blocks.requested(hidden_states, attention_weights)}


# === Heads ===


def _first_token_classifier(config, num_labels, **common):
    return FirstTokenClassifier(
        num_labels,
        config.hidden_dim,
        "relu",
        config.classifier_dropout,
        kernel_initializer=config.kernel_initializer(),
        **common,
    )


HEADS = {
    "masked_lm": masked_lm(epsilon=LAYER_NORM_EPSILON),
    "classifier": _first_token_classifier,
    "tagger": of_config(TokenHead, "dropout"),
    "span": of_config(TokenHead, "span_dropout", num_labels=2),
    "choice": lambda config, **common: _first_token_classifier(config, 1, **common),
}

# === Hugging Face ===

HUGGINGFACE_CONFIG = {
    "vocabulary_size": "vocab_size",
    "num_layers": "n_layers",
    "num_heads": "n_heads",
    "hidden_dim": "dim",
    "feed_forward_dim": "hidden_dim",
    "max_length": "max_position_embeddings",
    "sinusoidal_positions": "sinusoidal_pos_embds",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "classifier_dropout": "seq_classif_dropout",
    "span_dropout": "qa_dropout",
    "activation": "activation",
    "initializer_range": "initializer_range",
    "pad_id": "pad_token_id",
    "model_type": "model_type",
}

HUGGINGFACE_ALIASES = {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}

HUGGINGFACE_NAMES = {
    "token_embedding": "embeddings.word_embeddings",
    "position_embedding": "embeddings.position_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "block_{i}/attention/query": "transformer.layer.{i}.attention.q_lin",
    "block_{i}/attention/key": "transformer.layer.{i}.attention.k_lin",
    "block_{i}/attention/value": "transformer.layer.{i}.attention.v_lin",
    "block_{i}/attention/project": "transformer.layer.{i}.attention.out_lin",
    "block_{i}/attention_norm": "transformer.layer.{i}.sa_layer_norm",
    "block_{i}/feed_forward/inner": "transformer.layer.{i}.ffn.lin1",
    "block_{i}/feed_forward/outer": "transformer.layer.{i}.ffn.lin2",
    "block_{i}/feed_forward_norm": "transformer.layer.{i}.output_layer_norm",
    "masked_lm/dense": "vocab_transform",
    "masked_lm/norm": "vocab_layer_norm",
    "masked_lm/bias": "vocab_projector.bias",
    "classifier/dense": "pre_classifier",
    "classifier/project": "classifier",
    "tagger/dense": "classifier",
    "span/dense": "qa_outputs",
    "choice/dense": "pre_classifier",
    "choice/project": "classifier",
}


register_family(
    DistilBert,
    Family(
        config=DistilBertConfig,
        model_types=("distilbert",),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            aliases=HUGGINGFACE_ALIASES,
            classes=transformers_classes("DistilBert"),
            prefix="distilbert",
            names=HUGGINGFACE_NAMES,
            tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
        ),
    ),
)
