"""Heads: small layers on top of a backbone that compute logits from hidden states.

Fine-tuning heads are called with the dict of outputs of the backbone. Language modeling heads are called with hidden
states and the table of token embeddings.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from .composite import Composite, Layer
from .dense import Dense, tied_logits
from .dropout import Dropout
from .feed_forward import activation_function


def of_config(head: type, dropout: str | None = None, **fixed: Any) -> Callable:
    """Returns an entry of a family's `heads`: a function of (config, **arguments) that creates a head.

    Args:
        head: a class of heads with the arguments `dropout` and `kernel_initializer`.
        dropout: the config field of the dropout rate, for which None in the config stands for the field `dropout`.
            None: no dropout.
        **fixed: other arguments of the class, the same for every config.
    """

    def make(config, **arguments):
        rate = 0.0 if dropout is None else getattr(config, dropout)
        usual: dict[str, Any] = dict(
            dropout=config.dropout if rate is None else rate, kernel_initializer=config.kernel_initializer()
        )
        return head(**usual, **fixed, **arguments)

    return make


def masked_lm(width: str = "hidden_dim", **fixed: Any) -> Callable:
    """Returns the entry `masked_lm` of a family's `heads`: a function of (config, **arguments) that creates the head.

    Args:
        width: the config field with the width of the token embeddings.
        **fixed: `activation` and `epsilon`, where they are not those of the blocks.
    """

    def make(config, **arguments):
        sizes: dict[str, Any] = dict(vocabulary_size=config.vocabulary_size, embedding_dim=getattr(config, width))
        usual = {"activation": "activation", "epsilon": "layer_norm_epsilon"}
        usual = {name: getattr(config, field) for name, field in usual.items() if name not in fixed}
        return MaskedLMHead(**sizes, **usual, kernel_initializer=config.kernel_initializer(), **fixed, **arguments)

    return make


class MaskedLMHead(Layer):
    """Logits over the vocabulary: dense layer, activation, layer norm, product with the token embeddings, bias.

    This is the head in the code of Devlin et al. 2018 (arXiv 1810.04805).

    Args:
        vocabulary_size: number of tokens v.
        embedding_dim: width e of the token embeddings.
        activation: name of the activation function after the dense layer.
        epsilon: epsilon of the layer norm.
        kernel_initializer: initializer of the dense layer.

    Call:
        x: float (b, p, m), hidden states.
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
    """Logits over the vocabulary for a token in a masked span, predicted from the two tokens around the span.

    The hidden states of the two tokens and an embedding of the position in the span pass through two dense layers, each
    followed by an activation and a layer norm. The result is multiplied by the token embeddings, and a bias is added
    (Joshi et al. 2019, arXiv 1907.10529, section 3.2).

    Args:
        vocabulary_size: number of tokens v.
        hidden_dim: width m of the hidden states, the dense layers and the token embeddings.
        max_targets: number of position embeddings. Later positions in a span share the last embedding.
        activation: name of the activation function after both dense layers.
        epsilon: epsilon of the layer norms.
        kernel_initializer: initializer of the dense layers and the position embeddings.

    Call:
        left, right: float (b, p, m), the hidden states of the last token before the span and the first token after it.
        offset: int32 (b, p), the position of the predicted token in its span, counted from 0.
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
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        dense: dict[str, Any] = dict(kernel_initializer=kernel_initializer, **common)
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
    """Dropout and one dense layer on the pooled output.

    BERT uses this head for classification, next-sentence prediction and multiple choice.

    Args:
        num_labels: number of logits per sequence.
        dropout: dropout rate before the dense layer.
        kernel_initializer: initializer of the dense layer.

    Call:
        outputs: dict of the outputs of a backbone, of which `pooled_output` (b, m) or (b, n, m) is used.

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
    """A classifier on the first token: a dense layer, an activation, dropout and a dense output layer.

    RoBERTa uses this head with tanh, ELECTRA with gelu and DistilBERT with ReLU.

    Args:
        num_labels: number of logits per sequence.
        hidden_dim: width of the first dense layer.
        activation: name of the activation function after the first dense layer.
        dropout: dropout rate before the output layer.
        input_dropout: dropout rate before the first dense layer.
        kernel_initializer: initializer of both dense layers.

    Call:
        outputs: dict of the outputs of a backbone, of which `first_output` (b, m) or (b, n, m) is used.

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
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        dense: dict[str, Any] = dict(kernel_initializer=kernel_initializer, **common)
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


class EndTokenClassifier(FirstTokenClassifier):
    """A `FirstTokenClassifier` that reads the decoder's output at the end token (`end_output`) instead."""

    reads = "end_output"


class TokenHead(Composite):
    """Dropout and one dense layer on every token.

    Used for tagging and, with two outputs and no dropout, for the start and end of answers in question answering.

    Args:
        num_labels: number of logits per token.
        dropout: dropout rate before the dense layer.
        kernel_initializer: initializer of the dense layer.

    Call:
        outputs: dict of the outputs of a backbone, of which `sequence_output` (b, s, m) is used.

    Returns: logits, float (b, s, num_labels).
    """

    def __init__(self, num_labels, dropout=0.0, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.dense = Dense(num_labels, kernel_initializer=kernel_initializer, dtype=self.dtype_policy, name="dense")

    def call(self, outputs):
        return self.dense(self.dropout(outputs["sequence_output"]))


class TokenTableHead(Composite):
    """Logits over the vocabulary: the product of hidden states and token embeddings, without a bias.

    GPT uses this head (Radford et al. 2018).

    Call:
        x: float (b, s, m), hidden states.
        table: float (v, m), the token embeddings.

    Returns: logits, float (b, s, v).
    """

    def call(self, x, table):
        return tied_logits(x, table)


class UntiedLMHead(Composite):
    """Logits over the vocabulary: a dense layer on the hidden states, which shares nothing with the token embeddings.

    Args:
        vocabulary_size: number of tokens v.
        use_bias: whether the dense layer has a bias.
        kernel_initializer: initializer of the dense layer.

    Call:
        x: float (b, s, m), hidden states.
        table: float (v, m), the token embeddings, which are not used.

    Returns: logits, float (b, s, v).
    """

    def __init__(self, vocabulary_size, use_bias=True, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        dense: dict[str, Any] = dict(use_bias=use_bias, kernel_initializer=kernel_initializer, dtype=self.dtype_policy)
        self.dense = Dense(vocabulary_size, name="dense", **dense)

    def call(self, x, table=None):
        return self.dense(x)


class TiedLMHead(Layer):
    """Logits over the vocabulary: the product of hidden states and token embeddings, plus a bias.

    Call:
        x: float (b, s, m), hidden states.
        table: float (v, m), the token embeddings.

    Returns: logits, float (b, s, v).
    """

    def build(self, x_shape, table_shape):
        self.bias = self.add_weight(name="bias", shape=table_shape[:1], initializer="zeros")

    def call(self, x, table):
        return tied_logits(x, table, self.bias)


class LastTokenHead(Composite):
    """Dropout and one dense layer on the last token, which in a causal model attends to all other tokens.

    Args:
        num_labels: number of logits per sequence.
        dropout: dropout rate before the dense layer.
        kernel_initializer: initializer of the dense layer.
        use_bias: whether the dense layer has a bias.

    Call:
        outputs: dict of the outputs of a backbone, of which `last_output` (b, m) or (b, n, m) is used.

    Returns: logits, float (b, num_labels) or (b, n, num_labels).
    """

    def __init__(self, num_labels, dropout=0.0, kernel_initializer="glorot_uniform", use_bias=True, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.dropout = Dropout(dropout, name="dropout", **common)
        self.dense = Dense(num_labels, use_bias=use_bias, kernel_initializer=kernel_initializer, name="dense", **common)

    def call(self, outputs):
        if outputs.get("last_output") is None:
            raise ValueError(
                "This head reads the last token of each sequence. Received: packed rows (`sequence_ids`) without "
                "`first_positions`. Add `first_positions` (b, n)."
            )
        return self.dense(self.dropout(outputs["last_output"]))
