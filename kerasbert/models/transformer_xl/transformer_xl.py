"""Transformer-XL: a causal decoder that also attends to a memory of the previous segments of a text.

Dai, Yang, Yang, Carbonell, Le, Salakhutdinov 2019, arXiv 1901.02860. New in this paper: segment-level recurrence (each
block also attends to the stored hidden states of earlier segments, without gradients); relative positions, with which
stored hidden states can be reused. For large vocabularies, embedding and softmax have fewer dimensions for rare words
(Grave et al. 2016, arXiv 1609.04309; Baevski & Auli 2018, arXiv 1809.10853).
"""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from ...core.blocks import present, run_blocks
from ...core.family import Config, Family, HuggingFaceLayout, register_family
from ...core.initializers import normal
from ...core.weight_names import Field, Part, Tensor
from ...layers.composite import Composite
from ...layers.dropout import Dropout
from ...layers.embeddings import last_tokens
from ...layers.feed_forward import FeedForward
from ...layers.heads import LastTokenHead, of_config
from ...layers.masks import AttentionMask, real_tokens
from ...layers.memory import check_memory, empty_memory, memory_of, next_memory
from ...layers.relative_attention import relative_sinusoids
from ..backbone import Backbone
from .adaptive_softmax import AdaptiveEmbedding, AdaptiveSoftmax, Clusters
from .attention import SegmentAttention, attention_biases

# === Config ===


@dataclasses.dataclass(frozen=True)
class TransformerXLConfig(Config):
    vocabulary_size: int = 267_735  # with cutoffs, token ids must be sorted by decreasing frequency
    num_layers: int = 16
    num_heads: int = 10
    head_dim: int = 41
    hidden_dim: int = 410
    feed_forward_dim: int = 2_100
    embedding_dim: int | None = None  # width of the embeddings of the most frequent tokens; None: hidden_dim
    cutoffs: tuple[int, ...] = (20_000, 40_000, 200_000)  # first ids of the clusters of rarer tokens; (): one softmax
    embedding_divisor: int = 1  # factor by which each cluster has fewer dimensions than the previous one
    tied_projections: tuple[bool, ...] | None = None  # whether softmax shares each projection; None: all but the first
    pre_norm: bool = False  # whether blocks are pre-norm rather than post-norm
    untied_biases: bool = False  # whether every block has separate biases u and v
    memory_length: int = 150  # number of tokens in the memory
    clamp_length: int | None = None  # larger distances are clipped to this value
    same_length: bool = False  # whether every query attends to the last `memory_length` keys, itself included
    dropout: float = 0.1  # of embeddings and positions, and in and after each sublayer
    attention_dropout: float = 0.0  # of the attention probabilities
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02  # standard deviation of initial weights
    projection_initializer_range: float = 0.01  # the same for the projections of embedding and softmax
    pad_id: int | None = None
    eos_id: int | None = 0
    model_type: str = "transfo-xl"

    def __post_init__(self):
        def fill(name, value):
            object.__setattr__(self, name, value)

        fill("cutoffs", tuple(self.cutoffs))
        fill("embedding_dim", self.hidden_dim if self.embedding_dim is None else self.embedding_dim)
        tied = (False, *[True] * len(self.cutoffs)) if self.tied_projections is None else self.tied_projections
        fill("tied_projections", tuple(tied))
        self.clusters()
        if self.hidden_dim % 2:
            raise ValueError(f"`hidden_dim` must be even, for sines and cosines. Received: {self.hidden_dim}.")
        if self.same_length and not self.memory_length:
            raise ValueError(
                "With `same_length`, queries attend to the last `memory_length` keys, so it must be at least 1. "
                "Received: memory_length=0. Use same_length=False."
            )

    def clusters(self):
        """Returns the clusters of the vocabulary for embedding and softmax."""
        return Clusters(
            (0, *self.cutoffs, self.vocabulary_size),
            self.embedding_dim,
            self.embedding_divisor,
            self.hidden_dim,
            self.tied_projections,
        )

    def kernel_initializer(self):
        return normal(self.initializer_range)

    def projection_initializer(self):
        return normal(self.projection_initializer_range)

    def norm_initializer(self):
        return normal(self.initializer_range, mean=1.0)


# === Sizes ===

# The paper's training settings. Evaluation uses a longer memory, `same_length` and `clamp_length`.
SIZES = {
    "transformer_xl_wikitext103": dict(),
    "transformer_xl_wikitext103_large": dict(
        num_layers=18, num_heads=16, head_dim=64, hidden_dim=1_024, feed_forward_dim=4_096, embedding_divisor=4,
        memory_length=384, dropout=0.2, attention_dropout=0.2,
    ),
    "transformer_xl_enwik8": dict(
        vocabulary_size=204, num_layers=12, num_heads=8, head_dim=64, hidden_dim=512, feed_forward_dim=2_048,
        cutoffs=(), memory_length=512,
    ),
    "transformer_xl_enwik8_large": dict(
        vocabulary_size=204, num_layers=24, num_heads=8, head_dim=128, hidden_dim=1_024, feed_forward_dim=3_072,
        cutoffs=(), memory_length=768, dropout=0.15, attention_dropout=0.15,
    ),
}  # fmt: skip

# === Block ===


class TransformerXLBlock(Composite):
    """Attention to memory and segment, then feed-forward, as a post-norm block.

    Args:
        config: a `TransformerXLConfig`.

    Call:
        x: float (b, q, m).
        memory: float (b, slots, m), the inputs of this block for the preceding tokens, or None.
        distances, attention_mask, biases, return_weights: see `SegmentAttention`.

    Returns: float (b, q, m), and `Extras` with the attention probabilities (b, h, q, k) if requested.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        norm: dict[str, Any] = dict(
            epsilon=config.layer_norm_epsilon, gamma_initializer=config.norm_initializer(), **common
        )
        self.attention = SegmentAttention(
            config.hidden_dim,
            config.num_heads,
            config.head_dim,
            config.attention_dropout,
            config.kernel_initializer(),
            untied_biases=config.untied_biases,
            name="attention",
            **common,
        )
        self.attention_norm = keras.layers.LayerNormalization(name="attention_norm", **norm)
        self.feed_forward = FeedForward(
            config.hidden_dim,
            config.feed_forward_dim,
            "relu",
            config.kernel_initializer(),
            dropout=config.dropout,
            name="feed_forward",
            **common,
        )
        self.feed_forward_norm = keras.layers.LayerNormalization(name="feed_forward_norm", **norm)
        self.attention_output_dropout = Dropout(config.dropout, name="attention_output_dropout", **common)
        self.feed_forward_dropout = Dropout(config.dropout, name="feed_forward_dropout", **common)

    def call(self, x, memory=None, distances=None, attention_mask=None, biases=None, return_weights=False):
        options: dict[str, Any] = dict(attention_mask=attention_mask, biases=biases, return_weights=return_weights)
        context = x if memory is None else ops.concatenate([memory, x], axis=1)
        y, extras = self.attention(x, context, distances, **options)
        x = self.attention_norm(x + self.attention_output_dropout(y))
        y = self.feed_forward(x)
        x = self.feed_forward_norm(x + self.feed_forward_dropout(y))
        return x, extras


class PreNormTransformerXLBlock(TransformerXLBlock):
    """The pre-norm variant of the block: each sublayer normalizes its input. The stored memory is not normalized."""

    def call(self, x, memory=None, distances=None, attention_mask=None, biases=None, return_weights=False):
        options: dict[str, Any] = dict(attention_mask=attention_mask, biases=biases, return_weights=return_weights)
        y = self.attention_norm(x)
        context = y if memory is None else ops.concatenate([self.attention_norm(memory), y], axis=1)
        y, extras = self.attention(y, context, distances, **options)
        x = x + self.attention_output_dropout(y)
        y = self.feed_forward(self.feed_forward_norm(x))
        x = x + self.feed_forward_dropout(y)
        return x, extras


# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class TransformerXL(Backbone):
    """The decoder of Transformer-XL.

    Args:
        config: a `TransformerXLConfig`.

    Call:
        inputs: a batch with `token_ids` (b, s), and optionally `padding_mask` or `lengths`, `sequence_ids` and
            `first_positions`, or `memory` and `memory_mask` from `empty_memory` or from the previous call, with
            `stream_start` (b,), True for rows that ignore the memory.
        hidden_states: whether to return the embeddings and the output of each block.
        attention_weights: whether to return the attention probabilities of each block.
        cache: the cache of the preceding tokens, from `empty_cache` or from the previous call.

    Returns: a dict of `sequence_output` (b, s, m), `last_output`, the output at the last real token, (b, m) or, in
        packed rows, (b, n, m), and if requested the lists `hidden_states` (num_layers + 1 tensors (b, s, m)) and
        `attention_weights` (num_layers tensors (b, h, s, memory_length + s)). With a memory, also the next `memory` and
        `memory_mask`, without gradients; with a cache, the `cache` for the next call.
    """

    takes_segments = False
    learned_positions = False

    def __init__(self, config: TransformerXLConfig, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        block = PreNormTransformerXLBlock if config.pre_norm else TransformerXLBlock
        initializers = config.kernel_initializer(), config.projection_initializer()
        self.token_embedding = AdaptiveEmbedding(config.clusters(), *initializers, name="token_embedding", **common)
        self.embedding_dropout = Dropout(config.dropout, name="embedding_dropout", **common)
        self.position_dropout = Dropout(config.dropout, name="position_dropout", **common)
        self.blocks = [block(config, name=f"block_{i}", **common) for i in range(config.num_layers)]
        self.output_dropout = Dropout(config.dropout, name="output_dropout", **common)
        sizes = config.num_heads, config.head_dim, config.kernel_initializer()
        self.biases = None if config.untied_biases else attention_biases(self, *sizes)
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False, cache=None):
        inputs = inputs if cache is None else {**inputs, **cache}
        memory, remembered = memory_of(inputs)
        x = self.embedding_dropout(self.token_embedding(inputs["token_ids"]))
        length = ops.shape(x)[1] + (0 if memory is None else memory.shape[2])
        options: dict[str, Any] = dict(
            distances=self._sinusoids(length, x.dtype),
            attention_mask=self._mask(inputs, remembered),
            biases=self.biases,
            return_weights=attention_weights,
        )
        blocks = run_blocks(
            self.blocks, x, of_block=lambda i: {"memory": None if memory is None else memory[:, i]}, **options
        )
        x = blocks.states[-1] = self.output_dropout(blocks.states[-1])

        outputs = present(sequence_output=x, last_output=last_tokens(x, inputs))
        if memory is not None:
            following = next_memory(memory, remembered, blocks.states[:-1], real_tokens(inputs))
            outputs |= following if cache is None else {"cache": following}
        return {**outputs, **blocks.requested(hidden_states, attention_weights)}

    def _sinusoids(self, length, dtype):
        """Returns encodings of the distances length - 1, ..., 0, with the same dropout mask for all blocks."""
        distances = ops.arange(length - 1, -1, -1, dtype="int32")
        if self.config.clamp_length is not None:
            distances = ops.minimum(distances, self.config.clamp_length)
        return self.position_dropout(ops.cast(relative_sinusoids(distances, self.config.hidden_dim), dtype))

    def _mask(self, inputs, remembered):
        window = self.config.memory_length - 1 if self.config.same_length else None
        mask = AttentionMask.from_inputs(inputs, causal=True, window=window)
        if remembered is None:
            return mask
        real = real_tokens(inputs)
        real = ops.ones_like(inputs["token_ids"], "bool") if real is None else real
        return mask.replace(padding_mask=ops.concatenate([remembered, real], axis=1), lengths=None)

    @property
    def token_table(self):
        """Dict of the embedding's `tables`, a list of float (v, e), and `projections`, a list of float (e, m)."""
        parts = {"tables": self.token_embedding.tables, "projections": self.token_embedding.projections}
        return {name: [ops.convert_to_tensor(weight) for weight in weights] for name, weights in parts.items()}

    def empty_memory(self, batch_size):
        """Returns the `memory` and `memory_mask` for the first segment of a text, a dict of batch keys."""
        config = self.config
        return empty_memory(batch_size, config.num_layers, config.memory_length, config.hidden_dim, self.compute_dtype)

    def empty_cache(self, batch_size, length):
        """Returns a memory that serves as the cache for generating up to `length` tokens."""
        config = self.config
        slots = min(config.memory_length or length, length)
        return empty_memory(batch_size, config.num_layers, slots, config.hidden_dim, self.compute_dtype)

    def check_inputs(self, inputs):
        super().check_inputs(inputs)
        check_memory(inputs, self)


# === Heads ===

HEADS = {
    "causal_lm": lambda config, **common: AdaptiveSoftmax(
        config.clusters(), config.kernel_initializer(), config.projection_initializer(), **common
    ),
    "classifier": of_config(LastTokenHead, use_bias=False),
}

# === Hugging Face (the layout of transformers 4, whose last version with this family is 4.49) ===


def _load_tied(stored):
    if stored["tie_projs"] is not None:
        return stored["tie_projs"]
    return [False, *[stored["proj_share_all_but_first"]] * len(stored["cutoffs"])]


HUGGINGFACE_CONFIG = {
    "vocabulary_size": "vocab_size",
    "num_layers": "n_layer",
    "num_heads": "n_head",
    "head_dim": "d_head",
    "hidden_dim": "d_model",
    "feed_forward_dim": "d_inner",
    "embedding_dim": "d_embed",
    "cutoffs": "cutoffs",
    "embedding_divisor": "div_val",
    "tied_projections": Field("tie_projs", load=_load_tied, save=lambda config: config.tied_projections),
    "pre_norm": "pre_lnorm",
    "untied_biases": "untie_r",
    "memory_length": "mem_len",
    "clamp_length": Field(
        "clamp_len",
        load=lambda stored: stored["clamp_len"] if stored["clamp_len"] > 0 else None,
        save=lambda config: -1 if config.clamp_length is None else config.clamp_length,
    ),
    "same_length": "same_length",
    "dropout": "dropout",
    "attention_dropout": "dropatt",
    "layer_norm_epsilon": "layer_norm_epsilon",
    "initializer_range": "init_std",
    "projection_initializer_range": "proj_init_std",
    "pad_id": "pad_token_id",
    "eos_id": "eos_token_id",
    "model_type": "model_type",
}

_DEFAULTS = dict(
    n_layer=18, n_head=16, d_head=64, d_model=1_024, d_inner=4_096, d_embed=1_024, div_val=4, mem_len=1_600,
    clamp_len=1_000, same_length=True, untie_r=True, cutoffs=[20_000, 40_000, 200_000], tie_projs=None,
    proj_share_all_but_first=True,
)  # fmt: skip

HUGGINGFACE_NAMES = {
    "token_embedding/table_{i}": Tensor("word_emb.emb_layers.{i}.weight"),
    "token_embedding/projection_{i}": Tensor("word_emb.emb_projs.{i}", np.transpose, np.transpose),
    "content_bias": Tensor("r_w_bias"),
    "position_bias": Tensor("r_r_bias"),
    "block_{i}/attention/query": Part("layers.{i}.dec_attn.qkv_net", 0, 3),
    "block_{i}/attention/key": Part("layers.{i}.dec_attn.qkv_net", 1, 3),
    "block_{i}/attention/value": Part("layers.{i}.dec_attn.qkv_net", 2, 3),
    "block_{i}/attention/distance": "layers.{i}.dec_attn.r_net",
    "block_{i}/attention/project": "layers.{i}.dec_attn.o_net",
    "block_{i}/attention/content_bias": Tensor("layers.{i}.dec_attn.r_w_bias"),
    "block_{i}/attention/position_bias": Tensor("layers.{i}.dec_attn.r_r_bias"),
    "block_{i}/attention_norm": "layers.{i}.dec_attn.layer_norm",
    "block_{i}/feed_forward/inner": "layers.{i}.pos_ff.CoreNet.0",
    "block_{i}/feed_forward/outer": "layers.{i}.pos_ff.CoreNet.3",
    "block_{i}/feed_forward_norm": "layers.{i}.pos_ff.layer_norm",
    "causal_lm/cluster_weight": Tensor("crit.cluster_weight"),
    "causal_lm/cluster_bias": Tensor("crit.cluster_bias"),
    "causal_lm/bias_{i}": Tensor("crit.out_layers.{i}.bias"),
    "causal_lm/projection_{i}": Tensor("crit.out_projs.{i}", np.transpose, np.transpose),
    "classifier/dense": "score",
}


def huggingface_implied(config):
    """Returns tensors that only files contain: the frequencies of sinusoids, and copies of shared biases per block."""
    frequencies = 10_000.0 ** (-np.arange(0, config.hidden_dim, 2) / config.hidden_dim)
    layers = range(0 if config.untied_biases else config.num_layers)
    biases = {f"layers.{i}.dec_attn.{name}": name for i in layers for name in ("r_w_bias", "r_r_bias")}
    return {"pos_emb.inv_freq": frequencies.astype("float32"), **biases}


register_family(
    TransformerXL,
    Family(
        config=TransformerXLConfig,
        model_types=("transfo-xl",),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            only={"attn_type": 0, "sample_softmax": -1, "init": "normal", "tie_word_embeddings": True},
            defaults=_DEFAULTS,
            aliases=dict(
                n_token="vocab_size", hidden_size="d_model", num_attention_heads="n_head", num_hidden_layers="n_layer"
            ),
            classes={
                "Backbone": "TransfoXLModel",
                "CausalLM": "TransfoXLLMHeadModel",
                "TextClassifier": "TransfoXLForSequenceClassification",
            },
            prefix="transformer",
            names=HUGGINGFACE_NAMES,
            # Tied projections (`crit.out_projs.{i}`) are not written, and are ignored if a file contains them.
            tied={f"crit.out_layers.{i}.weight": f"transformer.word_emb.emb_layers.{i}.weight" for i in range(16)},
            implied=huggingface_implied,
        ),
    ),
)
