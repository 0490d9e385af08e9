"""Base classes of pretraining objectives, and weighted means for their losses and metrics."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
from keras import ops

from ..backend.distribution import num_replicas
from ..backend.gradients import cross_entropy  # noqa: F401  (imported from here by the objectives)
from ..layers.masks import real_tokens
from ..models.backbone import Backbone
from ..training.trainable import Trainable


def predicted_correctly(logits, labels):
    """Returns 1.0 where the label is the argmax of the logits, and 0.0 elsewhere.

    If several tokens have the highest logit, the argmax is the lowest of their ids.

    Args:
        logits: float (..., v).
        labels: int32 (...).

    Returns: float32 (...).
    """
    labels = ops.cast(labels, "int32")
    if keras.backend.backend() != "jax":
        return ops.cast(ops.equal(ops.cast(ops.argmax(logits, axis=-1), "int32"), labels), "float32")
    # On a CPU, XLA takes five times as long for `argmax` as for a comparison of every logit with that of the label.
    label = labels[..., None]
    chosen = ops.take_along_axis(logits, label, axis=-1)
    at_or_after = ops.arange(logits.shape[-1]) >= label
    return ops.cast(ops.all((logits < chosen) | ((logits == chosen) & at_or_after), axis=-1), "float32")


def weighted_mean(values: Any, weights: Any, normalizer: Any = None) -> Any:
    """Returns sum(weights * values) / sum(weights), or 0 if all weights are 0.

    With a `normalizer`, the denominator is sum(normalizer) instead. The result is then the contribution of this
    micro-batch or replica to the mean over the whole update.

    Args:
        values, weights: float32 arrays of the same shape.
        normalizer: float32 (b,), the `loss_normalizer` of the batch, or None.

    Returns: float32 scalar.
    """
    total = ops.sum(weights) if normalizer is None else ops.sum(ops.cast(normalizer, "float32"))
    some = total > 0
    mean = ops.sum(weights * values) / ops.where(some, total, 1.0)
    return ops.where(some, mean, 0.0)


class WeightedMean(keras.metrics.Mean):
    """Metric that computes the weighted mean of all values in an epoch.

    `keras.metrics.Mean`, by contrast, first averages each row, so that values in short rows count more than others.
    """

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        values = ops.convert_to_tensor(values)
        if sample_weight is not None:
            sample_weight = ops.reshape(ops.broadcast_to(sample_weight, ops.shape(values)), (-1,))
        super().update_state(ops.reshape(values, (-1,)), sample_weight)


class Perplexity(WeightedMean):
    """Metric that computes exp of the weighted mean of all losses (in nats) in an epoch."""

    def result(self):
        return ops.exp(super().result())


def slot_weights(x, labels, sample_weight=None):
    """Computes the weight of each prediction, float32, in the shape of the labels (b, p).

    Args:
        x: the inputs of a batch.
        labels: int32 (b, p).
        sample_weight: float (b, p), which is returned unchanged, or one weight per row, float (b,), or None. In the
            last two cases, unused entries of the `masked_positions` (-1) have weight 0.
    """
    if sample_weight is None or len(sample_weight.shape) < len(labels.shape):
        positions = x.get("masked_positions")
        used = ops.ones_like(labels) if positions is None else positions >= 0
        used = ops.cast(used, "float32")
        return used if sample_weight is None else used * ops.cast(sample_weight, "float32")[:, None]
    return ops.cast(sample_weight, "float32")


def token_weights(x, sample_weight=None):
    """Computes the weight of each token, float32 (b, s): 0 at padding, and otherwise the given weight or 1.

    Args:
        x: the inputs of a batch.
        sample_weight: float (b, s), or one weight per row, float (b,), or None.
    """
    real = real_tokens(x)
    weights = ops.ones_like(x["token_ids"], "float32") if real is None else ops.cast(real, "float32")
    if sample_weight is None:
        return weights
    given = ops.cast(sample_weight, "float32")
    return weights * (given[:, None] if len(given.shape) == 1 else given)


def check_labels(labels, vocabulary_size):
    """Raises a ValueError if `labels`, a numpy array or None, contains token ids outside the vocabulary."""
    if labels is not None and labels.size and not (labels.min() >= 0 and labels.max() < vocabulary_size):
        wrong = labels.max() if labels.max() >= vocabulary_size else labels.min()
        raise ValueError(f"Labels must be between 0 and {vocabulary_size - 1} (vocabulary_size). Received: {wrong}.")


def check_targets(shapes, y, sample_weight=None):
    """Raises a ValueError for targets or weights of the wrong shape, which might otherwise be broadcast.

    Args:
        shapes: {name of a target: its shape}.
        y: a dict of arrays with these names, or an array.
        sample_weight: a dict of arrays with these names, or an array, or None.
    """
    for name, shape in shapes.items():
        label = f"`{name}` of y" if isinstance(y, dict) else "y"
        target = y.get(name) if isinstance(y, dict) else y
        if target is None or tuple(target.shape) != tuple(shape):
            received = "none" if target is None else f"shape {tuple(target.shape)}"
            raise ValueError(f"{label} must have the shape {tuple(shape)} for this batch. Received: {received}.")
        weights = sample_weight.get(name) if isinstance(sample_weight, dict) else sample_weight
        if weights is not None and tuple(weights.shape) not in (tuple(shape), tuple(shape[:1])):
            raise ValueError(
                f"Weights of {label} must have its shape, {tuple(shape)}, or one value per row, ({shape[0]},). "
                f"Received: shape {tuple(weights.shape)}."
            )


def slot_shape(x):
    """Returns the shape of the predictions: the shape of `masked_positions` if the batch has it, or of `token_ids`."""
    slots = x.get("masked_positions")
    return x["token_ids"].shape if slots is None else slots.shape


def as_objective(source, cls, **arguments):
    """Returns an objective of class `cls`.

    Args:
        source: an objective of this class, which is returned unchanged, or a backbone, or a folder.
        cls: the class.
        **arguments: arguments of the class, for a backbone or a folder.
    """
    if isinstance(source, cls):
        return source
    if isinstance(source, (str, Path)):
        return cls.from_preset(source, **arguments)
    if not isinstance(source, Backbone):
        raise ValueError(f"Expected a {cls.__name__}, a backbone or a folder. Received: {type(source).__name__}.")
    return cls(source, **arguments)


def _rows_with_weight(weights: Any) -> Any:
    found: Any = weights != 0
    while len(found.shape) > 1:
        found = ops.any(found, axis=-1)
    return found


class Objective(Trainable):
    """Base class of pretraining objectives, which compute their loss themselves.

    Raises:
        ValueError: if `compile` gets a `loss`.
    """

    default_learning_rate = 1e-4

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer,
        loss: None = None,
        metrics: Sequence | Mapping | None = None,
        **kwargs: Any,
    ) -> None:
        if loss is not None:
            raise ValueError(
                f"{type(self).__name__} computes its own loss. Received: loss={loss!r}. Use compile(optimizer)."
            )
        super().compile(optimizer, metrics=metrics, **kwargs)

    def target_shapes(self, x):
        """Returns {name: shape} of the targets for a batch x.

        The targets y are a dict with these names, or an array if there is only one target.
        """
        return {}

    def check_batch(self, x, y=None, sample_weight=None):
        super().check_batch(x, y, sample_weight)
        if y is not None:
            check_targets(self.target_shapes(x), y, sample_weight)

    def batch_weight(self, x: Any, sample_weight: Any) -> Any:
        """The number of rows in which a weight is not 0. Micro-batches of an update count alike."""
        if sample_weight is None or "loss_normalizer" in x:
            return None
        real = functools.reduce(ops.logical_or, map(_rows_with_weight, keras.tree.flatten(sample_weight)))
        return ops.sum(ops.cast(real, "float32"))

    def mean_loss(self, x, values, weights, target=None):
        """Computes the mean loss of one target, divided by the number of replicas, because tf.distribute sums losses.

        If the batch has a `loss_normalizer`, it is the normalizer of the `weighted_mean`. A normalizer that is not a
        dict applies to the predicted tokens only. Other targets are then averaged within each micro-batch.

        Args:
            x: the inputs of the batch.
            values, weights: float32 arrays of the same shape, the losses and their weights.
            target: name of the target, or None if there is only one.
        """
        normalizer = x.get("loss_normalizer")
        if isinstance(normalizer, dict):
            normalizer = normalizer.get(target)
        elif target not in (None, "tokens"):
            normalizer = None
        return weighted_mean(values, weights, normalizer) / num_replicas()


class PairObjective(Objective):
    """Base class of objectives that consist of two other objectives, whose attribute names are listed in `PARTS`."""

    PARTS = ()

    def trained_parts(self):
        return [getattr(self, part) for part in self.PARTS]

    def get_config(self):
        config = super().get_config()
        del config["backbone"]
        return {**config, **{part: keras.saving.serialize_keras_object(getattr(self, part)) for part in self.PARTS}}

    @classmethod
    def from_config(cls, config):
        config = {**config, **{part: keras.saving.deserialize_keras_object(config[part]) for part in cls.PARTS}}
        if isinstance(config.get("dtype"), dict):
            config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
        return cls(**config)
