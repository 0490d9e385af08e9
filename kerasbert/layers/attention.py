"""Scaled dot-product attention (Vaswani et al. 2017, arXiv 1706.03762, section 3.2), one function for all families.

Einsum letters, package-wide: b batch, q query, k key, h heads, d head size, m model, f feed-forward, v vocabulary,
r relative.
"""

from keras import ops

from ..backend import kernels
from .cache import write
from .composite import Composite
from .dense import Dense
from .dropout import Dropout
from .extras import Extras
from .local_attention import in_blocks, whole_rows

# Replaces the score of a hidden key (it is not added), in float32. It is finite, so a row without keys is not NaN.
HIDDEN_SCORE = -1e30


def attend(query, key, value, mask=None, bias=None, scale=None, dropout=None):
    """softmax(scale * query key^T + bias) value, over the keys that `mask` allows.

    Scores and softmax are float32 regardless of the compute dtype. A query that may not attend to any key gets a
    finite vector without meaning.

    Call:
        query: float (b, q, h, d).
        key, value: float (b, k, h, d); the head size of `value` may differ.
        mask: an `AttentionMask`, or None.
        bias: float, broadcastable to (b, h, q, k), or None.
        scale: default d ** -0.5.
        dropout: a function applied to the probabilities, or None (which allows all fused kernels).

    Returns: float (b, q, h, d), in the dtype of `value`.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    if dropout is None and mask is not None and mask.window is not None:
        fused = kernels.fused_window_attention(query, key, value, mask, bias, scale)
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
    """The weights of the values in `attend`, before dropout: float32 (b, h, q, k)."""
    return ops.softmax(attention_scores(query, key, mask, bias, scale), axis=-1)


def attention_scores(query, key, mask=None, bias=None, scale=None):
    """The inputs of the softmax: float32 (b, h, q, k)."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = ops.cast(ops.einsum("bqhd,bkhd->bhqk", query * scale, key), "float32")
    if bias is not None:
        scores = scores + ops.cast(bias, "float32")
    allowed = None if mask is None else mask.dense(ops.shape(query)[1], ops.shape(key)[1])
    if allowed is not None:
        scores = ops.where(allowed, scores, HIDDEN_SCORE)
    return scores


class MultiHeadAttention(Composite):
    """Attention in `num_heads` subspaces, then a dense output layer.

    Args:
        hidden_dim: width m of the input and the output.
        num_heads: must divide `hidden_dim`.
        dropout: rate on the attention probabilities.
        kernel_initializer: for the four kernels.
        use_bias: whether the four dense layers have a bias.
        output_initializer: for the kernel of the output layer; default `kernel_initializer`.
        scale: factor of the scores; default head size ** -0.5.

    Call:
        x: float (b, q, m), where the queries come from.
        context: float (b, k, m), where keys and values come from; default `x`. Or the result of `keys_and_values`.
        attention_mask: an `AttentionMask`.
        bias: float, broadcastable to (b, h, q, k), added to the scores.
        return_weights: also return the attention probabilities, before dropout.
        cache: keys and values (b, k, h, d) of the tokens so far. Those of `context` are written into it from column
            `attention_mask.query_start` on, and the queries attend to all keys that the mask allows.
        rotation: a `Rotation` for the positions of the tokens of `x`, applied to queries and keys.

    Returns: float (b, q, m), and `Extras`: the probabilities (b, h, q, k) and the cache, if asked for.
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
        dense = dict(kernel_initializer=kernel_initializer, use_bias=use_bias, dtype=self.dtype_policy)
        self.query = Dense(hidden_dim, name="query", **dense)
        self.key = Dense(hidden_dim, name="key", **dense)
        self.value = Dense(hidden_dim, name="value", **dense)
        dense["kernel_initializer"] = output_initializer or kernel_initializer
        self.project = Dense(hidden_dim, name="project", **dense)
        self.dropout = Dropout(dropout, dtype="float32", name="dropout")

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
        """Both (b, k, h, d) for `context` (b, k, m): computed once if many calls attend to the same."""
        return split_heads(self.key(context), self.num_heads), split_heads(self.value(context), self.num_heads)


def split_heads(x, num_heads):
    """(b, s, h * d) -> (b, s, h, d)."""
    batch, length, width = _sizes(x)
    return ops.reshape(x, (batch, length, num_heads, width // num_heads))


def merge_heads(x):
    """(b, s, h, d) -> (b, s, h * d)."""
    batch, length, num_heads, head_dim = _sizes(x)
    return ops.reshape(x, (batch, length, num_heads * head_dim))


def _sizes(x):
    """The shape of `x`: numbers where they are known, tensors in a TensorFlow graph, -1 for a symbolic batch."""
    return [-1 if size is None else size for size in ops.shape(x)]
