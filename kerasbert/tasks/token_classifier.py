"""A label for every token."""

import keras
import numpy as np

from .task import Task


@keras.saving.register_keras_serializable("kerasbert")
class TokenClassifier(Task):
    """Tags tokens (Devlin et al. 2018, arXiv 1810.04805, section 5.3): one dense layer on every hidden state.

    Args:
        backbone: a backbone with a `tagger` head.
        labels: the names of the labels in the order of the outputs, or how many there are.
        tokenizer: for text.

    Call:
        inputs: a batch. Targets are int32 (b, s); tokens that carry no label have sample_weight 0.

    Returns: logits, float (b, s, number of labels).
    """

    def __init__(self, backbone, labels=2, tokenizer=None, **kwargs):
        super().__init__(backbone, tokenizer, **kwargs)
        self.labels = [f"LABEL_{i}" for i in range(labels)] if isinstance(labels, int) else [str(n) for n in labels]
        self.tagger = backbone.make_head("tagger", num_labels=len(self.labels))
        self.build_now()

    def call(self, inputs):
        return self.tagger(self.backbone(inputs))

    def default_loss(self):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def default_metrics(self):
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    def check_batch(self, x, y=None, sample_weight=None):
        super().check_batch(x, y, sample_weight)
        if y is None:
            return
        counted = np.asarray(y) if sample_weight is None else np.asarray(y)[np.asarray(sample_weight) > 0]
        if counted.size and not (counted.min() >= 0 and counted.max() < len(self.labels)):
            wrong = counted.max() if counted.max() >= len(self.labels) else counted.min()
            raise ValueError(
                f"Labels must be between 0 and {len(self.labels) - 1}, or have weight 0. Received: {wrong}."
            )

    def arguments(self):
        return {"labels": self.labels}

    def config_extras(self):
        return label_names(self.labels)

    @classmethod
    def arguments_from_config(cls, stored, own):
        return with_stored_labels(stored, own)


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
