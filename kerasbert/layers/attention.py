"""Scaled dot-product attention (Vaswani et al. 2017, arXiv 1706.03762, section 3.2), one function for all families.

Letters in shapes and einsums of the whole package: b batch, s sequence, q query, k key, h heads, d head size, m model
dimension, f feed-forward dimension, v vocabulary, r relative positions.
"""

from typing import Any

from keras import ops

from ..backend import kernels
from .cache import write
from .composite import Composite
from .dense import Dense
from .dropout import Dropout
from .extras import Extras
from .local_attention import in_blocks, whole_rows

# Replaces the scores of masked keys, in float32. It is finite so that the result is not NaN if all keys are masked.
HIDDEN_SCORE = -1e30


def attend(query, key, value, mask=None, bias=None, scale=None, dropout=None):
    """Computes softmax(scale * query key^T + bias) value over the keys that the mask allows.

    Scores and softmax are float32 regardless of the compute dtype. The output is finite but meaningless for queries
    that may not attend to any key.

    Args:
        query: float (b, q, h, d).
        key, value: float (b, k, h, d). The head size of `value` may differ from that of `key`.
        mask: an `AttentionMask`, or None.
        bias: float, broadcastable to (b, h, q, k), added to the scores; or None.
        scale: factor of the scores. Default: d ** -0.5.
        dropout: function that is applied to the attention probabilities, or None. Fused kernels support only `Dropout`
            layers, and some of them only None.

    Returns: float (b, q, h, d), in the dtype of `value`.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    if mask is not None and mask.window is not None:
        fused = kernels.fused_window_attention(query, key, value, mask, bias, scale, dropout)
        if fused is not None:
            return fused
    blocks = None if mask is None or bias is not None else in_blocks(query, key, value, mask)
    if blocks is not None:
        return whole_rows(attend(*blocks, scale=scale, dropout=dropout), query.shape[1])
    fused = kernels.fused_attention(query, key, value, mask, bias, scale, dropout)
    if fused is not None:
        return fused
    scores = attention_scores(query, key, mask, bias, scale)
    weights, total = kernels.softmax_parts(scores)
    weights = weights if dropout is None else dropout(weights)
    y = ops.einsum("bhqk,bkhd->bqhd", ops.cast(weights, value.dtype), value)
    return y if total is None else y / ops.cast(ops.transpose(total, (0, 2, 1, 3)), y.dtype)


def attention_probabilities(query, key, mask=None, bias=None, scale=None):
    """Returns the attention probabilities of `attend` before dropout, float32 (b, h, q, k)."""
    return ops.softmax(attention_scores(query, key, mask, bias, scale), axis=-1)


def attention_scores(query, key, mask=None, bias=None, scale=None):
    """Returns the scores to which `attend` applies the softmax, float32 (b, h, q, k)."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = ops.cast(ops.einsum("bqhd,bkhd->bhqk", query * scale, key), "float32")
    if bias is not None:
        scores = scores + ops.cast(bias, "float32")
    allowed = None if mask is None else mask.dense(ops.shape(query)[1], ops.shape(key)[1])
    if allowed is not None:
        scores = ops.where(allowed, scores, HIDDEN_SCORE)
    return scores


class ProjectedAttention(Composite):
    """Attention between linear projections of hidden states. Subclasses create the layers.

    These are the attributes `query`, `key`, `value` and `project`, dense layers, `dropout`, `num_heads`, and `scale`,
    the factor of the scores, which is head size ** -0.5 if it is None.

    Call:
        x: float (b, q, m), the hidden states from which queries are computed.
        context: float (b, k, m), the hidden states from which keys and values are computed, or the result of
            `keys_and_values`. Default: `x`.
        attention_mask: an `AttentionMask`.
        bias: float, broadcastable to (b, h, q, k), added to the scores.
        return_weights: whether to return the attention probabilities before dropout.
        cache: tuple of the keys and values of preceding tokens, each (b, k, h, d). The keys and values of `context` are
            written into it, beginning at column `attention_mask.query_start`.
        rotation: a `Rotation` for the positions of the tokens in `x`, applied to queries and keys.

    Returns: float (b, q, m), and `Extras` with the attention probabilities (b, h, q, k) and the cache, if requested.
    """

    def call(
        self,
        x,
        context=None,
        attention_mask=None,
        bias=None,
        return_weights=False,
        cache=None,
        rotation=None,
        training=None,
    ):
        query = split_heads(self.query(x), self.num_heads)
        context = x if context is None else context
        key, value = context if isinstance(context, tuple) else self.keys_and_values(context)
        if rotation is not None:
            query, key = rotation(query), rotation(key)
        if cache is not None:
            key, value = (write(*pair, attention_mask.query_start) for pair in zip(cache, (key, value), strict=True))
        dropout = self.dropout if training and self.dropout.rate > 0 else None
        y = attend(query, key, value, attention_mask, bias, self.scale, dropout)
        y = self.project(merge_heads(y))
        weights = attention_probabilities(query, key, attention_mask, bias, self.scale) if return_weights else None
        return y, Extras(weights, None if cache is None else (key, value))

    def keys_and_values(self, context):
        """Returns (key, value), each (b, k, h, d), for `context` (b, k, m).

        If several calls attend to the same context, its keys and values can be computed once.
        """
        return split_heads(self.key(context), self.num_heads), split_heads(self.value(context), self.num_heads)


class MultiHeadAttention(ProjectedAttention):
    """Multi-head attention: dense layers for query, key and value, attention, and a dense output layer.

    Args:
        hidden_dim: width m of the input and the output.
        num_heads: number of attention heads h. Must divide `hidden_dim`.
        dropout: dropout rate of the attention probabilities.
        kernel_initializer: initializer of the four kernels.
        use_bias: whether the four dense layers have a bias.
        output_initializer: initializer of the kernel of the output layer. Default: `kernel_initializer`.
        scale: factor of the scores. Default: head size ** -0.5.
    """

    def __init__(
        self,
        hidden_dim,
        num_heads,
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        use_bias=True,
        output_initializer=None,
        scale=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if hidden_dim % num_heads:
            lower = hidden_dim - hidden_dim % num_heads
            raise ValueError(
                f"`hidden_dim` must be a multiple of `num_heads`. Received: hidden_dim={hidden_dim}, "
                f"num_heads={num_heads}. Use {lower or num_heads} or {lower + num_heads}."
            )
        self.num_heads, self.scale = num_heads, scale
        dense: dict[str, Any] = dict(kernel_initializer=kernel_initializer, use_bias=use_bias, dtype=self.dtype_policy)
        self.query = Dense(hidden_dim, name="query", **dense)
        self.key = Dense(hidden_dim, name="key", **dense)
        self.value = Dense(hidden_dim, name="value", **dense)
        dense["kernel_initializer"] = output_initializer or kernel_initializer
        self.project = Dense(hidden_dim, name="project", **dense)
        self.dropout = Dropout(dropout, dtype="float32", name="dropout")


def split_heads(x, num_heads):
    """Reshapes (b, s, h * d) to (b, s, h, d)."""
    batch, length, width = _sizes(x)
    return ops.reshape(x, (batch, length, num_heads, width // num_heads))


def merge_heads(x):
    """Reshapes (b, s, h, d) to (b, s, h * d)."""
    batch, length, num_heads, head_dim = _sizes(x)
    return ops.reshape(x, (batch, length, num_heads * head_dim))


def _sizes(x):
    """Returns the shape of x as a list. Unknown sizes are tensors in a TensorFlow graph, and -1 in symbolic calls."""
    return [-1 if size is None else size for size in ops.shape(x)]
