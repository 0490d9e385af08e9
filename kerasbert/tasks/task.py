"""What fine-tuning tasks have in common: Keras losses and metrics, weighted so that padding rows never count."""

import keras

from ..models.trainable import Trainable


class Task(Trainable):
    """Base of tasks. `compile` may be left out: AdamW with 10% warm-up and linear decay, and the task's own loss.

    A subclass gives `default_loss()` and `default_metrics()`.
    """

    def compile(self, optimizer="adamw", loss=None, metrics=None, weighted_metrics=None, **kwargs):
        """As Keras's `compile`. Losses are means over the sum of the weights, and metrics count by weight, too: the
        last batch of a pass is filled with rows of weight 0."""
        loss = self.default_loss() if loss is None else loss
        if not isinstance(loss, (dict, list, tuple)):
            loss = keras.losses.get(loss)
        if isinstance(loss, keras.losses.Loss) and loss.reduction == "sum_over_batch_size":
            loss.reduction = "mean_with_sample_weight"
        if metrics is None and weighted_metrics is None:
            metrics = self.default_metrics()
        if metrics is not None and weighted_metrics is None:
            metrics, weighted_metrics = None, metrics
        super().compile(optimizer, loss=loss, metrics=metrics, weighted_metrics=weighted_metrics, **kwargs)
