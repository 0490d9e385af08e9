"""A head that uses the hidden states of a frozen backbone as features (feature extraction)."""

import contextlib
import inspect
from typing import Any

import keras
from keras import ops

from ..backend.gradients import no_gradients
from ..layers.composite import Layer
from ..layers.dropout import Dropout
from ..layers.masks import real_tokens

COMBINATIONS = ("mix", "concatenate")


def feature_options(features):
    """Converts a task's `features` to a dict of `combine`, `layers` and `lstm_dim`, with defaults filled in.

    "concatenate" -> {"combine": "concatenate", "layers": 4, "lstm_dim": 0}
    """
    given = {"combine": features} if isinstance(features, str) else dict(features)
    options = {"combine": "mix", "layers": None, "lstm_dim": 0, **given}
    if options["combine"] not in COMBINATIONS or len(options) > 3:
        raise ValueError(
            f"`features` must be one of {', '.join(COMBINATIONS)}, or a dict of `combine`, `layers` and `lstm_dim`. "
            f"Received: {features!r}."
        )
    if options["layers"] is None and options["combine"] == "concatenate":
        options["layers"] = 4
    return options


class FeatureHead(Layer):
    """Predicts labels from frozen hidden states (Devlin et al. 2018, section 5.3; Peters et al. 2018).

    The hidden states of several layers are combined in one of two ways. "mix" is their sum, weighted by a softmax of
    learned parameters and multiplied by a learned scale, as in ELMo. "concatenate" concatenates them. The best result
    in the BERT paper concatenates the last four layers and uses a two-layer bidirectional LSTM with 768 units per
    direction.

    Args:
        num_labels: number of labels.
        combine: "mix" or "concatenate".
        layers: number of layers whose hidden states are used, counted from the last. Default: all.
        lstm_dim: number of units in each direction of two bidirectional LSTM layers; 0 for no LSTM.
        pool: whether the features are averaged over the tokens, for labels of whole texts.
        dropout: dropout rate before the LSTM, and before the output layer.

    Call:
        states: list of hidden states, each float (b, s, m).
        real: bool (b, s), True at tokens that are not padding.

    Returns: logits, float (b, s, num_labels), or (b, num_labels) with `pool`.
    """

    def __init__(self, num_labels, combine="mix", layers=None, lstm_dim=0, pool=False, dropout=0.1, **kwargs):
        super().__init__(**kwargs)
        arguments: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.combine = combine
        self.num_layers = layers
        self.pool = pool
        self.input_dropout = Dropout(dropout, name="input_dropout", **arguments) if lstm_dim else None
        self.recurrences = [
            keras.layers.Bidirectional(
                keras.layers.LSTM(lstm_dim, return_sequences=True, name="lstm", **arguments),
                name=f"lstm_{i}",
                **arguments,
            )
            for i in range(2 if lstm_dim else 0)
        ]
        self.dropout = Dropout(dropout, name="dropout", **arguments)
        self.dense = keras.layers.Dense(num_labels, name="dense", **arguments)

    def build(self, states_shape, real_shape=None):
        count = len(states_shape)
        if self.num_layers is not None and not 0 < self.num_layers <= count:
            raise ValueError(
                f"`layers` must lie between 1 and {count}, the number of hidden states. Received: {self.num_layers}."
            )
        if self.combine == "mix":
            self.mix = self.add_weight(name="mix", shape=(self.num_layers or count,), initializer="zeros")
            self.scale = self.add_weight(name="scale", shape=(), initializer="ones")

    def call(self, states, real):
        states = states[-(self.num_layers or len(states)) :]
        if self.combine == "concatenate":
            x = ops.concatenate(states, axis=-1)
        else:
            shares = ops.softmax(ops.cast(self.mix, "float32"))
            x = sum(ops.cast(shares[i], state.dtype) * state for i, state in enumerate(states))
            x = ops.cast(self.scale, x.dtype) * x
        if self.recurrences:
            x = self.input_dropout(x)
        for recurrence in self.recurrences:
            x = recurrence(x, mask=real)
        if self.pool:
            weights = ops.cast(real, x.dtype)[:, :, None]
            x = ops.sum(x * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1)
        return self.dense(self.dropout(x))


def hidden_states(backbone, inputs, training=None, frozen=True):
    """Computes the features for a `FeatureHead`.

    Args:
        backbone: a backbone.
        inputs: a batch.
        training: whether dropout is applied, unless `frozen`.
        frozen: whether the backbone is used without dropout and without gradients.

    Returns: (list of hidden states float (b, s, m), bool (b, s), True at tokens that are not padding).
    """
    frozen = frozen or not backbone.trainable
    options = {"hidden_states": True} if "hidden_states" in inspect.signature(backbone.call).parameters else {}
    with no_gradients() if frozen else contextlib.nullcontext():
        outputs = backbone(inputs, training=training and not frozen, **options)
    if frozen:
        outputs = keras.tree.map_structure(ops.stop_gradient, outputs)
    states = outputs.get("hidden_states") or [outputs["sequence_output"]]
    states = states["encoder"] if isinstance(states, dict) else states
    real = outputs.get("real_tokens")
    real = real_tokens(inputs) if real is None else real
    return list(states), ops.ones(ops.shape(states[0])[:2], "bool") if real is None else real
