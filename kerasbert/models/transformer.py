"""The Transformer: an encoder and a decoder that consist only of attention and feed-forward layers.

Vaswani et al. 2017, arXiv 1706.03762. New in this paper: multi-head self-attention instead of recurrence; sinusoids
that are added to the embeddings as positions. The paper normalizes after each sublayer (post-norm). The Annotated
Transformer (Rush 2018) and later versions of tensor2tensor normalize the input of each sublayer (pre-norm), and the
outputs of encoder and decoder.
"""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from ..core.blocks import run_blocks
from ..core.family import Config, Family, HuggingFaceLayout, register_family
from ..core.initializers import glorot_uniform, normal
from ..layers.attention import MultiHeadAttention
from ..layers.cache import advanced, caches_of, causal_inputs, empty_cache
from ..layers.composite import Composite
from ..layers.dropout import Dropout
from ..layers.feed_forward import FeedForward
from ..layers.heads import TokenTableHead
from ..layers.masks import AttentionMask
from ..layers.positions import token_positions
from .encoder_decoder import EncoderDecoderBackbone, cross_cache, cross_mask, decoder_inputs

# === Config ===


@dataclasses.dataclass(frozen=True)
class TransformerConfig(Config):
    vocabulary_size: int = 37_000  # shared by both languages
    num_layers: int = 6  # in the encoder, and the same number in the decoder
    num_heads: int = 8
    hidden_dim: int = 512
    feed_forward_dim: int = 2_048
    norm_first: bool = False  # whether blocks are pre-norm rather than post-norm
    attention_bias: bool = False  # whether the dense layers of attention have a bias, as in the annotated version
    dropout: float = 0.1  # of the sum of embeddings and positions, and after each sublayer
    attention_dropout: float = 0.0  # of the attention probabilities; 0.1 in tensor2tensor
    feed_forward_dropout: float = 0.0  # after the activation; 0.1 in tensor2tensor
    activation: str = "relu"
    layer_norm_epsilon: float = 1e-6
    pad_id: int = 0
    eos_id: int = 1
    decoder_start_id: int = 0
    model_type: str = "transformer"

    def kernel_initializer(self):
        return glorot_uniform()


# === Sizes ===

BIG = dict(num_heads=16, hidden_dim=1_024, feed_forward_dim=4_096)

SIZES = {
    "transformer_base": dict(),
    "transformer_big": dict(**BIG, dropout=0.3),
    "transformer_big_en_fr": dict(**BIG, vocabulary_size=32_000, dropout=0.1),
    "transformer_annotated": dict(norm_first=True, attention_bias=True, attention_dropout=0.1),
}

# === Blocks ===


class EncoderBlock(Composite):
    """Self-attention and feed-forward; the sum of each sublayer's input and output is normalized (post-norm).

    Args:
        config: a `TransformerConfig`.

    Call:
        x: float (b, s, m).
        attention_mask: an `AttentionMask`.
        return_weights: whether to return the attention probabilities.

    Returns: float (b, s, m), and `Extras` with the attention probabilities (b, h, s, s) if requested.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.attention = _attention(config, "attention", self.dtype_policy)
        self.attention_norm = _norm(config, "attention_norm", self.dtype_policy)
        self.feed_forward = _feed_forward(config, self.dtype_policy)
        self.feed_forward_norm = _norm(config, "feed_forward_norm", self.dtype_policy)
        self.dropout = Dropout(config.dropout, name="dropout", dtype=self.dtype_policy)

    def call(self, x, attention_mask=None, return_weights=False):
        y, extras = self.attention(x, attention_mask=attention_mask, return_weights=return_weights)
        x = self.attention_norm(x + self.dropout(y))
        y = self.feed_forward(x)
        x = self.feed_forward_norm(x + self.dropout(y))
        return x, extras


class PreNormEncoderBlock(EncoderBlock):
    """Self-attention and feed-forward; each normalizes its input and is added to the residual stream (pre-norm)."""

    def call(self, x, attention_mask=None, return_weights=False):
        y, extras = self.attention(self.attention_norm(x), attention_mask=attention_mask, return_weights=return_weights)
        x = x + self.dropout(y)
        y = self.feed_forward(self.feed_forward_norm(x))
        x = x + self.dropout(y)
        return x, extras


class DecoderBlock(Composite):
    """Masked self-attention, cross-attention to the encoder's output, and feed-forward (post-norm).

    Args:
        config: a `TransformerConfig`.

    Call:
        x: float (b, t, m).
        context: the argument `context` of `MultiHeadAttention` for cross-attention.
        attention_mask: the `AttentionMask` of self-attention.
        context_mask: the `AttentionMask` of cross-attention.
        return_weights: whether to return the attention probabilities.
        cache: keys and values of the preceding tokens for self-attention; see `MultiHeadAttention`.

    Returns: float (b, t, m), and `Extras` with the probabilities of self-attention (b, h, t, t) and cross-attention
        (b, h, t, s) and the cache, if requested.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.attention = _attention(config, "attention", self.dtype_policy)
        self.attention_norm = _norm(config, "attention_norm", self.dtype_policy)
        self.cross_attention = _attention(config, "cross_attention", self.dtype_policy)
        self.cross_attention_norm = _norm(config, "cross_attention_norm", self.dtype_policy)
        self.feed_forward = _feed_forward(config, self.dtype_policy)
        self.feed_forward_norm = _norm(config, "feed_forward_norm", self.dtype_policy)
        self.dropout = Dropout(config.dropout, name="dropout", dtype=self.dtype_policy)

    def call(self, x, context, attention_mask=None, context_mask=None, return_weights=False, cache=None):
        y, extras = self.attention(x, attention_mask=attention_mask, return_weights=return_weights, cache=cache)
        x = self.attention_norm(x + self.dropout(y))
        y, cross = self.cross_attention(x, context, attention_mask=context_mask, return_weights=return_weights)
        x = self.cross_attention_norm(x + self.dropout(y))
        y = self.feed_forward(x)
        x = self.feed_forward_norm(x + self.dropout(y))
        return x, extras._replace(cross_weights=cross.weights)


class PreNormDecoderBlock(DecoderBlock):
    """Masked self-attention, cross-attention to the encoder's output, and feed-forward (pre-norm)."""

    def call(self, x, context, attention_mask=None, context_mask=None, return_weights=False, cache=None):
        y = self.attention_norm(x)
        y, extras = self.attention(y, attention_mask=attention_mask, return_weights=return_weights, cache=cache)
        x = x + self.dropout(y)
        y = self.cross_attention_norm(x)
        y, cross = self.cross_attention(y, context, attention_mask=context_mask, return_weights=return_weights)
        x = x + self.dropout(y)
        y = self.feed_forward(self.feed_forward_norm(x))
        x = x + self.dropout(y)
        return x, extras._replace(cross_weights=cross.weights)


def _attention(config, name, dtype):
    return MultiHeadAttention(
        config.hidden_dim,
        config.num_heads,
        config.attention_dropout,
        config.kernel_initializer(),
        config.attention_bias,
        name=name,
        dtype=dtype,
    )


def _feed_forward(config, dtype):
    return FeedForward(
        config.hidden_dim,
        config.feed_forward_dim,
        config.activation,
        config.kernel_initializer(),
        dropout=config.feed_forward_dropout,
        name="feed_forward",
        dtype=dtype,
    )


def _norm(config, name, dtype):
    return keras.layers.LayerNormalization(epsilon=config.layer_norm_epsilon, name=name, dtype=dtype)


def _no_norm(config, name, dtype):
    return keras.layers.Identity(name=name, dtype=dtype)


# {norm_first: (encoder block, decoder block, norm after the last block of encoder and decoder)}
_ARRANGEMENTS = {
    False: (EncoderBlock, DecoderBlock, _no_norm),
    True: (PreNormEncoderBlock, PreNormDecoderBlock, _norm),
}

# === Backbone ===


@keras.saving.register_keras_serializable("kerasbert")
class Transformer(EncoderDecoderBackbone):
    """The encoder and the decoder of the Transformer, which share their token embeddings.

    Embeddings are multiplied by sqrt(hidden_dim).

    Args:
        config: a `TransformerConfig`.

    Call:
        inputs: a batch with `token_ids` (b, s), `decoder_token_ids` (b, t), and optionally `padding_mask` or `lengths`,
            `position_ids`, `sequence_ids`, and the same with the prefix `decoder_`.
        hidden_states: whether to return the embeddings and the output of each block, the last one after any final norm.
        attention_weights: whether to return the attention probabilities of each block.
        cache: the cache of the preceding tokens, from `start_cache` or from the previous call. It must not be used
            again. With a cache, `inputs` holds only decoder inputs.

    Returns: a dict of `encoder_output` (b, s, m), `sequence_output` (b, t, m), the output of the decoder, and if
        requested `hidden_states`, a dict of the lists `encoder` and `decoder` (num_layers + 1 tensors each), and
        `attention_weights`, a dict of the lists `encoder`, `decoder` and `cross` (num_layers tensors (b, h, q, k)
        each). With a cache, there are no outputs of the encoder, but the `cache` for the next call.
    """

    takes_segments = False
    AFTER_BLOCKS = ("encoder_norm", "decoder_norm")
    learned_positions = False

    def __init__(self, config: TransformerConfig, **kwargs: Any):
        super().__init__(config, **kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.token_embedding = keras.layers.Embedding(
            config.vocabulary_size, config.hidden_dim, normal(config.hidden_dim**-0.5), name="token_embedding", **common
        )
        self.embedding_dropout = Dropout(config.dropout, name="embedding_dropout", **common)
        encoder, decoder, last = _ARRANGEMENTS[config.norm_first]
        self.encoder_blocks = [encoder(config, name=f"encoder_block_{i}", **common) for i in range(config.num_layers)]
        self.decoder_blocks = [decoder(config, name=f"decoder_block_{i}", **common) for i in range(config.num_layers)]
        self.encoder_norm = last(config, "encoder_norm", self.dtype_policy)
        self.decoder_norm = last(config, "decoder_norm", self.dtype_policy)
        self.build_now()

    def call(self, inputs, hidden_states=False, attention_weights=False, cache=None):
        options: dict[str, Any] = dict(hidden_states=hidden_states, attention_weights=attention_weights)
        if cache is not None:
            real = AttentionMask(padding_mask=cache["real_context"])
            return self._decode(decoder_inputs(inputs), cache["contexts"], real, cache, **options)
        encoded = self._encode(inputs, **options)
        contexts = [encoded["encoder_output"]] * len(self.decoder_blocks)
        decoded = self._decode(_counted(decoder_inputs(inputs)), contexts, cross_mask(inputs), **options)
        both = {name: {**encoded[name], **decoded[name]} for name in encoded if name in decoded}
        return {**encoded, **decoded, **both}

    @property
    def blocks(self):
        """List of (encoder block, decoder block) for each depth."""
        return list(zip(self.encoder_blocks, self.decoder_blocks, strict=True))

    def _encode(self, inputs, hidden_states=False, attention_weights=False):
        mask = AttentionMask.from_inputs(inputs)
        x = self._embed(inputs["token_ids"], _counted(inputs)["position_ids"])
        blocks = run_blocks(self.encoder_blocks, x, attention_mask=mask, return_weights=attention_weights)
        x = blocks.states[-1] = self.encoder_norm(blocks.states[-1])
        found = blocks.requested(hidden_states, attention_weights)
        return {"encoder_output": x, **{key: {"encoder": value} for key, value in found.items()}}

    def _decode(self, inputs, contexts, context_mask, cache=None, hidden_states=False, attention_weights=False):
        mask, positions = causal_inputs(inputs, cache)
        x = self._embed(inputs["token_ids"], positions)
        cached = caches_of(cache)
        blocks = run_blocks(
            self.decoder_blocks,
            x,
            of_block=lambda i: {"context": contexts[i], **cached(i)},
            attention_mask=mask,
            context_mask=context_mask,
            return_weights=attention_weights,
        )
        x = blocks.states[-1] = self.decoder_norm(blocks.states[-1])
        found = blocks.requested(hidden_states, attention_weights)
        outputs = {"sequence_output": x, **{key: {"decoder": value} for key, value in found.items()}}
        if attention_weights:
            outputs["attention_weights"]["cross"] = [extra.cross_weights for extra in blocks.extras]
        if cache is not None:
            outputs["cache"] = {**cache, **advanced(mask, x.shape[1], blocks.caches)}
        return outputs

    def _embed(self, ids, positions):
        x = self.token_embedding(ids) * self.config.hidden_dim**0.5
        return self.embedding_dropout(x + ops.cast(sinusoids(positions, self.config.hidden_dim), x.dtype))

    def encode(self, inputs):
        """Returns the output of the encoder, float (b, s, m)."""
        return self._encode(inputs)["encoder_output"]

    def start_cache(self, context, batch_size, length):
        """Returns an empty cache for `length` tokens of the decoder, with the keys and values for cross-attention.

        Args:
            context: the inputs of the encoder, a batch.
            batch_size: number of rows.
            length: maximum number of tokens of the decoder.
        """
        config = self.config
        head_dim = config.hidden_dim // config.num_heads
        empty = empty_cache(batch_size, length, config.num_layers, config.num_heads, head_dim, self.compute_dtype)
        return {**empty, **cross_cache(self.encode(context), context, self.decoder_blocks)}


def _counted(inputs):
    """Returns the inputs with `position_ids` that count only real tokens, so that left padding has no effect."""
    return {**inputs, "position_ids": ops.maximum(token_positions(inputs, counted=True), 0)}


def sinusoids(positions, dim):
    """Returns the rows of `sinusoidal_table` at the given positions, float32 (..., dim).

    The product of position and frequency would be inexact in float32. Therefore, each position is split into a multiple
    of 256 and a remainder, and their exact sines and cosines are combined by the angle addition formulas.

    Args:
        positions: int32, any shape, values below 65,536.
        dim: width of the rows.
    """
    angles = np.arange(256)[:, None] / 10_000 ** (2 * (np.arange(dim) // 2) / dim)
    coarse, fine = 256 * angles, angles + np.arange(dim) % 2 * np.pi / 2  # cos(x) = sin(x + pi / 2)
    places, rests = positions // 256, positions % 256
    sine, cosine = (ops.take(f(coarse).astype("float32"), places, axis=0) for f in (np.sin, np.cos))
    return sine * ops.take(np.cos(fine).astype("float32"), rests, axis=0) + cosine * ops.take(
        np.sin(fine).astype("float32"), rests, axis=0
    )


# === Heads ===

HEADS = {"seq2seq_lm": lambda config, **common: TokenTableHead(**common)}

# === Files: kerasbert's layout, similar to those of Hugging Face ===

HUGGINGFACE_CONFIG = {field.name: field.name for field in dataclasses.fields(TransformerConfig)}

_BLOCK = (
    "attention/query",
    "attention/key",
    "attention/value",
    "attention/project",
    "attention_norm",
    "feed_forward/inner",
    "feed_forward/outer",
    "feed_forward_norm",
)
_CROSS = tuple(f"cross_{name}" for name in _BLOCK if name.startswith("attention"))

HUGGINGFACE_NAMES = {
    "token_embedding": "token_embedding",
    **{f"encoder_block_{{i}}/{name}": f"encoder.{{i}}.{name.replace('/', '.')}" for name in _BLOCK},
    "encoder_norm": "encoder.norm",
    **{f"decoder_block_{{i}}/{name}": f"decoder.{{i}}.{name.replace('/', '.')}" for name in (*_BLOCK, *_CROSS)},
    "decoder_norm": "decoder.norm",
}

register_family(
    Transformer,
    Family(
        config=TransformerConfig,
        model_types=("transformer",),
        sizes=SIZES,
        heads=HEADS,
        huggingface=HuggingFaceLayout(
            config=HUGGINGFACE_CONFIG,
            classes={"Backbone": "Transformer", "Seq2SeqLM": "Seq2SeqLM"},
            prefix="",
            names=HUGGINGFACE_NAMES,
        ),
    ),
)
