"""What fine-tuning tasks have in common: Keras losses and metrics, weighted so that padding rows never count."""

import keras
import numpy as np

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

    def longest_row(self):
        """Tokens that the backbone takes, up to 512."""
        return min(getattr(self.backbone.config, "max_length", None) or 512, 512)


def label_ids(names, labels):
    """Names or numbers of labels as int32 numbers."""
    ids = {name: i for i, name in enumerate(names)}
    try:
        return np.asarray([ids[label] if isinstance(label, str) else int(label) for label in labels], "int32")
    except KeyError as error:
        raise ValueError(f"Labels must be among {names}. Received: {error.args[0]!r}.") from None


def label_names(labels):
    """The two entries of a Hugging Face config that name labels."""
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }


def with_stored_labels(stored, own):
    """Arguments with `labels` from a config.json that has them, unless they are given."""
    names = stored.get("id2label") or {}
    if "labels" not in own and names:
        return {**own, "labels": [names[key] for key in sorted(names, key=int)]}
    return own
