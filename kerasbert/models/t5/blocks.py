"""The layers of T5: attention, blocks, the stack of blocks that forms an encoder or a decoder, and heads."""

import itertools

import keras
from keras import ops

from ...core.blocks import run_blocks
from ...core.initializers import glorot_uniform, normal, truncated_normal
from ...layers.attention import ProjectedAttention
from ...layers.composite import Composite
from ...layers.dense import Dense, tied_logits
from ...layers.dropout import Dropout
from ...layers.feed_forward import FeedForward, GatedFeedForward
from ...layers.relative_bias import BucketedBias


class T5Attention(ProjectedAttention):
    """Attention with heads of any size, without biases and without scaling of the scores.

    The initial weights of the queries are smaller instead. Dropout of the attention probabilities drops a key for all
    queries of a row at once, as in the paper's code.

    Args:
        config: a `T5Config`.
    """

    scale = 1.0

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        width, inner = config.hidden_dim, config.num_heads * config.head_dim

        def dense(units, inputs, name):
            initializer = normal(config.initializer_factor * inputs**-0.5)
            return Dense(units, use_bias=False, kernel_initializer=initializer, name=name, dtype=self.dtype_policy)

        self.num_heads = config.num_heads
        self.query = dense(inner, width * config.head_dim, "query")
        self.key = dense(inner, width, "key")
        self.value = dense(inner, width, "value")
        self.project = dense(width, inner, "project")
        self.dropout = Dropout(config.dropout, (None, None, 1, None), dtype="float32", name="dropout")


class T5Block(Composite):
    """Self-attention, optional cross-attention and feed-forward, each with a normalized input (pre-norm).

    The residual stream is float32 with every dtype policy. With float16, the feed-forward layer is float32, too,
    because both exceed the range of float16 with trained weights.

    Args:
        config: a `T5Config`.
        cross_attention: whether the block has cross-attention, as in a decoder with an encoder.

    Call:
        x: float32 (b, q, m).
        attention_mask: the `AttentionMask` of self-attention.
        bias: float (1, h, q, k), a bias of the scores that depends on the distance between query and key.
        context: the argument `context` of `MultiHeadAttention` for cross-attention. None: cross-attention is skipped.
        context_mask: the `AttentionMask` of cross-attention.
        return_weights: whether to return the attention probabilities.
        cache: keys and values of the preceding tokens for self-attention; see `MultiHeadAttention`.

    Returns: float32 (b, q, m), and `Extras` with the attention probabilities of self-attention and cross-attention and
        the cache, if requested.
    """

    def __init__(self, config, cross_attention=False, **kwargs):
        super().__init__(autocast=False, **kwargs)
        common = dict(dtype=self.dtype_policy)
        self.attention_norm = _norm(config, "attention_norm")
        self.attention = T5Attention(config, name="attention", **common)
        self.attention_dropout = _dropout(config, "attention_dropout")
        self.cross_attention = None
        if cross_attention:
            self.cross_attention_norm = _norm(config, "cross_attention_norm")
            self.cross_attention = T5Attention(config, name="cross_attention", **common)
            self.cross_attention_dropout = _dropout(config, "cross_attention_dropout")
        self.feed_forward_norm = _norm(config, "feed_forward_norm")
        self.feed_forward = (GatedFeedForward if config.gated else FeedForward)(
            config.hidden_dim,
            config.feed_forward_dim,
            config.activation,
            dropout=config.dropout,
            kernel_initializer=truncated_normal(config.initializer_factor * config.hidden_dim**-0.5),
            use_bias=False,
            output_initializer=truncated_normal(config.initializer_factor * config.feed_forward_dim**-0.5),
            name="gated_feed_forward" if config.gated else "feed_forward",
            dtype="float32" if self.compute_dtype == "float16" else self.dtype_policy,
        )
        self.feed_forward_dropout = _dropout(config, "feed_forward_dropout")

    def call(
        self, x, attention_mask=None, bias=None, context=None, context_mask=None, return_weights=False, cache=None
    ):
        y = self.attention_norm(x)
        y, extras = self.attention(
            y, attention_mask=attention_mask, bias=bias, return_weights=return_weights, cache=cache
        )
        x = x + self.attention_dropout(y)
        if context is not None:
            y = self.cross_attention_norm(x)
            y, cross = self.cross_attention(y, context, attention_mask=context_mask, return_weights=return_weights)
            extras = extras._replace(cross_weights=cross.weights)
            x = x + self.cross_attention_dropout(y)
        y = self.feed_forward(self.feed_forward_norm(x))
        x = x + self.feed_forward_dropout(y)
        return x, extras


def _norm(config, name):
    return keras.layers.RMSNormalization(epsilon=config.layer_norm_epsilon, name=name, dtype="float32")


def _dropout(config, name):
    """Returns a dropout layer with one mask for all positions of a row, as in the paper's code."""
    return Dropout(config.dropout, (None, 1, None), name=name, dtype="float32")


class T5Stack(Composite):
    """An encoder or a decoder: blocks, the distance biases that the blocks share, and a final norm.

    Args:
        config: a `T5Config`.
        num_layers: number of blocks.
        cross_attention: whether the blocks have cross-attention.

    Call:
        x: float (b, q, m), embeddings.
        attention_mask: the `AttentionMask` of self-attention.
        bidirectional: whether keys before and after a query have separate distance buckets.
        contexts: the context of cross-attention for all blocks, or a list with one context per block.
        context_mask: the `AttentionMask` of cross-attention.
        return_weights: whether to return the attention probabilities.
        caches: list of the cache of each block, for self-attention.

    Returns: `BlockOutputs`, whose last hidden states are normalized.
    """

    def __init__(self, config, num_layers, cross_attention=False, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.relative_bias = [
            BucketedBias(
                config.num_heads,
                config.num_buckets,
                config.max_distance,
                glorot_uniform(),
                name=f"relative_bias_{i}",
                dtype="float32",
            )
            for i in range(num_layers if config.bias_every_block else 1)
        ]
        self.embedding_dropout = _dropout(config, "embedding_dropout")
        self.blocks = [
            T5Block(config, cross_attention, name=f"block_{i}", dtype=self.dtype_policy) for i in range(num_layers)
        ]
        self.final_norm = _norm(config, "final_norm")
        self.final_dropout = _dropout(config, "final_dropout")

    def call(
        self,
        x,
        attention_mask=None,
        bidirectional=True,
        contexts=None,
        context_mask=None,
        return_weights=False,
        caches=None,
    ):
        queries = keys = ops.arange(ops.shape(x)[1], dtype="int32")
        if caches is not None:
            keys = ops.arange(caches[0][0].shape[1], dtype="int32")
            queries = queries + attention_mask.query_start
        distances = keys[None, :] - queries[:, None]
        biases = [table(distances, bidirectional=bidirectional) for table in self.relative_bias]

        outputs = run_blocks(
            self.blocks,
            self.embedding_dropout(x),
            of_block=lambda i: {
                "bias": biases[min(i, len(biases) - 1)],
                "context": contexts[i] if isinstance(contexts, (list, tuple)) else contexts,
                "cache": None if caches is None else caches[i],
            },
            attention_mask=attention_mask,
            context_mask=context_mask,
            return_weights=return_weights,
        )
        outputs.states[-1] = self.final_dropout(self.final_norm(outputs.states[-1]))
        outputs.states[:] = [ops.cast(state, self.compute_dtype) for state in outputs.states]
        return outputs


def side_by_side(encoder, decoder):
    """Returns the list [(encoder block, decoder block), ...].

    Tuples have only one block where one of the two stacks is None or has fewer blocks, or if both are the same stack.
    """
    stacks = [encoder, decoder] if encoder is not decoder else [decoder]
    pairs = itertools.zip_longest(*(stack.blocks for stack in stacks if stack is not None))
    return [tuple(block for block in pair if block is not None) for pair in pairs]


class T5LanguageModelHead(Composite):
    """Logits over the vocabulary: the product with the token embeddings, or the output of a separate dense layer.

    Inputs and outputs are the same as in `TokenTableHead`.

    Args:
        config: a `T5Config`.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.scale = config.hidden_dim**-0.5 if config.scale_output else 1.0
        self.dense = None
        if not config.tied_output:
            initializer = truncated_normal(config.initializer_factor * config.hidden_dim**-0.5)
            self.dense = Dense(
                config.vocabulary_size,
                use_bias=False,
                kernel_initializer=initializer,
                name="dense",
                dtype=self.dtype_policy,
            )

    def call(self, x, table):
        x = x * self.scale
        return tied_logits(x, table) if self.dense is None else self.dense(x)
