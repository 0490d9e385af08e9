"""ModernBERT as a decoder: the same network with a causal mask, trained to predict the next token.

Weller et al. 2025, "Seq vs Seq: An Open Suite of Paired Encoders and Decoders" (Ettin), arXiv 2507.11412. New in this
paper: pairs of an encoder and a decoder with the same shape, training settings and data, so that only the objective
differs.
"""

import dataclasses
from typing import Any, ClassVar

import keras

from ...core.blocks import present, run_blocks
from ...core.family import Config, Family, HuggingFaceLayout, register_family
from ...layers.cache import advanced, caches_of, causal_inputs, empty_cache
from ...layers.dropout import Dropout
from ...layers.embeddings import last_tokens
from ...layers.positions import Rotation
from ..backbone import Backbone
from . import modernbert
from .heads import TransformedHead, TransformedTableHead
from .modernbert import ModernBertBlock, ModernBertConfig, ettin_sizes

# === Config ===


@dataclasses.dataclass(frozen=True)
class ModernBertDecoderConfig(Config):
    vocabulary_size: int = 50_368
    num_layers: int = 22
    num_heads: int = 12
    hidden_dim: int = 768
    feed_forward_dim: int = 1_152  # width of both inner layers of the gated feed-forward network
    max_length: int = 8_192  # length in training; the model itself has no limit
    local_attention: int = 128  # in local layers, a token attends to the last `local_attention / 2` tokens up to itself
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
    classifier_pooling: str = "last"  # the last token, the only one that attends to the whole sequence
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02  # standard deviation before truncation
    initializer_cutoff: float = 2.0  # number of standard deviations at which the distribution is truncated
    pad_id: int | None = 50_283  # transformers rejects an id outside the vocabulary; pass `tokenizer.pad_id`
    bos_id: int | None = 50_281
    eos_id: int | None = 50_282
    cls_id: int | None = 50_281
    sep_id: int | None = 50_282
    model_type: str = "modernbert-decoder"
    POOLINGS: ClassVar = ("last",)

    is_global = ModernBertConfig.is_global
    kernel_initializer = ModernBertConfig.kernel_initializer
    residual_initializer = ModernBertConfig.residual_initializer
    norm = ModernBertConfig.norm

    def __post_init__(self):
        ModernBertConfig.__post_init__(self)
        if self.local_attention < 2:
            raise ValueError(f"`local_attention` must be at least 2. Received: {self.local_attention}.")


# === Sizes ===

SIZES = {
    name: {**fields, "local_rope_theta": 160_000.0 if name.endswith(("150m", "1b")) else 10_000.0}
    for name, fields in ettin_sizes("decoder").items()
}

# === Backbone (with the encoder's block) ===


@keras.saving.register_keras_serializable("kerasbert")
class ModernBertDecoder(Backbone):
    """The decoder of the Ettin suite.

    Args:
        config: a `ModernBertDecoderConfig`.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `position_ids`,
            `sequence_ids`, `first_positions`, `prefix_mask`.
        hidden_states: whether to return the embeddings and the output of each block, the last one normalized.
        attention_weights: whether to return the attention probabilities of each block.
        cache: the cache of the preceding tokens, from `empty_cache` or from the previous call. It must not be used
            again.

    Returns: a dict of `sequence_output` (b, s, m), `last_output` (b, m), the output at the last token that is not
        padding, and if requested the lists `hidden_states` (num_layers + 1 tensors (b, s, m)) and `attention_weights`
        (num_layers tensors (b, h, s, s)). With a cache, also the `cache` for the next call. For packed rows,
        `last_output` is (b, n, m), or missing if the batch has no `first_positions`.
    """

    takes_segments = False
    learned_positions = False

    def __init__(self, config: ModernBertDecoderConfig, **kwargs: Any):
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

    def call(self, inputs, hidden_states=False, attention_weights=False, cache=None):
        config = self.config
        everywhere, positions = causal_inputs(inputs, cache)
        nearby = everywhere.replace(window=config.local_attention // 2 - 1)
        head_dim = config.hidden_dim // config.num_heads
        of_global = dict(attention_mask=everywhere, rotation=Rotation.at(positions, head_dim, config.global_rope_theta))
        of_local = dict(attention_mask=nearby, rotation=Rotation.at(positions, head_dim, config.local_rope_theta))

        x = self.embedding_dropout(self.embedding_norm(self.token_embedding(inputs["token_ids"])))
        cached = caches_of(cache)
        blocks = run_blocks(
            self.blocks,
            x,
            of_block=lambda i: {**(of_global if config.is_global(i) else of_local), **cached(i)},
            return_weights=attention_weights,
        )
        x = blocks.states[-1] = self.final_norm(blocks.states[-1])
        outputs = present(sequence_output=x, last_output=last_tokens(x, inputs))
        if cache is not None:
            outputs["cache"] = advanced(everywhere, x.shape[1], blocks.caches)
        return {**outputs, **blocks.requested(hidden_states, attention_weights)}

    def empty_cache(self, batch_size, length):
        """Returns an empty cache with space for `length` tokens."""
        config = self.config
        head_dim = config.hidden_dim // config.num_heads
        return empty_cache(batch_size, length, config.num_layers, config.num_heads, head_dim, self.compute_dtype)


# === Heads ===

HEADS = {
    "causal_lm": TransformedTableHead,
    "classifier": lambda config, num_labels, **common: TransformedHead(
        config, num_labels, "last_output", config.head_bias, **common
    ),
}

# === Hugging Face ===

HUGGINGFACE_CONFIG = {
    ours: theirs for ours, theirs in modernbert.HUGGINGFACE_CONFIG.items() if ours != "classifier_pooling"
}

HUGGINGFACE_DEFAULTS = modernbert.HUGGINGFACE_DEFAULTS

HUGGINGFACE_WRITTEN = modernbert.HUGGINGFACE_WRITTEN

HUGGINGFACE_ONLY = modernbert.HUGGINGFACE_ONLY

HUGGINGFACE_CLASSES = {
    "Backbone": "ModernBertDecoderModel",
    "CausalLM": "ModernBertDecoderForCausalLM",
    "TextClassifier": "ModernBertDecoderForSequenceClassification",
}

HUGGINGFACE_NAMES = {
    **{
        ours: theirs
        for ours, theirs in modernbert.HUGGINGFACE_NAMES.items()
        if ours.split("/")[0] not in modernbert.HEADS
    },
    "block_{i}/attention/query": "layers.{i}.attn.q_proj",
    "block_{i}/attention/key": "layers.{i}.attn.k_proj",
    "block_{i}/attention/value": "layers.{i}.attn.v_proj",
    "causal_lm/transform/dense": "lm_head.dense",
    "causal_lm/transform/norm": "lm_head.norm",
    "causal_lm/bias": "decoder.bias",
    "classifier/transform/dense": "head.dense",
    "classifier/transform/norm": "head.norm",
    "classifier/dense": "classifier",
}

HUGGINGFACE_TIED = modernbert.HUGGINGFACE_TIED

register_family(
    ModernBertDecoder,
    Family(
        config=ModernBertDecoderConfig,
        model_types=("modernbert-decoder",),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only=HUGGINGFACE_ONLY,
            defaults=HUGGINGFACE_DEFAULTS,
            written=HUGGINGFACE_WRITTEN,
            classes=HUGGINGFACE_CLASSES,
            prefix="model",
            names=HUGGINGFACE_NAMES,
            tied=HUGGINGFACE_TIED,
        ),
    ),
)
