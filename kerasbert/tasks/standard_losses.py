"""Adapts Keras losses and metrics to tasks, which return logits, and whose labels are integers or one-hot rows."""

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
# Metrics that give the same result for logits and probabilities, because they only depend on the order of values.
_BY_ORDER = (
    keras.metrics.CategoricalAccuracy,
    keras.metrics.SparseCategoricalAccuracy,
    keras.metrics.SparseTopKCategoricalAccuracy,
    keras.metrics.TopKCategoricalAccuracy,
)
_OF_PROBABILITIES = (keras.losses.KLDivergence, keras.losses.Poisson)
_TABLES = (
    keras.metrics.FBetaScore,
    keras.metrics.AUC,
    keras.metrics.Precision,
    keras.metrics.Recall,
)  # need 2-D inputs


def loss_on_logits(loss, problem="classes"):
    """Adapts a Keras loss to the outputs of a task, and makes it a weighted mean over the rows.

    Losses that support `from_logits` get `from_logits=True`. Labels are converted between integers and one-hot rows as
    the Keras loss requires. Custom losses and loss functions receive targets and outputs unchanged. The given loss
    object is not modified.

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
        other = object.__new__(type(loss))  # `copy.copy` would only work for registered classes
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
    """Adapts a Keras metric to logits and to the format of labels; custom metrics and names are returned unchanged.

    The metric receives probabilities. If it has `from_logits=True` or a threshold of at most 0, it receives logits
    instead.
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
    """Applies `function` to every leaf of a dict, list or tuple, or to a single object."""
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
    if isinstance(metric, _TABLES) and len(y_pred.shape) > 2:  # make every token a row
        rows = (-1, y_pred.shape[-1])
        y_true, y_pred = ops.reshape(y_true, rows), ops.reshape(y_pred, rows)
        sample_weight = None if sample_weight is None else ops.reshape(sample_weight, (-1,))
    return type(metric).update_state(metric, y_true, y_pred, sample_weight=sample_weight)


def _targets(y_true, y_pred, sparse):
    """Converts labels to integers (`sparse`), or to rows with one value per label."""
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
    """Converts a class name: CategoricalCrossentropy -> categorical_crossentropy"""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
