"""Choosing among several continuations of one context."""

import keras
from keras import ops

from .task import Task


@keras.saving.register_keras_serializable("kerasbert")
class MultipleChoice(Task):
    """A score for each choice, softmax over the choices (Devlin et al. 2018, arXiv 1810.04805, section 4.4).

    Each choice is encoded with its context as a row of its own.

    Args:
        backbone: a backbone with a `choice` head.
        tokenizer: for text.

    Call:
        inputs: a batch whose `token_ids`, `padding_mask` and `segment_ids` are (b, c, s), and `lengths` (b, c).
            Targets are int32 (b,).

    Returns: logits, float (b, c).
    """

    def __init__(self, backbone, tokenizer=None, **kwargs):
        super().__init__(backbone, tokenizer, **kwargs)
        self.choice = backbone.make_head("choice")
        self.build_now()

    def example_inputs(self):
        return {key: array[:, None] for key, array in self.backbone.example_inputs().items()}

    def call(self, inputs):
        choices = inputs["token_ids"].shape[1]
        rows = {key: ops.reshape(array, (-1, *ops.shape(array)[2:])) for key, array in inputs.items()}
        return ops.reshape(self.choice(self.backbone(rows)), (-1, choices))

    def default_loss(self):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def default_metrics(self):
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    @classmethod
    def needs_pooler(cls, family, own):
        return "choice" in family.POOLED_HEADS
