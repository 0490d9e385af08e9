"""Standard Keras losses and metrics on the outputs of tasks, which are logits, and on labels as numbers or one-hot."""

import functools
import inspect

import keras
from keras import ops

_SPARSE = (
    keras.losses.SparseCategoricalCrossentropy,
    keras.metrics.SparseCategoricalCrossentropy,
    keras.metrics.SparseCategoricalAccuracy,
    keras.metrics.SparseTopKCategoricalAccuracy,
)
# What reads logits as well as probabilities: only their order counts.
_BY_ORDER = (
    keras.metrics.CategoricalAccuracy,
    keras.metrics.SparseCategoricalAccuracy,
    keras.metrics.SparseTopKCategoricalAccuracy,
    keras.metrics.TopKCategoricalAccuracy,
)
_OF_PROBABILITIES = (keras.losses.KLDivergence, keras.losses.Poisson)
_TABLES = (keras.metrics.FBetaScore, keras.metrics.AUC, keras.metrics.Precision, keras.metrics.Recall)  # (rows, labels)


def loss_on_logits(loss, problem="classes"):
    """A Keras loss, or the name of one, that reads the outputs of a task, as a mean over the sum of the weights.

    Losses that can read logits are told that the outputs are logits. Labels are converted from numbers to one-hot rows
    and back, as a loss of Keras wants them; a loss of other classes, and a function, gets targets and outputs as they
    are. The loss that was given is not changed.

    Args:
        loss: a `keras.losses.Loss`, a name such as "categorical_crossentropy", a function, or None.
        problem: "classes", "labels" or "score".
    """
    if isinstance(loss, str):
        names = {_snake_case(name): cls for name, cls in inspect.getmembers(keras.losses, inspect.isclass)}
        loss = names[loss]() if loss in names else keras.losses.get(loss)
    if not isinstance(loss, keras.losses.Loss):
        return loss
    if not _is_of_keras(loss):
        other = object.__new__(type(loss))  # `copy` would need a class that Keras can load
        other.__dict__.update(loss.__dict__)
        other.reduction = _by_weights(loss.reduction)
        return other
    config = loss.get_config()
    changes = {"reduction": _by_weights(loss.reduction)}
    if "from_logits" in config:
        changes["from_logits"] = True
    loss = type(loss).from_config({**config, **changes})
    if problem != "score":
        activation = problem if isinstance(loss, _OF_PROBABILITIES) else None
        loss.call = functools.partial(_call_loss, loss, activation)
    return loss


def metric_on_logits(metric, problem="classes"):
    """A Keras metric that is given probabilities and labels as it wants them; other metrics, and names, as they are.

    Metrics with `from_logits=True`, and with a threshold of 0 or below, are given the logits.
    """
    if not isinstance(metric, keras.metrics.Metric) or not _is_of_keras(metric) or problem == "score":
        return metric
    config = metric.get_config()
    thresholds = config.get("thresholds", config.get("threshold"))
    thresholds = [] if thresholds is None else thresholds if isinstance(thresholds, (list, tuple)) else [thresholds]
    reads_logits = config.get("from_logits") or isinstance(metric, _BY_ORDER)
    reads_logits = reads_logits or (not isinstance(metric, keras.metrics.AUC) and any(t <= 0 for t in thresholds))
    metric.update_state = functools.partial(_update_metric, metric, None if reads_logits else problem)
    return metric


def mapped(function, structure):
    """`function` of every leaf of a dict, list or tuple, or of the one object that it is."""
    if isinstance(structure, dict):
        return {name: mapped(function, part) for name, part in structure.items()}
    if isinstance(structure, (list, tuple)):
        return [mapped(function, part) for part in structure]
    return function(structure)


def _call_loss(loss, activation, y_true, y_pred):
    targets = _targets(y_true, y_pred, isinstance(loss, _SPARSE))
    return type(loss).call(loss, targets, _activated(y_pred, activation))


def _update_metric(metric, activation, y_true, y_pred, sample_weight=None):
    y_true = _targets(y_true, y_pred, isinstance(metric, _SPARSE))
    y_pred = _activated(y_pred, activation)
    if isinstance(metric, _TABLES) and len(y_pred.shape) > 2:  # a row for every token
        rows = (-1, y_pred.shape[-1])
        y_true, y_pred = ops.reshape(y_true, rows), ops.reshape(y_pred, rows)
        sample_weight = None if sample_weight is None else ops.reshape(sample_weight, (-1,))
    return type(metric).update_state(metric, y_true, y_pred, sample_weight=sample_weight)


def _targets(y_true, y_pred, sparse):
    """Labels as numbers, or as rows of one value a label."""
    y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
    width, is_sparse = y_pred.shape[-1], len(y_true.shape) < len(y_pred.shape)
    if len(y_true.shape) == len(y_pred.shape) and y_true.shape[-1] == 1 and width != 1:
        y_true, is_sparse = y_true[..., 0], True
    if sparse and not is_sparse:
        return ops.argmax(y_true, axis=-1)
    return ops.one_hot(ops.cast(y_true, "int32"), width) if is_sparse and not sparse else y_true


def _activated(y_pred, activation):
    if activation is None:
        return y_pred
    y_pred = ops.cast(y_pred, "float32")
    return ops.softmax(y_pred, axis=-1) if activation == "classes" else ops.sigmoid(y_pred)


def _is_of_keras(loss_or_metric):
    return type(loss_or_metric).__module__.partition(".")[0] == "keras"


def _by_weights(reduction):
    return "mean_with_sample_weight" if reduction == "sum_over_batch_size" else reduction


def _snake_case(name):
    """CategoricalCrossentropy -> categorical_crossentropy"""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
