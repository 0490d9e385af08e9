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
# The losses of Keras that make sense on the outputs of each problem. Other ones would train something else silently.
_OF_PROBLEM = {
    "classes": (
        keras.losses.SparseCategoricalCrossentropy,
        keras.losses.CategoricalCrossentropy,
        keras.losses.CategoricalFocalCrossentropy,
        keras.losses.CategoricalHinge,
        *_OF_PROBABILITIES,
    ),
    "labels": (
        keras.losses.BinaryCrossentropy,
        keras.losses.BinaryFocalCrossentropy,
        keras.losses.Hinge,
        keras.losses.SquaredHinge,
        *_OF_PROBABILITIES,
    ),
    "score": (
        keras.losses.MeanSquaredError,
        keras.losses.MeanAbsoluteError,
        keras.losses.MeanAbsolutePercentageError,
        keras.losses.MeanSquaredLogarithmicError,
        keras.losses.Huber,
        keras.losses.LogCosh,
        keras.losses.BinaryCrossentropy,
        keras.losses.BinaryFocalCrossentropy,
        keras.losses.Hinge,
        keras.losses.SquaredHinge,
    ),
}
_OUTPUTS = {
    "classes": "one logit for each class, of which one is right",
    "labels": "one logit for each label, of which any number are right",
    "score": "a score",
}
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
    loss = _as_object(loss)
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


def check_loss(loss, problem, default):
    """Raises a ValueError if a loss that was passed to `compile` is one of Keras for another problem.

    Args:
        loss, problem: as in `loss_on_logits`, or a list or dict of losses.
        default: the default losses of the task. If they are not of the problem, the task has outputs of its own kind.
    """
    fitting = _OF_PROBLEM[problem]
    if any(type(part) not in fitting for part in keras.tree.flatten(default)):
        return
    for part in map(_as_object, keras.tree.flatten(loss)):
        if isinstance(part, keras.losses.Loss) and _is_of_keras(part) and type(part) not in fitting:
            raise ValueError(
                f"The loss must fit the outputs of the model, which are {_OUTPUTS[problem]}. Received: "
                f"{type(part).__name__}. Use {', '.join(cls.__name__ for cls in fitting)}, or a function of your own."
            )


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


def _as_object(loss):
    """Returns the `Loss` for a name or a function of Keras, such as "mse". Any other loss is returned unchanged."""
    found = keras.losses.get(loss) if isinstance(loss, str) else loss
    if not inspect.isfunction(found) or found.__module__.partition(".")[0] != "keras":
        return found
    classes = {name.lower(): cls for name, cls in inspect.getmembers(keras.losses, inspect.isclass)}
    return classes[found.__name__.replace("_", "")]()


def _is_of_keras(loss_or_metric):
    return type(loss_or_metric).__module__.partition(".")[0] == "keras"


def _by_weights(reduction):
    return "mean_with_sample_weight" if reduction == "sum_over_batch_size" else reduction
