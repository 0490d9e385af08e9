"""NeoBERT: a deep and narrow encoder with the parts of modern decoders.

Le Breton, Fournier, El Mezouar, Chandar 2025, arXiv 2502.19587. New compared with BERT: 28 blocks instead of 12 at the
same width; RMS norms before each sublayer; SwiGLU; rotary positions; no biases, segments and dropout; an output matrix
of its own; 20% masks, all of them the mask token, on web text. The tokenizer is BERT's.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from ..core.blocks import present, run_blocks
from ..core.family import Config, Family, HuggingFaceLayout, register_family
from ..core.initializers import normal, uniform
from ..core.weight_names import Field, Part
from ..layers.attention import MultiHeadAttention
from ..layers.composite import Composite
from ..layers.embeddings import first_tokens
from ..layers.feed_forward import GatedFeedForward
from ..layers.heads import FirstTokenClassifier, UntiedLMHead
from ..layers.masks import AttentionMask
from ..layers.positions import Rotation, token_positions
from .backbone import Backbone

# === Config ===


@dataclasses.dataclass(frozen=True)
class NeoBertConfig(Config):
    vocabulary_size: int = 30_522
    num_layers: int = 28
    num_heads: int = 12
    hidden_dim: int = 768
    feed_forward_dim: int = 2_048  # width of both inner layers of the gated feed-forward network; a multiple of 8
    max_length: int = 4_096  # length in training; the model itself has no limit
    classifier_dropout: float = 0.1  # before both layers of the classifier
    norm_epsilon: float = 1e-5  # added to the mean square in RMS norms
    initializer_range: float = 0.02  # half the width of the uniform distribution of kernels
    embedding_initializer_range: float = 0.02  # half the width of the uniform distribution of token embeddings
    classifier_initializer_range: float = 0.02  # standard deviation of the normal distribution of the classifier
    pad_id: int = 0
    model_type: str = "neobert"

    def __post_init__(self):
        if self.feed_forward_dim % 8:
            raise ValueError(
                "`feed_forward_dim` must be a multiple of 8, to which the authors' code rounds it. Received: "
                f"{self.feed_forward_dim}."
            )

    def kernel_initializer(self):
        return uniform(self.initializer_range)

    def norm(self, **common):
        return keras.layers.RMSNormalization(epsilon=self.norm_epsilon, **common)


# === Sizes ===

SIZES = {"neobert": {}}

# === Block ===


class PairRotation(Rotation):
    """A rotation in which neighboring dimensions, 2 i and 2 i + 1, form a pair."""

    def __call__(self, x):
        first, second = ops.cast(x[..., ::2], "float32"), ops.cast(x[..., 1::2], "float32")
        rotated = first * self.cosines - second * self.sines, second * self.cosines + first * self.sines
        return ops.cast(ops.reshape(ops.stack(rotated, axis=-1), ops.shape(x)), x.dtype)


class NeoBertBlock(Composite):
    """Attention and gated feed-forward; each normalizes its input and is added to the residual stream (pre-norm).

    Args:
        config: a `NeoBertConfig`.

    Call:
        x: float (b, s, m).
        attention_mask: an `AttentionMask`.
        rotation: the `PairRotation` of queries and keys.
        return_weights: whether to return the attention probabilities.

    Returns: float (b, s, m), and `Extras` with the attention probabilities (b, h, s, s) if requested.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        dense: dict[str, Any] = dict(kernel_initializer=config.kernel_initializer(), use_bias=False, **common)
        self.attention_norm = config.norm(name="attention_norm", **common)
        self.attention = MultiHeadAttention(config.hidden_dim, config.num_heads, name="attention", **dense)
        self.feed_forward_norm = config.norm(name="feed_forward_norm", **common)
        self.feed_forward = GatedFeedForward(
            config.hidden_dim, config.feed_forward_dim, "silu", name="feed_forward", **dense
        )

    def call(self, x, attention_mask=None, rotation=None, return_weights=False):
        y = self.attention_norm(x)
        y, extras = self.attention(y, attention_mask=attention_mask, rotation=rotation, return_weights=return_weights)
        x = x + y
        x = x + self.feed_forward(self.feed_forward_norm(x))
        return x, extras


# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class NeoBert(Backbone):
    """The encoder of NeoBERT.

    Args:
        config: a `NeoBertConfig`.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `position_ids`,
            `sequence_ids`, `first_positions`.
        hidden_states: whether to return the embeddings and the output of each block, the last one normalized.
        attention_weights: whether to return the attention probabilities of each block.

    Returns: a dict of `sequence_output` (b, s, m), `first_output` (b, m), and if requested the lists `hidden_states`
        (num_layers + 1 tensors (b, s, m)) and `attention_weights` (num_layers tensors (b, h, s, s)). For packed rows,
        `first_output` is (b, n, m), or missing if the batch has no `first_positions`.
    """

    takes_segments = False
    learned_positions = False

    def __init__(self, config: NeoBertConfig, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        initializer: Any = uniform(config.embedding_initializer_range)
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size, config.hidden_dim, initializer, name="token_embedding", **common
        )
        self.blocks = [NeoBertBlock(config, name=f"block_{i}", **common) for i in range(config.num_layers)]
        self.final_norm = config.norm(name="final_norm", **common)
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False):
        head_dim = self.config.hidden_dim // self.config.num_heads
        blocks = run_blocks(
            self.blocks,
            self.token_embedding(inputs["token_ids"]),
            attention_mask=AttentionMask.from_inputs(inputs),
            rotation=PairRotation.at(token_positions(inputs), head_dim, theta=10_000.0),
            return_weights=attention_weights,
        )
        x = blocks.states[-1] = self.final_norm(blocks.states[-1])
        outputs = present(sequence_output=x, first_output=first_tokens(x, inputs))
        return {**outputs, **blocks.requested(hidden_states, attention_weights)}


# === Heads ===


def _masked_lm(config, **common):
    return UntiedLMHead(config.vocabulary_size, kernel_initializer=config.kernel_initializer(), **common)


def _classifier(config, num_labels, **common):
    rate = config.classifier_dropout
    initializer: Any = normal(config.classifier_initializer_range)
    return FirstTokenClassifier(num_labels, config.hidden_dim, "tanh", rate, rate, initializer, **common)


HEADS = {"masked_lm": _masked_lm, "classifier": _classifier}

# === Hugging Face ===

# The layout is that of the code on the hub: transformers has no class for this family.


def _feed_forward_dim(stored):
    """Two thirds of the stored width, rounded up to a multiple of 8, because there are three layers instead of two."""
    return -(-(2 * stored["intermediate_size"] // 3) // 8) * 8


HUGGINGFACE_CONFIG = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "feed_forward_dim": Field("intermediate_size", _feed_forward_dim, lambda config: 3 * config.feed_forward_dim // 2),
    "max_length": "max_length",
    "classifier_dropout": "classifier_dropout",
    "norm_epsilon": "norm_eps",
    "initializer_range": "decoder_init_range",
    "embedding_initializer_range": "embedding_init_range",
    "classifier_initializer_range": "classifier_init_range",
    "pad_id": "pad_token_id",
    "model_type": "model_type",
}

HUGGINGFACE_DEFAULTS = dict(vocab_size=32_064, max_length=1_024, norm_eps=1e-6)

HUGGINGFACE_ONLY = {
    **dict(hidden_act="SwiGLU", rms_norm=True, rope=True, rope_theta=10_000.0),
    **dict(dropout=0.0, ngpt=False),
}

HUGGINGFACE_CLASSES = {
    "Backbone": "NeoBERT",
    "MaskedLM": "NeoBERTLMHead",
    "TextClassifier": "NeoBERTForSequenceClassification",
}

HUGGINGFACE_NAMES = {
    "token_embedding": "encoder",
    "block_{i}/attention_norm": "transformer_encoder.{i}.attention_norm",
    "block_{i}/attention/query": Part("transformer_encoder.{i}.qkv", 0, 3, by_head=True),
    "block_{i}/attention/key": Part("transformer_encoder.{i}.qkv", 1, 3, by_head=True),
    "block_{i}/attention/value": Part("transformer_encoder.{i}.qkv", 2, 3, by_head=True),
    "block_{i}/attention/project": "transformer_encoder.{i}.wo",
    "block_{i}/feed_forward_norm": "transformer_encoder.{i}.ffn_norm",
    "block_{i}/feed_forward/inner": Part("transformer_encoder.{i}.ffn.w12", 0, 2),
    "block_{i}/feed_forward/gate": Part("transformer_encoder.{i}.ffn.w12", 1, 2),
    "block_{i}/feed_forward/outer": "transformer_encoder.{i}.ffn.w3",
    "final_norm": "layer_norm",
    "masked_lm/dense": "decoder",
    "classifier/dense": "dense",
    "classifier/project": "classifier",
}

register_family(
    NeoBert,
    Family(
        config=NeoBertConfig,
        model_types=("neobert",),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only=HUGGINGFACE_ONLY,
            defaults=HUGGINGFACE_DEFAULTS,
            written={name: lambda config, value=value: value for name, value in HUGGINGFACE_ONLY.items()},
            classes=HUGGINGFACE_CLASSES,
            prefix="model",
            names=HUGGINGFACE_NAMES,
            remote_code=True,
        ),
    ),
)
