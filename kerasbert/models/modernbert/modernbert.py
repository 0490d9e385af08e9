"""ModernBERT: an encoder for 8,192 tokens, with the improvements of recent decoder models.

Warner et al. 2024, arXiv 2412.13663. New compared with BERT: rotary positions; local attention in two of three layers,
which may have different rotary wavelengths; gated feed-forward networks (GeGLU); pre-norm; no biases. The only
pretraining objective is masked tokens.
"""

import dataclasses
from typing import Any, ClassVar

import keras
from keras import ops

from ...core.blocks import present, run_blocks
from ...core.family import Config, Family, HuggingFaceLayout, register_family, transformers_classes
from ...core.initializers import truncated_normal
from ...core.weight_names import Field, Part
from ...layers.attention import MultiHeadAttention
from ...layers.composite import Composite
from ...layers.dropout import Dropout
from ...layers.embeddings import first_tokens, gather_positions, mean_tokens
from ...layers.feed_forward import GatedFeedForward
from ...layers.masks import AttentionMask, real_tokens
from ...layers.positions import Rotation, token_positions
from ..backbone import Backbone
from .heads import TransformedHead, TransformedTableHead
from .huggingface import global_layers, layer_types, rope_parameters, rope_theta

# === Config ===


@dataclasses.dataclass(frozen=True)
class ModernBertConfig(Config):
    vocabulary_size: int = 50_368
    num_layers: int = 22
    num_heads: int = 12
    hidden_dim: int = 768
    feed_forward_dim: int = 1_152  # width of both inner layers of the gated feed-forward network
    max_length: int = 8_192  # length in training; the model itself has no limit
    local_attention: int = 128  # in local layers, a token attends to itself and half of this number on each side
    global_every: int = 3  # period of the layers that attend to the whole sequence: 0, 3, 6, ...
    global_layers: tuple[int, ...] | None = None  # indices of these layers if they are not periodic
    global_rope_theta: float = 160_000.0  # 10,000 in the first training stage of the paper
    local_rope_theta: float = 10_000.0
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0  # of the attention probabilities
    attention_output_dropout: float = 0.1
    feed_forward_dropout: float = 0.0
    classifier_dropout: float = 0.0
    attention_bias: bool = False
    feed_forward_bias: bool = False
    norm_bias: bool = False
    head_bias: bool = False  # whether the first dense layer of heads has a bias
    vocabulary_bias: bool = True  # whether the logits over the vocabulary have a bias
    activation: str = "gelu"
    head_activation: str = "gelu"
    classifier_pooling: str = "cls"  # what classifiers read: "cls", the first token, or "mean", the mean of all tokens
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02  # standard deviation before truncation
    initializer_cutoff: float = 2.0  # number of standard deviations at which the distribution is truncated
    pad_id: int | None = 50_283  # transformers rejects an id outside the vocabulary; pass `tokenizer.pad_id`
    bos_id: int | None = 50_281
    eos_id: int | None = 50_282
    cls_id: int | None = 50_281
    sep_id: int | None = 50_282
    model_type: str = "modernbert"
    POOLINGS: ClassVar = ("cls", "mean")

    def __post_init__(self):
        if self.global_layers is not None:
            object.__setattr__(self, "global_layers", tuple(self.global_layers))
        if self.classifier_pooling not in self.POOLINGS:
            rule = f"`classifier_pooling` must be {' or '.join(self.POOLINGS)}."
            raise ValueError(f"{rule} Received: {self.classifier_pooling!r}.")

    def is_global(self, layer):
        """Whether a layer attends to the whole sequence."""
        return layer % self.global_every == 0 if self.global_layers is None else layer in self.global_layers

    def kernel_initializer(self):
        return truncated_normal(self.initializer_range, self.initializer_cutoff)

    def residual_initializer(self):
        """Initializer of the 2 * num_layers kernels whose outputs are added to the residual stream."""
        return truncated_normal(self.initializer_range * (2 * self.num_layers) ** -0.5, self.initializer_cutoff)

    def norm(self, **common):
        """Returns a layer norm, which has a bias if `norm_bias` is True."""
        return keras.layers.LayerNormalization(epsilon=self.layer_norm_epsilon, center=self.norm_bias, **common)


# === Sizes ===

# (num_layers, num_heads, hidden_dim, feed_forward_dim) of the Ettin suite (Weller et al. 2025, arXiv 2507.11412).
ETTIN_SHAPES = {
    "17m": (7, 4, 256, 384),
    "32m": (10, 6, 384, 576),
    "68m": (19, 8, 512, 768),
    "150m": (22, 12, 768, 1_152),
    "400m": (28, 16, 1_024, 2_624),
    "1b": (28, 28, 1_792, 3_840),
}


def ettin_sizes(kind, **fields):
    """Returns {name: config fields} of all "encoder" or "decoder" sizes (`kind`), with additional `fields`."""
    names = "num_layers", "num_heads", "hidden_dim", "feed_forward_dim"
    return {
        f"ettin_{kind}_{size}": {**dict(zip(names, shape, strict=True)), **fields}
        for size, shape in ETTIN_SHAPES.items()
    }


SIZES = {
    "modernbert_base": {},
    "modernbert_large": dict(num_layers=28, num_heads=16, hidden_dim=1_024, feed_forward_dim=2_624),
    **ettin_sizes("encoder", local_rope_theta=160_000.0),
}

# === Block ===


class ModernBertBlock(Composite):
    """Attention and gated feed-forward; each normalizes its input and is added to the residual stream (pre-norm).

    Args:
        config: a `ModernBertConfig`.
        first: whether this is the first block, whose input is already normalized.

    Call:
        x: float (b, s, m).
        attention_mask: an `AttentionMask`, which has a `window` in local layers.
        rotation: the `Rotation` of global or local layers.
        return_weights: whether to return the attention probabilities.
        cache: in a decoder, the keys and values of the preceding tokens; see `MultiHeadAttention`.

    Returns: float (b, s, m), and `Extras` with the attention probabilities (b, h, s, s) and the cache if requested.
    """

    def __init__(self, config, first=False, **kwargs):
        super().__init__(**kwargs)
        initializer, residual = config.kernel_initializer(), config.residual_initializer()
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.attention_norm = None if first else config.norm(name="attention_norm", **common)
        self.attention = MultiHeadAttention(
            config.hidden_dim,
            config.num_heads,
            config.attention_dropout,
            initializer,
            config.attention_bias,
            residual,
            name="attention",
            **common,
        )
        self.attention_output_dropout = Dropout(
            config.attention_output_dropout, name="attention_output_dropout", **common
        )
        self.feed_forward_norm = config.norm(name="feed_forward_norm", **common)
        self.feed_forward = GatedFeedForward(
            config.hidden_dim,
            config.feed_forward_dim,
            config.activation,
            config.feed_forward_dropout,
            initializer,
            config.feed_forward_bias,
            residual,
            name="feed_forward",
            **common,
        )

    def call(self, x, attention_mask=None, rotation=None, return_weights=False, cache=None):
        y = x if self.attention_norm is None else self.attention_norm(x)
        y, extras = self.attention(
            y, attention_mask=attention_mask, rotation=rotation, return_weights=return_weights, cache=cache
        )
        x = x + self.attention_output_dropout(y)
        x = x + self.feed_forward(self.feed_forward_norm(x))
        return x, extras


# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class ModernBert(Backbone):
    """The encoder of ModernBERT.

    Args:
        config: a `ModernBertConfig`.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `position_ids`,
            `sequence_ids`, `first_positions`.
        hidden_states: whether to return the embeddings and the output of each block, the last one normalized.
        attention_weights: whether to return the attention probabilities of each block.

    Returns: a dict of `sequence_output` (b, s, m), `pooled_output` and `choice_output`, both (b, m), and if requested
        the lists `hidden_states` (num_layers + 1 tensors (b, s, m)) and `attention_weights` (num_layers tensors
        (b, h, s, s)). Depending on `config.classifier_pooling`, `pooled_output` and `choice_output` are the mean of the
        sequence, or its first token. Only `choice_output`, which the multiple-choice head reads, skips padding on the
        left. For packed rows, both are (b, n, m), or missing if the batch has no `first_positions`.
    """

    takes_segments = False
    learned_positions = False

    def __init__(self, config: ModernBertConfig, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size, config.hidden_dim, config.kernel_initializer(), name="token_embedding", **common
        )
        self.embedding_norm = config.norm(name="embedding_norm", **common)
        self.embedding_dropout = Dropout(config.embedding_dropout, name="embedding_dropout", **common)
        self.blocks = [
            ModernBertBlock(config, first=i == 0, name=f"block_{i}", **common) for i in range(config.num_layers)
        ]
        self.final_norm = config.norm(name="final_norm", **common)
        self.build_now()

    def embed_tokens(self, inputs):
        return self.embedding_dropout(self.embedding_norm(self.token_embedding(inputs["token_ids"])))

    def call(self, inputs, hidden_states=False, attention_weights=False):
        config = self.config
        x = self.embed_tokens(inputs)

        everywhere = AttentionMask.from_inputs(inputs)
        nearby = everywhere.replace(window=config.local_attention // 2)
        positions, head_dim = token_positions(inputs), config.hidden_dim // config.num_heads
        of_global = dict(attention_mask=everywhere, rotation=Rotation.at(positions, head_dim, config.global_rope_theta))
        of_local = dict(attention_mask=nearby, rotation=Rotation.at(positions, head_dim, config.local_rope_theta))
        blocks = run_blocks(
            self.blocks,
            x,
            of_block=lambda i: of_global if config.is_global(i) else of_local,
            return_weights=attention_weights,
        )
        x = blocks.states[-1] = self.final_norm(blocks.states[-1])
        by_mean = config.classifier_pooling == "mean"
        pooled = mean_tokens(x, inputs) if by_mean else first_tokens(x, inputs)
        choice = pooled if by_mean else first_real_tokens(x, inputs)
        outputs = present(sequence_output=x, pooled_output=pooled, choice_output=choice)
        return {**outputs, **blocks.requested(hidden_states, attention_weights)}


def first_real_tokens(x, inputs):
    """Returns the first vector of each sequence that is not padding, in the shapes of `first_tokens`."""
    real = real_tokens(inputs)
    if real is None or inputs.get("sequence_ids") is not None:
        return first_tokens(x, inputs)
    return gather_positions(x, ops.argmax(real, axis=1)[:, None])[:, 0]


# === Heads ===


HEADS = {
    "masked_lm": TransformedTableHead,
    "classifier": lambda config, num_labels, **common: TransformedHead(config, num_labels, "pooled_output", **common),
    "tagger": TransformedHead,
    "span": lambda config, **common: TransformedHead(config, 2, **common),
    "choice": lambda config, **common: TransformedHead(config, 1, "choice_output", **common),
}

# === Hugging Face ===

HUGGINGFACE_CONFIG = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "feed_forward_dim": "intermediate_size",
    "max_length": "max_position_embeddings",
    "local_attention": "local_attention",
    "global_every": Field(
        "global_attn_every_n_layers",
        load=lambda stored: global_layers(stored)[0],
        save=lambda config: config.global_every,
    ),
    "global_layers": Field("layer_types", load=lambda stored: global_layers(stored)[1], save=layer_types),
    "global_rope_theta": Field(
        "global_rope_theta",
        load=lambda stored: rope_theta(stored, "full_attention", "global_rope_theta"),
        save=lambda config: config.global_rope_theta,
    ),
    "local_rope_theta": Field(
        "local_rope_theta",
        load=lambda stored: rope_theta(stored, "sliding_attention", "local_rope_theta"),
        save=lambda config: config.local_rope_theta,
    ),
    "embedding_dropout": "embedding_dropout",
    "attention_dropout": "attention_dropout",
    # transformers has one rate for both kinds of attention dropout, so kerasbert writes an additional field.
    "attention_output_dropout": Field(
        "attention_output_dropout",
        load=lambda stored: stored[
            "attention_dropout" if stored["attention_output_dropout"] is None else "attention_output_dropout"
        ],
        save=lambda config: config.attention_output_dropout,
    ),
    "feed_forward_dropout": "mlp_dropout",
    "classifier_dropout": "classifier_dropout",
    "attention_bias": "attention_bias",
    "feed_forward_bias": "mlp_bias",
    "norm_bias": "norm_bias",
    "head_bias": "classifier_bias",
    "vocabulary_bias": "decoder_bias",
    "activation": "hidden_activation",
    "head_activation": "classifier_activation",
    "classifier_pooling": "classifier_pooling",
    "layer_norm_epsilon": "norm_eps",
    "initializer_range": "initializer_range",
    "initializer_cutoff": Field(
        "initializer_cutoff_factor",
        load=lambda stored: stored["initializer_cutoff_factor"] or 3.0,
        save=lambda config: config.initializer_cutoff,
    ),
    "pad_id": "pad_token_id",
    "bos_id": "bos_token_id",
    "eos_id": "eos_token_id",
    "cls_id": "cls_token_id",
    "sep_id": "sep_token_id",
    "model_type": "model_type",
}

HUGGINGFACE_DEFAULTS = {
    "global_attn_every_n_layers": 3,
    "layer_types": None,
    "global_rope_theta": 160_000.0,
    "local_rope_theta": 10_000.0,
    "attention_dropout": 0.0,
    "attention_output_dropout": None,
}

HUGGINGFACE_WRITTEN = {"rope_parameters": rope_parameters}

HUGGINGFACE_ONLY = {"rope_scaling": None, "tie_word_embeddings": True}

HUGGINGFACE_NAMES = {
    "token_embedding": "embeddings.tok_embeddings",
    "embedding_norm": "embeddings.norm",
    "block_{i}/attention_norm": "layers.{i}.attn_norm",
    "block_{i}/attention/query": Part("layers.{i}.attn.Wqkv", 0, 3),
    "block_{i}/attention/key": Part("layers.{i}.attn.Wqkv", 1, 3),
    "block_{i}/attention/value": Part("layers.{i}.attn.Wqkv", 2, 3),
    "block_{i}/attention/project": "layers.{i}.attn.Wo",
    "block_{i}/feed_forward_norm": "layers.{i}.mlp_norm",
    "block_{i}/feed_forward/inner": Part("layers.{i}.mlp.Wi", 0, 2),
    "block_{i}/feed_forward/gate": Part("layers.{i}.mlp.Wi", 1, 2),
    "block_{i}/feed_forward/outer": "layers.{i}.mlp.Wo",
    "final_norm": "final_norm",
    **{f"{head}/transform/{part}": f"head.{part}" for head in HEADS for part in ("dense", "norm")},
    "masked_lm/bias": "decoder.bias",
    **{f"{head}/dense": "classifier" for head in HEADS if head != "masked_lm"},
}

HUGGINGFACE_TIED = {"decoder.weight": "model.embeddings.tok_embeddings.weight"}

register_family(
    ModernBert,
    Family(
        config=ModernBertConfig,
        model_types=("modernbert",),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only=HUGGINGFACE_ONLY,
            defaults=HUGGINGFACE_DEFAULTS,
            written=HUGGINGFACE_WRITTEN,
            classes=transformers_classes("ModernBert"),
            prefix="model",
            names=HUGGINGFACE_NAMES,
            tied=HUGGINGFACE_TIED,
        ),
    ),
)
