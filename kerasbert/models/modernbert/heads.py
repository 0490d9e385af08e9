"""The heads of ModernBERT, each of which begins with a dense layer, an activation and a layer norm."""

from typing import Any

import keras

from ...core.initializers import truncated_normal
from ...layers.composite import Composite, Layer
from ...layers.dense import Dense, tied_logits
from ...layers.dropout import Dropout
from ...layers.feed_forward import activation_function


class HeadTransform(Composite):
    """The first layers of every head: a dense layer, an activation and a layer norm, (..., m) to (..., m).

    Args:
        config: a `ModernBertConfig` or `ModernBertDecoderConfig`.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        dense: dict[str, Any] = dict(
            use_bias=config.head_bias, kernel_initializer=config.kernel_initializer(), **common
        )
        self.dense = Dense(config.hidden_dim, name="dense", **dense)
        self.activation = activation_function(config.head_activation)
        norm: dict[str, Any] = dict(epsilon=config.layer_norm_epsilon, center=config.norm_bias, **common)
        self.norm = keras.layers.LayerNormalization(name="norm", **norm)

    def call(self, x):
        return self.norm(self.activation(self.dense(x)))


class TransformedTableHead(Layer):
    """Logits over the vocabulary: the product of the transformed states with the token embeddings, and a bias.

    Args:
        config: as for `HeadTransform`.

    Call:
        x: float (b, p, m), hidden states.
        table: float (v, m), the token embeddings.

    Returns: logits, float (b, p, v).
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.transform = HeadTransform(config, name="transform", dtype=self.dtype_policy)
        self.use_bias, self.bias = config.vocabulary_bias, None

    def build(self, x_shape, table_shape):
        if self.use_bias:
            self.bias = self.add_weight(name="bias", shape=table_shape[:1], initializer="zeros")

    def call(self, x, table):
        return tied_logits(self.transform(x), table, self.bias)


class TransformedHead(Composite):
    """Logits of labels, computed from one of the outputs of a backbone: the transform, dropout and a dense layer.

    Args:
        config: as for `HeadTransform`.
        num_labels: number of logits.
        reads: key of the output to read, such as "sequence_output" (b, s, m) or "pooled_output" (b, m).
        use_bias: whether the dense layer has a bias.

    Call:
        outputs: dict of the outputs of a backbone.

    Returns: logits, float, in the shape of the output that is read, with `num_labels` in place of m.
    """

    def __init__(self, config, num_labels, reads="sequence_output", use_bias=True, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        initializer = truncated_normal(config.hidden_dim**-0.5, config.initializer_cutoff)
        self.reads = reads
        self.transform = HeadTransform(config, name="transform", **common)
        self.dropout = Dropout(config.classifier_dropout, name="dropout", **common)
        self.dense = Dense(num_labels, use_bias=use_bias, kernel_initializer=initializer, name="dense", **common)

    def call(self, outputs):
        if outputs.get(self.reads) is None:
            raise ValueError(
                f"This head reads `{self.reads}`, one vector per sequence. Received: packed rows (`sequence_ids`) "
                "without `first_positions`. Add `first_positions` (b, n)."
            )
        return self.dense(self.dropout(self.transform(outputs[self.reads])))
