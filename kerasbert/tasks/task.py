"""What fine-tuning tasks have in common: Keras losses and metrics, weighted so that padding rows never count."""

import re

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
            loss = weighted_loss(loss)
        if metrics is None and weighted_metrics is None:
            metrics = self.default_metrics()
        if metrics is not None and weighted_metrics is None:
            metrics, weighted_metrics = None, metrics
        super().compile(optimizer, loss=loss, metrics=metrics, weighted_metrics=weighted_metrics, **kwargs)

    needs_targets = True
    label_head = None  # the kind of head whose outputs are labels

    @classmethod
    def head_to_renew(cls, stored, own):
        if is_of_choices(stored):
            return None if own.get("problem") == "score" else cls.label_head
        theirs = stored_labels(stored)
        ours = ["score"] if own.get("problem") == "score" else own.get("labels")
        if cls.label_head is None or ours is None or not theirs:
            return None
        unnamed = isinstance(ours, int) or all(re.fullmatch(r"LABEL_\d+", name) for name in theirs)
        if unnamed:
            return None if (ours if isinstance(ours, int) else len(ours)) == len(theirs) else cls.label_head
        return None if [str(name) for name in ours] == theirs else cls.label_head

    def longest_row(self):
        """Tokens that the backbone takes, up to 512."""
        return min(getattr(self.backbone.config, "max_length", None) or 512, 512)


def weighted_loss(loss):
    """A Keras loss, or the name of one, as a mean over the sum of the weights; a function as it is."""
    loss = keras.losses.get(loss)
    if isinstance(loss, keras.losses.Loss) and loss.reduction == "sum_over_batch_size":
        loss.reduction = "mean_with_sample_weight"
    return loss


def label_ids(names, labels):
    """Names or numbers of labels as int32 numbers."""
    ids = {name: i for i, name in enumerate(names)}
    found = np.zeros(len(labels), "int32")
    for number, label in enumerate(labels):
        try:
            found[number] = ids[label] if isinstance(label, str) else int(label)
            if not isinstance(label, str) and found[number] != label:
                raise ValueError
        except (KeyError, ValueError, TypeError):
            raise ValueError(
                f"Labels must be among {names}, or their numbers. Received: {label!r}, as label {number}."
            ) from None
    return found


def label_names(labels):
    """The two entries of a Hugging Face config that name labels."""
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }


def with_stored_labels(stored, own):
    """Arguments with `labels` from a config.json that has them, unless they are given."""
    names = stored_labels(stored)
    return {**own, "labels": names} if "labels" not in own and names else own


def is_of_choices(stored):
    """Whether a config.json is that of a head with one output, for choices."""
    return any("MultipleChoice" in name for name in stored.get("architectures") or ())


def stored_labels(stored):
    """The names of labels in a config.json, in their order."""
    names = stored.get("id2label") or {}
    return [names[key] for key in sorted(names, key=int)]
