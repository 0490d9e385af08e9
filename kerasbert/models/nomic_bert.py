"""NomicBERT: BERT with rotary positions and gated feed-forward networks, for texts of thousands of tokens.

Nussbaum, Morris, Duderstadt, Mulyar 2024, arXiv 2402.01613. New compared with BERT: rotary positions with short
wavelengths, which can be stretched for texts that are longer than those of training; SwiGLU; no biases in the blocks;
30% masks, no sentence pairs and no dropout. It is the encoder of nomic-embed-text.
"""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

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

# === Config ===


@dataclasses.dataclass(frozen=True)
class NomicBertConfig(Config):
    vocabulary_size: int = 30_528  # BERT's 30,522 tokens, and 6 unused rows
    num_layers: int = 12
    num_heads: int = 12
    hidden_dim: int = 768
    feed_forward_dim: int = 3_072  # width of both inner layers of the gated feed-forward network
    max_length: int = 2_048  # length in training; the model itself has no limit
    num_segments: int = 2
    rope_theta: float = 1_000.0  # base of the rotation periods
    rope_factor: float | None = None  # factor by which texts may exceed `max_length`; 2 in nomic-embed-text; None: 1
    dropout: float = 0.0  # after the embeddings and after each sublayer
    attention_dropout: float = 0.0  # of the attention probabilities
    classifier_dropout: float | None = None  # before fine-tuning heads; None: the same rate as `dropout`
    activation: str = "silu"
    layer_norm_epsilon: float = 1e-12
    initializer_range: float = 0.02  # standard deviation of the normal distribution
    pad_id: int = 0
    model_type: str = "nomic_bert"

    def __post_init__(self):
        head_dim = self.hidden_dim // self.num_heads
        if self.rope_factor is not None and (self.rope_factor < 1 or head_dim < 4):
            raise ValueError(
                "`rope_factor` must be at least 1, and heads must then have at least 4 dimensions. Received: "
                f"{self.rope_factor} with heads of {head_dim}."
            )

    def kernel_initializer(self):
        return normal(self.initializer_range)


# === Sizes ===

SIZES = {"nomic_bert_base": {}}

# === Block ===


class NomicBertBlock(Composite):
    """Attention and gated feed-forward; the sum of each sublayer's input and output is normalized (post-norm).

    Args:
        config: a `NomicBertConfig`.

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
            config.hidden_dim,
            config.num_heads,
            config.attention_dropout,
            initializer,
            use_bias=False,
            name="attention",
            **common,
        )
        self.attention_norm = keras.layers.LayerNormalization(name="attention_norm", **norm)
        self.feed_forward = GatedFeedForward(
            config.hidden_dim,
            config.feed_forward_dim,
            config.activation,
            kernel_initializer=initializer,
            use_bias=False,
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
class NomicBert(Backbone):
    """The encoder of NomicBERT.

    Args:
        config: a `NomicBertConfig`.
        pooler: whether to build the pooler, a dense layer with tanh on the first token. Only classifiers need it;
            embeddings are means of `sequence_output`.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `segment_ids`,
            `position_ids`, `sequence_ids`, `first_positions`.
        hidden_states: whether to return the embeddings and the output of each block.
        attention_weights: whether to return the attention probabilities of each block.

    Returns: a dict of `sequence_output` (b, s, m), `pooled_output` (b, m) if there is a pooler, and if requested the
        lists `hidden_states` (num_layers + 1 tensors (b, s, m)) and `attention_weights` (num_layers tensors
        (b, h, s, s)). For packed rows, `pooled_output` is (b, n, m), or missing if the batch has no `first_positions`.
        With a `rope_factor`, the outputs of rows longer than `max_length` depend on the length of the longest text of
        the batch, padding included.
    """

    learned_positions = False

    def __init__(self, config: NomicBertConfig, pooler: bool = False, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        initializer = config.kernel_initializer()
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size,
            config.hidden_dim,
            with_zero_row(initializer, config.pad_id),
            name="token_embedding",
            **common,
        )
        self.segment_embedding = keras.layers.Embedding(
            config.num_segments, config.hidden_dim, initializer, name="segment_embedding", **common
        )
        self.embedding_norm = keras.layers.LayerNormalization(
            epsilon=config.layer_norm_epsilon, name="embedding_norm", **common
        )
        self.embedding_dropout = Dropout(config.dropout, name="embedding_dropout", **common)
        self.blocks = [NomicBertBlock(config, name=f"block_{i}", **common) for i in range(config.num_layers)]
        self.pooler = None
        if pooler:
            self.pooler = Dense(config.hidden_dim, "tanh", kernel_initializer=initializer, name="pooler", **common)
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False):
        token_ids = inputs["token_ids"]
        segment_ids = inputs.get("segment_ids")
        segment_ids = ops.zeros_like(token_ids) if segment_ids is None else segment_ids
        x = self.token_embedding(token_ids) + self.segment_embedding(segment_ids)
        x = self.embedding_dropout(self.embedding_norm(x))

        blocks = run_blocks(
            self.blocks,
            x,
            attention_mask=AttentionMask.from_inputs(inputs),
            rotation=rotation_of(token_positions(inputs), self.config),
            return_weights=attention_weights,
        )
        x = blocks.states[-1]
        first = first_tokens(x, inputs)
        pooled = None if first is None or self.pooler is None else self.pooler(first)
        outputs = present(sequence_output=x, pooled_output=pooled)
        return {**outputs, **blocks.requested(hidden_states, attention_weights)}

    def get_config(self):
        return {**super().get_config(), "pooler": self.pooler is not None}


def rotation_of(positions, config):
    """Returns the `Rotation` for positions, with longer periods if they exceed the length of training.

    With a factor f, a training length M and texts of s > M tokens, the base of the periods is
    theta * (f s / M - (f - 1)) ** (d / (d - 2)): the shortest period stays, and the longest grows by the whole factor
    in parentheses ("dynamic NTK").

    Args:
        positions: int32 (b, s) or (1, s).
        config: a `NomicBertConfig`.
    """
    head_dim = config.hidden_dim // config.num_heads
    if config.rope_factor is None:
        return Rotation.at(positions, head_dim, config.rope_theta)
    length = ops.cast(ops.maximum(ops.max(positions) + 1, config.max_length), "float32")
    growth = config.rope_factor * length / config.max_length - (config.rope_factor - 1)
    pairs = np.arange(0, head_dim, 2, dtype="float32")
    frequencies = ops.convert_to_tensor(np.float32(config.rope_theta) ** (-pairs / head_dim))
    frequencies = frequencies * ops.power(growth, ops.convert_to_tensor(-pairs / (head_dim - 2)))
    angles = ops.cast(positions, "float32")[:, :, None, None] * frequencies
    return Rotation(ops.cos(angles), ops.sin(angles))


# === Heads ===


HEADS = {
    "masked_lm": masked_lm(),
    "classifier": of_config(PooledClassifier, "classifier_dropout"),
    "tagger": of_config(TokenHead, "classifier_dropout"),
}

# === Hugging Face ===

# The files of nomic-ai have the fields and names of their own code, and so have those that transformers writes, except
# for the fields of the config, of which transformers reads only its own.


def _num_heads(stored):
    heads, width = stored["num_attention_heads"], stored["hidden_size"]
    if stored.get("head_dim") not in (None, width // heads):
        raise ValueError(f"`head_dim` must be hidden_size / num_attention_heads. Received: {stored['head_dim']}.")
    return heads


def _feed_forward_dim(stored):
    if stored["intermediate_size"] is not None:
        return stored["intermediate_size"]
    width = stored.get("n_inner") or 8 * stored["hidden_size"] / 3
    return 256 * int(np.ceil(width / 256))  # as in the code of nomic-ai


def _vocabulary_size(stored):
    multiple = stored.get("pad_vocab_size_multiple") or 1
    return -(-stored["vocab_size"] // multiple) * multiple


def _activation(stored):
    if stored["hidden_act"] is not None:
        return stored["hidden_act"]
    if stored.get("activation_function", "swiglu") != "swiglu":
        raise ValueError(
            "kerasbert supports only activation_function='swiglu'. Received in config.json: "
            f"{stored['activation_function']!r}."
        )
    return "silu"


def _rope(stored):
    """Returns (theta, factor) from either notation."""
    rope = stored.get("rope_parameters") or {}
    kind = rope.get("rope_type", "default")
    if kind not in ("default", "dynamic"):
        raise ValueError(
            f"kerasbert supports only rope_type='default' and 'dynamic'. Received in config.json: {kind!r}."
        )
    theta = rope.get("rope_theta") or stored["rotary_emb_base"] or 1_000.0
    if rope:
        return theta, rope["factor"] if kind == "dynamic" else None
    return theta, stored["rotary_scaling_factor"]


def _rope_parameters(config):
    rope = {"rope_type": "default", "rope_theta": config.rope_theta}
    return rope if config.rope_factor is None else {**rope, "rope_type": "dynamic", "factor": config.rope_factor}


HUGGINGFACE_CONFIG = {
    "vocabulary_size": Field("vocab_size", _vocabulary_size, lambda config: config.vocabulary_size),
    "num_layers": "num_hidden_layers",
    "num_heads": Field("num_attention_heads", _num_heads, lambda config: config.num_heads),
    "hidden_dim": "hidden_size",
    "feed_forward_dim": Field("intermediate_size", _feed_forward_dim, lambda config: config.feed_forward_dim),
    "max_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
    "rope_theta": Field("rotary_emb_base", lambda stored: _rope(stored)[0], lambda config: config.rope_theta),
    "rope_factor": Field("rotary_scaling_factor", lambda stored: _rope(stored)[1], lambda config: config.rope_factor),
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "classifier_dropout": "classifier_dropout",
    "activation": Field("hidden_act", _activation, lambda config: config.activation),
    "layer_norm_epsilon": "layer_norm_eps",
    "initializer_range": "initializer_range",
    "pad_id": "pad_token_id",
    "model_type": "model_type",
}

# Fields of nomic-ai's code with the same meaning as fields of transformers.
HUGGINGFACE_ALIASES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "max_trained_positions": "max_position_embeddings",
    "resid_pdrop": "hidden_dropout_prob",
    "attn_pdrop": "attention_probs_dropout_prob",
    "layer_norm_epsilon": "layer_norm_eps",
}

# Without it, n_inner or the hidden size determines the width, and activation_function the activation.
HUGGINGFACE_DEFAULTS = {
    **dict(vocab_size=30_528, hidden_size=768, num_attention_heads=12, intermediate_size=None, hidden_act=None),
    **dict(rotary_emb_base=None, rotary_scaling_factor=None),
}

HUGGINGFACE_ONLY = {
    **dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"), False),
    **dict.fromkeys(("prenorm", "parallel_block", "causal", "use_rms_norm"), False),
    **dict(rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_emb_scale_base=None),
    "tie_word_embeddings": True,
}

HUGGINGFACE_WRITTEN = {
    "rope_parameters": _rope_parameters,
    "n_embd": lambda config: config.hidden_dim,
    "n_layer": lambda config: config.num_layers,
    "n_head": lambda config: config.num_heads,
    "n_inner": lambda config: config.feed_forward_dim,
    "max_trained_positions": lambda config: config.max_length,
    "resid_pdrop": lambda config: config.dropout,
    "attn_pdrop": lambda config: config.attention_dropout,
    "layer_norm_epsilon": lambda config: config.layer_norm_epsilon,
    "activation_function": lambda config: "swiglu" if config.activation == "silu" else config.activation,
    **{name: lambda config, value=value: value for name, value in HUGGINGFACE_ONLY.items()},
}

HUGGINGFACE_CLASSES = {
    "Backbone": "NomicBertModel",
    "MaskedLM": "NomicBertForMaskedLM",
    "TextClassifier": "NomicBertForSequenceClassification",
    "TokenClassifier": "NomicBertForTokenClassification",
}

HUGGINGFACE_NAMES = {
    "token_embedding": "embeddings.word_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "embedding_norm": "emb_ln",
    "block_{i}/attention/query": Part("encoder.layers.{i}.attn.Wqkv", 0, 3),
    "block_{i}/attention/key": Part("encoder.layers.{i}.attn.Wqkv", 1, 3),
    "block_{i}/attention/value": Part("encoder.layers.{i}.attn.Wqkv", 2, 3),
    "block_{i}/attention/project": "encoder.layers.{i}.attn.out_proj",
    "block_{i}/attention_norm": "encoder.layers.{i}.norm1",
    "block_{i}/feed_forward/inner": "encoder.layers.{i}.mlp.fc12",
    "block_{i}/feed_forward/gate": "encoder.layers.{i}.mlp.fc11",
    "block_{i}/feed_forward/outer": "encoder.layers.{i}.mlp.fc2",
    "block_{i}/feed_forward_norm": "encoder.layers.{i}.norm2",
    "pooler": "pooler.dense",
    "masked_lm/dense": "cls.predictions.transform.dense",
    "masked_lm/norm": "cls.predictions.transform.layer_norm",
    "masked_lm/bias": "cls.predictions.bias",
    "classifier/dense": "classifier",
    "tagger/dense": "classifier",
}

# transformers splits `Wqkv`, and renames the layers of the files.
ATTENTION_MODULES = {
    "block_{i}/attention/query": "layers.{i}.self_attn.q_proj",
    "block_{i}/attention/key": "layers.{i}.self_attn.k_proj",
    "block_{i}/attention/value": "layers.{i}.self_attn.v_proj",
    "block_{i}/attention/project": "layers.{i}.self_attn.o_proj",
}

HUGGINGFACE_MODULES = {
    **ATTENTION_MODULES,
    "block_{i}/feed_forward/inner": "layers.{i}.mlp.gate_proj",
    "block_{i}/feed_forward/gate": "layers.{i}.mlp.up_proj",
    "block_{i}/feed_forward/outer": "layers.{i}.mlp.down_proj",
}

HUGGINGFACE_TIED = {
    "cls.predictions.decoder.weight": "nomic_bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}

register_family(
    NomicBert,
    Family(
        config=NomicBertConfig,
        model_types=("nomic_bert",),
        sizes=SIZES,
        heads=HEADS,
        pooled_heads=frozenset({"classifier"}),
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only={"moe_every_n_layers": 0, **HUGGINGFACE_ONLY},  # no mixtures of experts
            aliases=HUGGINGFACE_ALIASES,
            defaults=HUGGINGFACE_DEFAULTS,
            written=HUGGINGFACE_WRITTEN,
            classes=HUGGINGFACE_CLASSES,
            prefix="nomic_bert",
            older_prefixes=("bert",),
            names=HUGGINGFACE_NAMES,
            tied=HUGGINGFACE_TIED,
            modules=HUGGINGFACE_MODULES,
        ),
    ),
)
