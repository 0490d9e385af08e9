"""Heads: small layers on top of a backbone that turn hidden states into scores.

A fine-tuning head is called with the outputs of its backbone; a vocabulary head with hidden states and the token table.
"""

import keras
from keras import ops

from .composite import Composite, Layer
from .dense import Dense, tied_logits
from .dropout import Dropout
from .feed_forward import activation_function


class MaskedLMHead(Layer):
    """Scores over the vocabulary by the transposed token table: dense, activation, layer norm, table, bias.

    Devlin et al. 2018 (arXiv 1810.04805), as in the official code: the table is tied, the output bias is not.

    Args:
        vocabulary_size: v, rows of the table.
        embedding_dim: width e of the table.
        activation: after the dense layer.
        epsilon: of the layer norm.
        kernel_initializer: of the dense layer.

    Call:
        x: float (b, p, m).
        table: float (v, e), the token embeddings.

    Returns: logits, float (b, p, v).
    """

    def __init__(
        self,
        vocabulary_size,
        embedding_dim,
        activation="gelu",
        epsilon=1e-12,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.activation = activation_function(activation)
        self.dense = Dense(embedding_dim, kernel_initializer=kernel_initializer, dtype=self.dtype_policy, name="dense")
        self.norm = keras.layers.LayerNormalization(epsilon=epsilon, dtype=self.dtype_policy, name="norm")

    def build(self, x_shape, table_shape=None):
        self.bias = self.add_weight(name="bias", shape=(self.vocabulary_size,), initializer="zeros")

    def call(self, x, table):
        x = self.norm(self.activation(self.dense(x)))
        return tied_logits(x, table, self.bias)


class SpanBoundaryHead(Layer):
    """Scores over the vocabulary for a token of a span, from the two tokens around the span and its position.

    Two dense layers, each with its activation and norm, then the transposed token table and a separate bias
    (Joshi et al. 2019, arXiv 1907.10529, section 3.2).

    Args:
        vocabulary_size: v, rows of the token table.
        hidden_dim: width m of the dense layers and of the token table.
        max_targets: rows of the position table; positions beyond the last share its row.
        activation: after both dense layers.
        epsilon: of the layer norms.
        kernel_initializer: of the dense layers and the position table.

    Call:
        left, right: float (b, p, m), the tokens before and after the span.
        offset: int32 (b, p), the token's position in the span, from 0.
        table: float (v, m), the token embeddings.

    Returns: logits, float (b, p, v).
    """

    POSITION_DIM = 200  # fixed in the paper, regardless of the width of the model

    def __init__(
        self,
        vocabulary_size,
        hidden_dim,
        max_targets=15,
        activation="gelu",
        epsilon=1e-12,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        common = dict(dtype=self.dtype_policy)
        dense = dict(kernel_initializer=kernel_initializer, **common)
        self.vocabulary_size = vocabulary_size
        self.max_targets = max_targets
        self.activation = activation_function(activation)
        self.position_embedding = keras.layers.Embedding(
            max_targets, self.POSITION_DIM, kernel_initializer, name="position_embedding", **common
        )
        self.dense_0 = Dense(hidden_dim, name="dense_0", **dense)
        self.norm_0 = keras.layers.LayerNormalization(epsilon=epsilon, name="norm_0", **common)
        self.dense_1 = Dense(hidden_dim, name="dense_1", **dense)
        self.norm_1 = keras.layers.LayerNormalization(epsilon=epsilon, name="norm_1", **common)

    def build(self, left_shape, *_):
        self.bias = self.add_weight(name="bias", shape=(self.vocabulary_size,), initializer="zeros")

    def call(self, left, right, offset, table):
        place = self.position_embedding(ops.clip(offset, 0, self.max_targets - 1))
        x = ops.concatenate([left, right, place], axis=-1)
        x = self.norm_0(self.activation(self.dense_0(x)))
        x = self.norm_1(self.activation(self.dense_1(x)))
        return tied_logits(x, table, self.bias)


class PooledClassifier(Composite):
    """Dropout and one dense layer on the pooled sequence (BERT's classifier, next-sentence head and choice head).

    Args:
        num_labels: width of the output.
        dropout: rate before the dense layer.
        kernel_initializer: of the dense layer.

    Call:
        outputs: the dict of a backbone; `pooled_output` (b, m) or (b, n, m) is read.

    Returns: logits, float (b, num_labels) or (b, n, num_labels).
    """

    def __init__(self, num_labels, dropout=0.0, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.dense = Dense(num_labels, kernel_initializer=kernel_initializer, dtype=self.dtype_policy, name="dense")

    def call(self, outputs):
        if outputs.get("pooled_output") is None:
            raise ValueError(
                "This head reads `pooled_output`. Received: a backbone built with pooler=False, or packed rows "
                "(`sequence_ids`) without `first_positions`. Use pooler=True, and pass `first_positions` (b, n) "
                "with packed rows."
            )
        return self.dense(self.dropout(outputs["pooled_output"]))


class FirstTokenClassifier(Composite):
    """A dense layer and its activation on the first token in place of a pooler, then dropout and the output layer.

    RoBERTa's classifier (tanh), ELECTRA's (gelu) and DistilBERT's (ReLU).

    Args:
        num_labels: width of the output.
        hidden_dim: width of the first dense layer.
        activation: after the first dense layer.
        dropout: rate before the output layer.
        input_dropout: rate before the first dense layer.
        kernel_initializer: of both dense layers.

    Call:
        outputs: the dict of a backbone; `first_output` (b, m) or (b, n, m) is read.

    Returns: logits, float (b, num_labels) or (b, n, num_labels).
    """

    reads = "first_output"

    def __init__(
        self,
        num_labels,
        hidden_dim,
        activation,
        dropout=0.0,
        input_dropout=0.0,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        common = dict(dtype=self.dtype_policy)
        dense = dict(kernel_initializer=kernel_initializer, **common)
        self.activation = activation_function(activation)
        self.input_dropout = Dropout(input_dropout, name="input_dropout", **common)
        self.dense = Dense(hidden_dim, name="dense", **dense)
        self.dropout = Dropout(dropout, name="dropout", **common)
        self.project = Dense(num_labels, name="project", **dense)

    def call(self, outputs):
        if outputs.get(self.reads) is None:
            raise ValueError(
                "This head reads one token of each sequence. Received: packed rows (`sequence_ids`) without "
                "`first_positions`. Add `first_positions` (b, n)."
            )
        x = self.activation(self.dense(self.input_dropout(outputs[self.reads])))
        return self.project(self.dropout(x))


class LastTokenClassifier(FirstTokenClassifier):
    """As `FirstTokenClassifier`, but on the last token: it reads `last_output` (XLNet's sequence summary)."""

    reads = "last_output"


class TokenHead(Composite):
    """Dropout and one dense layer on every token (tagging; with two outputs and no dropout, start and end of a span).

    Args:
        num_labels: width of the output.
        dropout: rate before the dense layer.
        kernel_initializer: of the dense layer.

    Call:
        outputs: the dict of a backbone; `sequence_output` (b, s, m) is read.

    Returns: logits, float (b, s, num_labels).
    """

    def __init__(self, num_labels, dropout=0.0, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.dense = Dense(num_labels, kernel_initializer=kernel_initializer, dtype=self.dtype_policy, name="dense")

    def call(self, outputs):
        return self.dense(self.dropout(outputs["sequence_output"]))


class TokenTableHead(Composite):
    """Scores over the vocabulary by the transposed token table alone (Radford et al. 2018).

    Call:
        x: float (b, s, m).
        table: float (v, m), the token embeddings.

    Returns: logits, float (b, s, v).
    """

    def call(self, x, table):
        return tied_logits(x, table)


class TiedLMHead(Layer):
    """Scores over the vocabulary by the transposed token table and a bias. Call and returns: as `MaskedLMHead`."""

    def build(self, x_shape, table_shape):
        self.bias = self.add_weight(name="bias", shape=table_shape[:1], initializer="zeros")

    def call(self, x, table):
        return tied_logits(x, table, self.bias)


class LastTokenHead(Composite):
    """Dropout and one dense layer on the last token, the only one that has seen the whole text in a causal model.

    Args:
        num_labels: width of the output.
        dropout: rate before the dense layer.
        kernel_initializer: of the dense layer.
        use_bias: whether the dense layer has a bias.

    Call:
        outputs: the dict of a backbone; `last_output` (b, m) or (b, n, m) is read.

    Returns: logits, float (b, num_labels) or (b, n, num_labels).
    """

    def __init__(self, num_labels, dropout=0.0, kernel_initializer="glorot_uniform", use_bias=True, **kwargs):
        super().__init__(**kwargs)
        common = dict(dtype=self.dtype_policy)
        self.dropout = Dropout(dropout, name="dropout", **common)
        self.dense = Dense(num_labels, use_bias=use_bias, kernel_initializer=kernel_initializer, name="dense", **common)

    def call(self, outputs):
        if outputs.get("last_output") is None:
            raise ValueError(
                "This head reads the last token of each sequence. Received: packed rows (`sequence_ids`) without "
                "`first_positions`. Add `first_positions` (b, n)."
            )
        return self.dense(self.dropout(outputs["last_output"]))


class HeadTransform(Composite):
    """Dense, activation, layer norm: the first layers of ModernBERT's heads.

    Args:
        hidden_dim: width m.
        activation: after the dense layer.
        epsilon: of the layer norm.
        kernel_initializer: of the dense layer.
        use_bias: whether the dense layer has a bias.
        norm_bias: whether the layer norm has one.

    Call:
        x: float (..., m).

    Returns: float (..., m).
    """

    def __init__(self, hidden_dim, activation, epsilon, kernel_initializer, use_bias=True, norm_bias=True, **kwargs):
        super().__init__(**kwargs)
        common = dict(dtype=self.dtype_policy)
        self.dense = Dense(hidden_dim, use_bias=use_bias, kernel_initializer=kernel_initializer, name="dense", **common)
        self.activation = activation_function(activation)
        self.norm = keras.layers.LayerNormalization(epsilon=epsilon, center=norm_bias, name="norm", **common)

    def call(self, x):
        return self.norm(self.activation(self.dense(x)))


class TransformedTableHead(Layer):
    """Scores over the vocabulary: a transform, the transposed token table, a bias. Called like `MaskedLMHead`.

    Args:
        transform: a `HeadTransform`.
        use_bias: whether there is a bias.
    """

    def __init__(self, transform, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        self.transform = transform
        self.use_bias = use_bias

    def build(self, x_shape, table_shape):
        if self.use_bias:
            self.bias = self.add_weight(name="bias", shape=table_shape[:1], initializer="zeros")

    def call(self, x, table):
        return tied_logits(self.transform(x), table, self.bias if self.use_bias else None)


class TransformedHead(Composite):
    """Scores over labels: a transform, dropout, and a dense layer on one of the outputs of the backbone.

    Args:
        transform: a `HeadTransform`.
        num_labels: width of the output.
        reads: the key of that output.
        dropout: rate before the dense layer.
        kernel_initializer: of the dense layer.
        use_bias: whether the dense layer has a bias.

    Call:
        outputs: the dict of a backbone.

    Returns: logits, float, shaped as the output that is read, with `num_labels` in place of m.
    """

    def __init__(
        self, transform, num_labels, reads, dropout=0.0, kernel_initializer="glorot_uniform", use_bias=True, **kwargs
    ):
        super().__init__(**kwargs)
        common = dict(dtype=self.dtype_policy)
        self.reads = reads
        self.transform = transform
        self.dropout = Dropout(dropout, name="dropout", **common)
        self.dense = Dense(num_labels, use_bias=use_bias, kernel_initializer=kernel_initializer, name="dense", **common)

    def call(self, outputs):
        if outputs.get(self.reads) is None:
            raise ValueError(
                f"This head reads `{self.reads}`, one vector per sequence. Received: packed rows (`sequence_ids`) "
                "without `first_positions`. Add `first_positions` (b, n)."
            )
        return self.dense(self.dropout(self.transform(outputs[self.reads])))
