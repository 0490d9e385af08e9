"""Relative attention of a segment to itself and to a memory of the preceding segments (Transformer-XL)."""

from typing import Any

from keras import ops

from ...layers.attention import attend, attention_probabilities, merge_heads, split_heads
from ...layers.composite import Layer
from ...layers.dense import Dense
from ...layers.dropout import Dropout
from ...layers.extras import Extras
from ...layers.relative_attention import relative_shift


class SegmentAttention(Layer):
    """Relative attention with learned biases u and w (Dai et al. 2019, arXiv 1901.02860, section 3.3).

    The output is softmax((q + u) k^T + (q + w) (W r)^T) v, for queries q, keys k, values v, and sinusoids r of the
    distances between query and key, which are projected by W.

    Args:
        hidden_dim: width m of the input and the output.
        num_heads: number of attention heads h.
        head_dim: size d of each head. h * d need not be m.
        dropout: dropout rate of the attention probabilities.
        kernel_initializer: initializer of all weights.
        untied_biases: whether this layer has separate biases u and w. Otherwise they are passed to each call.

    Call:
        x: float (b, q, m), hidden states of the segment.
        context: float (b, k, m), hidden states of the memory and the segment.
        distances: float (k, m), sinusoids of the distances k - 1, ..., 0.
        attention_mask: an `AttentionMask`.
        biases: tuple (u, w) of float (h, d). Default: the biases of this layer.
        return_weights: whether to return the attention probabilities before dropout.

    Returns: float (b, q, m), and `Extras` with the attention probabilities (b, h, q, k) if requested.
    """

    def __init__(
        self,
        hidden_dim,
        num_heads,
        head_dim,
        dropout=0.0,
        kernel_initializer="glorot_uniform",
        untied_biases=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads, self.head_dim = num_heads, head_dim
        self.untied_biases, self.initializer = untied_biases, kernel_initializer
        dense: dict[str, Any] = dict(use_bias=False, kernel_initializer=kernel_initializer, dtype=self.dtype_policy)
        self.query = Dense(num_heads * head_dim, name="query", **dense)
        self.key = Dense(num_heads * head_dim, name="key", **dense)
        self.value = Dense(num_heads * head_dim, name="value", **dense)
        self.distance = Dense(num_heads * head_dim, name="distance", **dense)
        self.project = Dense(hidden_dim, name="project", **dense)
        self.dropout = Dropout(dropout, dtype="float32", name="dropout")

    def build(self, x_shape=None):
        if self.untied_biases:
            self.biases = attention_biases(self, self.num_heads, self.head_dim, self.initializer)

    def call(self, x, context, distances, attention_mask=None, biases=None, return_weights=False, training=None):
        content_bias, position_bias = self.biases if biases is None else biases
        query = split_heads(self.query(x), self.num_heads)
        key = split_heads(self.key(context), self.num_heads)
        value = split_heads(self.value(context), self.num_heads)
        distance = split_heads(self.distance(distances)[None], self.num_heads)[0]
        scale = self.head_dim**-0.5
        scores = ops.einsum("bqhd,rhd->bhqr", (query + position_bias) * scale, distance)
        scores = relative_shift(scores, ops.shape(key)[1])
        query = query + content_bias
        dropout = self.dropout if training and self.dropout.rate > 0 else None
        y = self.project(merge_heads(attend(query, key, value, attention_mask, scores, scale, dropout)))
        weights = attention_probabilities(query, key, attention_mask, scores, scale) if return_weights else None
        return y, Extras(weights)


def attention_biases(layer, num_heads, head_dim, initializer):
    """Adds the weights u and w, each (h, d), to a layer.

    They are added to the queries: u for the scores by content, and w for the scores by distance.
    """
    options: dict[str, Any] = dict(shape=(num_heads, head_dim), initializer=initializer)
    return [layer.add_weight(name=name, **options) for name in ("content_bias", "position_bias")]
