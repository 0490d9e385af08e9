"""What pretraining objectives have in common: their own loss, and one weighted mean that is right everywhere."""

import keras
from keras import ops

from ..backend.distribution import num_replicas
from ..models.trainable import Trainable


def cross_entropy(logits, labels):
    """-log softmax(logits)[labels] in float32.

    Call:
        logits: float (..., v).
        labels: int32 (...), in [0, v).

    Returns: float32 (...), nats.
    """
    logits = ops.cast(logits, "float32")
    chosen = ops.take_along_axis(logits, ops.cast(labels, "int32")[..., None], axis=-1)
    return ops.logsumexp(logits, axis=-1) - ops.squeeze(chosen, axis=-1)


def weighted_mean(values, weights, normalizer=None):
    """sum(w * values) / sum(w), and 0 when all weights are 0.

    With a `normalizer` (the batch key `loss_normalizer`) the sum is divided by sum(normalizer) instead: the share of
    this micro-batch or replica in the mean of the whole update.

    Call:
        values, weights: float32 of one shape.
        normalizer: float32 (b,), or None.

    Returns: float32 scalar.
    """
    total = ops.sum(weights) if normalizer is None else ops.sum(ops.cast(normalizer, "float32"))
    some = total > 0
    mean = ops.sum(weights * values) / ops.where(some, total, 1.0)
    return ops.where(some, mean, 0.0)


class Perplexity(keras.metrics.Mean):
    """exp of the weighted mean of nats over the whole epoch."""

    def result(self):
        return ops.exp(super().result())


class Objective(Trainable):
    """Base of pretraining objectives: the loss is the objective's own, so `compile` takes an optimizer only."""

    default_learning_rate = 1e-4

    def compile(self, optimizer, loss=None, metrics=None, **kwargs):
        if loss is not None:
            raise ValueError(
                f"{type(self).__name__} computes its own loss. Received: loss={loss!r}. Use compile(optimizer)."
            )
        super().compile(optimizer, metrics=metrics, **kwargs)

    def mean_loss(self, x, values, weights, target=None):
        """`weighted_mean` of one target, by the batch's `loss_normalizer`, scaled for tf.distribute's sum."""
        normalizer = x.get("loss_normalizer")
        if isinstance(normalizer, dict):
            normalizer = normalizer[target]
        return weighted_mean(values, weights, normalizer) / num_replicas()
