"""EuroBERT: a multilingual encoder with the architecture of Llama, without its causal mask.

Boizard et al. 2025, arXiv 2503.05500. New compared with ModernBERT: groups of query heads share one head of keys and
values; RMS norms; 15 languages, code and mathematics; 50% masks in pretraining and 10% at its end; classifiers that
average the logits of all tokens. The tokenizer is that of Llama 3; its padding token is also its end token.
"""

import dataclasses
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from ..core.blocks import present, run_blocks
from ..core.family import Config, Family, HuggingFaceLayout, register_family
from ..core.initializers import normal
from ..core.weight_names import Field
from ..layers.attention import ProjectedAttention, split_heads
from ..layers.composite import Composite
from ..layers.dense import Dense
from ..layers.dropout import Dropout
from ..layers.embeddings import first_tokens, mean_tokens, mean_weights
from ..layers.feed_forward import GatedFeedForward, activation_function
from ..layers.heads import TokenHead, TokenTableHead, UntiedLMHead, of_config
from ..layers.masks import AttentionMask
from ..layers.positions import Rotation, token_positions
from .backbone import Backbone

# === Config ===


@dataclasses.dataclass(frozen=True)
class EuroBertConfig(Config):
    vocabulary_size: int = 128_256
    num_layers: int = 12
    num_heads: int = 12  # of queries
    num_key_heads: int | None = None  # of keys and values, each for as many query heads; None: `num_heads`
    head_dim: int | None = None  # width of an attention head; None: hidden_dim / num_heads
    hidden_dim: int = 768
    feed_forward_dim: int = 3_072  # width of both inner layers of the gated feed-forward network
    max_length: int = 8_192  # length in training; the model itself has no limit
    rope_theta: float = 250_000.0  # base of the rotation periods; 10,000 in most of the pretraining
    attention_dropout: float = 0.0  # of the attention probabilities
    attention_bias: bool = False
    feed_forward_bias: bool = False  # also of the logits over the vocabulary
    tied_output: bool = False  # whether the logits over the vocabulary are products with the token embeddings
    classifier_pooling: str = "late"  # of the first token ("bos"), the mean of tokens ("mean") or of logits ("late")
    activation: str = "silu"
    norm_epsilon: float = 1e-5  # added to the mean square in RMS norms
    initializer_range: float = 0.02  # standard deviation of the normal distribution
    pad_id: int | None = 128_001
    bos_id: int | None = 128_000
    eos_id: int | None = 128_001
    mask_id: int | None = 128_002  # the token "<|mask|>"
    model_type: str = "eurobert"
    POOLINGS: ClassVar = ("bos", "mean", "late")

    def __post_init__(self):
        if self.num_key_heads is None:
            object.__setattr__(self, "num_key_heads", self.num_heads)
        if self.head_dim is None:
            object.__setattr__(self, "head_dim", self.hidden_dim // self.num_heads)
        if self.num_key_heads < 1 or self.num_heads % self.num_key_heads:
            raise ValueError(
                "`num_heads` must be a multiple of `num_key_heads`. Received: "
                f"num_heads={self.num_heads}, num_key_heads={self.num_key_heads}."
            )
        if self.classifier_pooling not in self.POOLINGS:
            rule = f"`classifier_pooling` must be one of {', '.join(self.POOLINGS)}."
            raise ValueError(f"{rule} Received: {self.classifier_pooling!r}.")

    def kernel_initializer(self):
        return normal(self.initializer_range)

    def norm(self, **common):
        return keras.layers.RMSNormalization(epsilon=self.norm_epsilon, **common)


# === Sizes ===

SIZES = {
    "eurobert_210m": {},
    "eurobert_610m": dict(num_layers=26, hidden_dim=1_152, num_heads=18, num_key_heads=6, feed_forward_dim=4_096),
    "eurobert_2b": dict(num_layers=32, hidden_dim=2_304, num_heads=18, num_key_heads=6, feed_forward_dim=6_144),
}

# === Block ===


class GroupedAttention(ProjectedAttention):
    """Attention in which groups of consecutive query heads share one head of keys and values (Ainslie et al. 2023).

    Paper of grouped queries: arXiv 2305.13245. Inputs and outputs are the same as in `ProjectedAttention`.

    Args:
        config: an `EuroBertConfig`.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(kernel_initializer=config.kernel_initializer(), dtype=self.dtype_policy)
        dense: dict[str, Any] = dict(use_bias=config.attention_bias, **common)
        self.num_heads, self.num_key_heads, self.scale = config.num_heads, config.num_key_heads, config.head_dim**-0.5
        self.query = Dense(config.num_heads * config.head_dim, name="query", **dense)
        self.key = Dense(config.num_key_heads * config.head_dim, name="key", **dense)
        self.value = Dense(config.num_key_heads * config.head_dim, name="value", **dense)
        self.project = Dense(config.hidden_dim, name="project", **dense)
        self.dropout = Dropout(config.attention_dropout, dtype="float32", name="dropout")

    def keys_and_values(self, context):
        """Returns (key, value), each (b, k, h, d): every head of keys and values is repeated for its query heads."""
        heads = (split_heads(layer(context), self.num_key_heads) for layer in (self.key, self.value))
        index = np.repeat(np.arange(self.num_key_heads), self.num_heads // self.num_key_heads)
        return tuple(ops.take(x, index, axis=2) for x in heads)


class EuroBertBlock(Composite):
    """Attention and gated feed-forward; each normalizes its input and is added to the residual stream (pre-norm).

    Args:
        config: an `EuroBertConfig`.

    Call:
        x: float (b, s, m).
        attention_mask: an `AttentionMask`.
        rotation: the `Rotation` of queries and keys.
        return_weights: whether to return the attention probabilities.

    Returns: float (b, s, m), and `Extras` with the attention probabilities (b, h, s, s) if requested.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.attention_norm = config.norm(name="attention_norm", **common)
        self.attention = GroupedAttention(config, name="attention", **common)
        self.feed_forward_norm = config.norm(name="feed_forward_norm", **common)
        self.feed_forward = GatedFeedForward(
            config.hidden_dim,
            config.feed_forward_dim,
            config.activation,
            kernel_initializer=config.kernel_initializer(),
            use_bias=config.feed_forward_bias,
            name="feed_forward",
            **common,
        )

    def call(self, x, attention_mask=None, rotation=None, return_weights=False):
        y = self.attention_norm(x)
        y, extras = self.attention(y, attention_mask=attention_mask, rotation=rotation, return_weights=return_weights)
        x = x + y
        x = x + self.feed_forward(self.feed_forward_norm(x))
        return x, extras


# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class EuroBert(Backbone):
    """The encoder of EuroBERT.

    Args:
        config: an `EuroBertConfig`.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `position_ids`,
            `sequence_ids`, `first_positions`. Padding cannot be recognized by its id, which is that of the end token.
        hidden_states: whether to return the embeddings and the output of each block, the last one normalized.
        attention_weights: whether to return the attention probabilities of each block.

    Returns: a dict of `sequence_output` (b, s, m), `pooled_output` (b, m), and if requested the lists `hidden_states`
        (num_layers + 1 tensors (b, s, m)) and `attention_weights` (num_layers tensors (b, h, s, s)). Depending on
        `config.classifier_pooling`, `pooled_output` is the first token ("bos") or the mean of the tokens ("mean",
        "late"). With "late", there are also the `mean_weights` (b, s), the share of each token in the mean. For packed
        rows, both have an axis n after the rows, or are missing if the batch has no `first_positions`.
    """

    takes_segments = False
    learned_positions = False

    def __init__(self, config: EuroBertConfig, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size, config.hidden_dim, config.kernel_initializer(), name="token_embedding", **common
        )
        self.blocks = [EuroBertBlock(config, name=f"block_{i}", **common) for i in range(config.num_layers)]
        self.final_norm = config.norm(name="final_norm", **common)
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False):
        config = self.config
        blocks = run_blocks(
            self.blocks,
            self.token_embedding(inputs["token_ids"]),
            attention_mask=AttentionMask.from_inputs(inputs),
            rotation=Rotation.at(token_positions(inputs), config.head_dim, config.rope_theta),
            return_weights=attention_weights,
        )
        x = blocks.states[-1] = self.final_norm(blocks.states[-1])
        pooled = first_tokens(x, inputs) if config.classifier_pooling == "bos" else mean_tokens(x, inputs)
        weights = mean_weights(inputs) if config.classifier_pooling == "late" else None
        outputs = present(sequence_output=x, pooled_output=pooled, mean_weights=weights)
        return {**outputs, **blocks.requested(hidden_states, attention_weights)}


# === Heads ===


class LateClassifier(Composite):
    """A dense layer, gelu and a dense output layer, on the pooled output, or on all tokens, whose logits are averaged.

    Args:
        config: an `EuroBertConfig`.
        num_labels: number of logits per sequence.

    Call:
        outputs: dict of the outputs of a backbone.

    Returns: logits, float (b, num_labels) or (b, n, num_labels).
    """

    def __init__(self, config, num_labels, **kwargs):
        super().__init__(**kwargs)
        dense: dict[str, Any] = dict(kernel_initializer=config.kernel_initializer(), dtype=self.dtype_policy)
        self.late = config.classifier_pooling == "late"
        self.dense = Dense(config.hidden_dim, name="dense", **dense)
        self.activation = activation_function("gelu")
        self.project = Dense(num_labels, name="project", **dense)

    def call(self, outputs):
        if outputs.get("pooled_output") is None:
            raise ValueError(
                "This head returns one output per sequence. Received: packed rows (`sequence_ids`) without "
                "`first_positions`. Add `first_positions` (b, n)."
            )
        x = outputs["sequence_output"] if self.late else outputs["pooled_output"]
        logits = self.project(self.activation(self.dense(x)))
        if not self.late:
            return logits
        weights = ops.cast(outputs["mean_weights"], logits.dtype)
        return ops.einsum("bsl,bs->bl" if len(weights.shape) == 2 else "bsl,bns->bnl", logits, weights)


def _masked_lm(config, **common):
    if config.tied_output:
        return TokenTableHead(**common)
    return UntiedLMHead(config.vocabulary_size, config.feed_forward_bias, config.kernel_initializer(), **common)


HEADS = {
    "masked_lm": _masked_lm,
    "classifier": LateClassifier,
    "tagger": of_config(TokenHead),
}

# === Hugging Face ===


def _rope_theta(stored):
    rope = stored.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default":
        raise ValueError(
            f"kerasbert supports only rope_type='default'. Received in config.json: {rope['rope_type']!r}."
        )
    return rope.get("rope_theta") or stored["rope_theta"]  # transformers 5, or 4


HUGGINGFACE_CONFIG = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_key_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "hidden_dim": "hidden_size",
    "feed_forward_dim": "intermediate_size",
    "max_length": "max_position_embeddings",
    "rope_theta": Field("rope_theta", _rope_theta, lambda config: config.rope_theta),
    "attention_dropout": "attention_dropout",
    "attention_bias": "attention_bias",
    "feed_forward_bias": "mlp_bias",
    "tied_output": "tie_word_embeddings",
    "classifier_pooling": "classifier_pooling",
    "activation": "hidden_act",
    "norm_epsilon": "rms_norm_eps",
    "initializer_range": "initializer_range",
    "pad_id": "pad_token_id",
    "bos_id": "bos_token_id",
    "eos_id": "eos_token_id",
    "mask_id": "mask_token_id",
    "model_type": "model_type",
}

HUGGINGFACE_CLASSES = {
    "Backbone": "EuroBertModel",
    "MaskedLM": "EuroBertForMaskedLM",
    "TextClassifier": "EuroBertForSequenceClassification",
    "TokenClassifier": "EuroBertForTokenClassification",
}

HUGGINGFACE_NAMES = {
    "token_embedding": "embed_tokens",
    "block_{i}/attention_norm": "layers.{i}.input_layernorm",
    "block_{i}/attention/query": "layers.{i}.self_attn.q_proj",
    "block_{i}/attention/key": "layers.{i}.self_attn.k_proj",
    "block_{i}/attention/value": "layers.{i}.self_attn.v_proj",
    "block_{i}/attention/project": "layers.{i}.self_attn.o_proj",
    "block_{i}/feed_forward_norm": "layers.{i}.post_attention_layernorm",
    "block_{i}/feed_forward/inner": "layers.{i}.mlp.gate_proj",
    "block_{i}/feed_forward/gate": "layers.{i}.mlp.up_proj",
    "block_{i}/feed_forward/outer": "layers.{i}.mlp.down_proj",
    "final_norm": "norm",
    "masked_lm/dense": "lm_head",
    "classifier/dense": "dense",
    "classifier/project": "classifier",
    "tagger/dense": "classifier",
}


def huggingface_fields(weights):
    """As in transformers, a file with an output matrix of its own has no tied output, whatever its config says."""
    return {"tied_output": False} if "lm_head.weight" in weights else {}


register_family(
    EuroBert,
    Family(
        config=EuroBertConfig,
        model_types=("eurobert",),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only={"rope_scaling": None},
            aliases={"clf_pooling": "classifier_pooling"},  # of the code on the hub
            defaults={"rope_theta": 10_000.0, "num_key_value_heads": None, "head_dim": None},
            written={
                "rope_parameters": lambda config: {"rope_type": "default", "rope_theta": config.rope_theta},
                "clf_pooling": lambda config: config.classifier_pooling,
            },
            classes=HUGGINGFACE_CLASSES,
            prefix="model",
            names=HUGGINGFACE_NAMES,
            fields=huggingface_fields,
        ),
    ),
)
