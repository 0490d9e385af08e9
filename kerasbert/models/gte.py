"""GTE: an encoder for long texts in 75 languages, made for embeddings and reranking.

Zhang et al. 2024, arXiv 2407.19669 (mGTE). New compared with BERT: rotary positions, with periods that are stretched
for texts of 8,192 tokens; GeGLU; 30% masks and no sentence pairs. It is the encoder of gte-multilingual-base,
gte-base-en-v1.5, gte-large-en-v1.5 and snowflake-arctic-embed-m-v2.0.
"""

import dataclasses
from typing import Any

import keras

from ..core.blocks import present, run_blocks
from ..core.family import Config, Family, HuggingFaceLayout, register_family
from ..core.initializers import normal, with_zero_row
from ..core.weight_names import Field, Part
from ..layers.attention import MultiHeadAttention
from ..layers.composite import Composite
from ..layers.dense import Dense
from ..layers.dropout import Dropout
from ..layers.embeddings import first_tokens
from ..layers.feed_forward import GatedFeedForward
from ..layers.heads import PooledClassifier, TokenHead, masked_lm, of_config
from ..layers.masks import AttentionMask
from ..layers.positions import Rotation, token_positions
from .backbone import Backbone
from .bert import HUGGINGFACE_CONFIG as BERT_CONFIG
from .nomic_bert import HUGGINGFACE_MODULES

# === Config ===


@dataclasses.dataclass(frozen=True)
class GteConfig(Config):
    vocabulary_size: int = 250_048  # XLM-R's 250,002 tokens, and 46 unused rows
    num_layers: int = 12
    num_heads: int = 12
    hidden_dim: int = 768
    feed_forward_dim: int = 3_072  # width of both inner layers of the gated feed-forward network
    max_length: int = 8_192  # length in training; the model itself has no limit
    num_segments: int = 1  # 0: no segment embeddings, as in gte-base-en-v1.5
    rope_theta: float = 160_000.0  # base of the rotation periods
    rope_factor: float = 1.0  # by which all rotation periods are multiplied
    dropout: float = 0.1  # after the embeddings, in the feed-forward network and after each sublayer
    attention_dropout: float = 0.0  # of the attention probabilities
    classifier_dropout: float | None = None  # before fine-tuning heads; None: the same rate as `dropout`
    activation: str = "gelu"
    layer_norm_epsilon: float = 1e-12
    initializer_range: float = 0.02  # standard deviation of the normal distribution
    pad_id: int | None = 1
    model_type: str = "gte"

    def __post_init__(self):
        if self.rope_factor <= 0:
            raise ValueError(f"`rope_factor` must be greater than 0. Received: {self.rope_factor}.")

    def kernel_initializer(self):
        return normal(self.initializer_range)


def stretched(theta: float, factor: float, head_dim: int) -> tuple[float, float]:
    """Returns (`rope_theta`, `rope_factor`) for periods that are stretched as in the code of the paper ("ntk").

    The period of pair i, counted from 0, is theta ** (2 i / head_dim), and becomes longer by the factor
    factor ** (2 (i + 1) / head_dim): the longest period by the whole factor, and the shortest one by little.

    Args:
        theta: the base of the periods before.
        factor: the factor.
        head_dim: size of each attention head.
    """
    return theta * factor, factor ** (2 / head_dim)


# === Sizes ===


def _stretched(theta, factor):
    return dict(zip(("rope_theta", "rope_factor"), stretched(theta, factor, head_dim=64), strict=True))


SIZES = {
    "gte_multilingual_base": _stretched(20_000.0, 8.0),
    "gte_base_en": dict(vocabulary_size=30_528, num_segments=0, pad_id=0, **_stretched(500_000.0, 2.0)),
}

# === Block ===


class GteBlock(Composite):
    """Attention and gated feed-forward; the sum of each sublayer's input and output is normalized (post-norm).

    Args:
        config: a `GteConfig`.

    Call:
        x: float (b, s, m).
        attention_mask: an `AttentionMask`.
        rotation: the `Rotation` of queries and keys.
        return_weights: whether to return the attention probabilities.

    Returns: float (b, s, m), and `Extras` with the attention probabilities (b, h, s, s) if requested.
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
        self.feed_forward = GatedFeedForward(
            config.hidden_dim,
            config.feed_forward_dim,
            config.activation,
            config.dropout,
            initializer,
            use_bias="outer",
            name="feed_forward",
            **common,
        )
        self.feed_forward_norm = keras.layers.LayerNormalization(name="feed_forward_norm", **norm)
        self.attention_output_dropout = Dropout(config.dropout, name="attention_output_dropout", **common)
        self.feed_forward_dropout = Dropout(config.dropout, name="feed_forward_dropout", **common)

    def call(self, x, attention_mask=None, rotation=None, return_weights=False):
        y, extras = self.attention(x, attention_mask=attention_mask, rotation=rotation, return_weights=return_weights)
        x = self.attention_norm(x + self.attention_output_dropout(y))
        y = self.feed_forward(x)
        x = self.feed_forward_norm(x + self.feed_forward_dropout(y))
        return x, extras


# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class Gte(Backbone):
    """The encoder of GTE.

    Args:
        config: a `GteConfig`.
        pooler: whether to build the pooler, a dense layer with tanh on the first token. Only classifiers need it;
            embeddings are the first token's `sequence_output`.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `segment_ids`,
            `position_ids`, `sequence_ids`, `first_positions`. Segments have no effect if `num_segments` is 0.
        hidden_states: whether to return the embeddings and the output of each block.
        attention_weights: whether to return the attention probabilities of each block.

    Returns: a dict of `sequence_output` (b, s, m), `pooled_output` (b, m) if there is a pooler, and if requested the
        lists `hidden_states` (num_layers + 1 tensors (b, s, m)) and `attention_weights` (num_layers tensors
        (b, h, s, s)). For packed rows, `pooled_output` is (b, n, m), or missing if the batch has no `first_positions`.
    """

    learned_positions = False

    def __init__(self, config: GteConfig, pooler: bool = False, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        initializer: Any = config.kernel_initializer()
        of_tokens: Any = with_zero_row(initializer, config.pad_id)
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size, config.hidden_dim, of_tokens, name="token_embedding", **common
        )
        self.segment_embedding = None
        if config.num_segments:
            self.segment_embedding = keras.layers.Embedding(
                config.num_segments, config.hidden_dim, initializer, name="segment_embedding", **common
            )
        self.embedding_norm = keras.layers.LayerNormalization(
            epsilon=config.layer_norm_epsilon, name="embedding_norm", **common
        )
        self.embedding_dropout = Dropout(config.dropout, name="embedding_dropout", **common)
        self.blocks = [GteBlock(config, name=f"block_{i}", **common) for i in range(config.num_layers)]
        self.pooler = None
        if pooler:
            self.pooler = Dense(config.hidden_dim, "tanh", kernel_initializer=initializer, name="pooler", **common)
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False):
        config, token_ids = self.config, inputs["token_ids"]
        x = self.token_embedding(token_ids)
        if self.segment_embedding is not None:
            segment_ids = inputs.get("segment_ids")
            x = x + self.segment_embedding(keras.ops.zeros_like(token_ids) if segment_ids is None else segment_ids)
        x = self.embedding_dropout(self.embedding_norm(x))

        head_dim = config.hidden_dim // config.num_heads
        blocks = run_blocks(
            self.blocks,
            x,
            attention_mask=AttentionMask.from_inputs(inputs),
            rotation=Rotation.at(token_positions(inputs), head_dim, config.rope_theta, config.rope_factor),
            return_weights=attention_weights,
        )
        x = blocks.states[-1]
        first = first_tokens(x, inputs)
        pooled = None if first is None or self.pooler is None else self.pooler(first)
        outputs = present(sequence_output=x, pooled_output=pooled)
        return {**outputs, **blocks.requested(hidden_states, attention_weights)}

    def get_config(self):
        return {**super().get_config(), "pooler": self.pooler is not None}


# === Heads ===


HEADS = {
    "masked_lm": masked_lm(activation="gelu"),  # exact gelu, whatever the activation of the blocks
    "classifier": of_config(PooledClassifier, "classifier_dropout"),
    "tagger": of_config(TokenHead, "classifier_dropout"),
}

# === Hugging Face ===

# The model type is "gte" in the files of transformers and Snowflake, and "new" in those of the authors. Their code is
# the same, except that only the authors' code stretches periods. Its files are saved as those of transformers.


def _rope(stored):
    """Returns (theta, factor) from the fields of transformers 4 or 5, or from those of the authors' code."""
    rope = {**(stored.get("rope_scaling") or {}), **(stored["rope_parameters"] or {})}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    theta = rope.get("rope_theta") or stored["rope_theta"]
    if kind == "default":
        return theta, 1.0
    if kind == "linear":
        return theta, rope["factor"]
    if kind == "ntk" and rope.get("mixed_b") is None:
        return stretched(theta, rope["factor"], stored["hidden_size"] // stored["num_attention_heads"])
    kind = f"ntk with mixed_b={rope['mixed_b']}" if kind == "ntk" else kind
    raise ValueError(
        f"kerasbert supports only rope_type='default', 'linear' and 'ntk' without mixed_b. Received in config.json: "
        f"{kind!r}."
    )


def _rope_parameters(config):
    rope = {"rope_type": "default", "rope_theta": config.rope_theta}
    return rope if config.rope_factor == 1 else {**rope, "rope_type": "linear", "factor": config.rope_factor}


HUGGINGFACE_CONFIG = {
    **BERT_CONFIG,
    "rope_theta": Field("rope_theta", lambda stored: _rope(stored)[0], lambda config: config.rope_theta),
    "rope_factor": Field("rope_parameters", lambda stored: _rope(stored)[1], _rope_parameters),
    "model_type": Field("model_type", lambda stored: "gte", lambda config: config.model_type),
}

_DEFAULTS = dict(hidden_size=768, num_attention_heads=12, type_vocab_size=1, rope_parameters=None)

HUGGINGFACE_DEFAULTS = {
    "gte": {**_DEFAULTS, "rope_theta": 160_000.0},
    "new": {
        **_DEFAULTS,
        **dict(vocab_size=30_528, max_position_embeddings=2_048, rope_theta=10_000.0, pad_token_id=None),
    },
}

HUGGINGFACE_ONLY = {
    **dict(position_embedding_type="rope", layer_norm_type="layer_norm", pack_qkv=True, logn_attention_scale=False),
    "tie_word_embeddings": True,
}

_HEADS = {
    "MaskedLM": "ForMaskedLM",
    "TextClassifier": "ForSequenceClassification",
    "TokenClassifier": "ForTokenClassification",
}

HUGGINGFACE_CLASSES = {
    model_type: {"Backbone": f"{name}Model", **{ours: name + theirs for ours, theirs in _HEADS.items()}}
    for model_type, name in (("gte", "Gte"), ("new", "New"))
}

HUGGINGFACE_NAMES = {
    "token_embedding": "embeddings.word_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "block_{i}/attention/query": Part("encoder.layer.{i}.attention.qkv_proj", 0, 3),
    "block_{i}/attention/key": Part("encoder.layer.{i}.attention.qkv_proj", 1, 3),
    "block_{i}/attention/value": Part("encoder.layer.{i}.attention.qkv_proj", 2, 3),
    "block_{i}/attention/project": "encoder.layer.{i}.attention.o_proj",
    "block_{i}/attention_norm": "encoder.layer.{i}.attn_ln",
    "block_{i}/feed_forward/gate": Part("encoder.layer.{i}.mlp.up_gate_proj", 0, 2),
    "block_{i}/feed_forward/inner": Part("encoder.layer.{i}.mlp.up_gate_proj", 1, 2),
    "block_{i}/feed_forward/outer": "encoder.layer.{i}.mlp.down_proj",
    "block_{i}/feed_forward_norm": "encoder.layer.{i}.mlp_ln",
    "pooler": "pooler.dense",
    "masked_lm/dense": "lm_head.dense",
    "masked_lm/norm": "lm_head.norm",
    "masked_lm/bias": "lm_head.decoder.bias",
    "classifier/dense": "classifier",
    "tagger/dense": "classifier",
}

register_family(
    Gte,
    Family(
        config=GteConfig,
        model_types=("gte", "new"),
        sizes=SIZES,
        heads=HEADS,
        pooled_heads=frozenset({"classifier"}),
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only=HUGGINGFACE_ONLY,
            defaults=HUGGINGFACE_DEFAULTS,
            written={name: lambda config, value=value: value for name, value in HUGGINGFACE_ONLY.items()},
            classes=HUGGINGFACE_CLASSES,
            prefix="gte",
            older_prefixes=("new",),
            names=HUGGINGFACE_NAMES,
            tied={"lm_head.decoder.weight": "gte.embeddings.word_embeddings.weight"},
            modules={**HUGGINGFACE_MODULES, "masked_lm/norm": "lm_head.layer_norm"},
        ),
    ),
)
