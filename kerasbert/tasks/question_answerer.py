"""Extractive question answering: where in a context the answer starts and ends."""

import keras

from .task import Task


@keras.saving.register_keras_serializable("kerasbert")
class QuestionAnswerer(Task):
    """Start and end of the answer's span (Devlin et al. 2018, arXiv 1810.04805, section 4.2).

    The loss is the mean of the two cross-entropies. A context without the answer has both at position 0.

    Args:
        backbone: a backbone with a `span` head.
        tokenizer: for text.

    Call:
        inputs: a batch. Targets are {"start": int32 (b,), "end": int32 (b,)}.

    Returns: a dict of logits `start` and `end`, float (b, s).
    """

    def __init__(self, backbone, tokenizer=None, **kwargs):
        super().__init__(backbone, tokenizer, **kwargs)
        self.span = backbone.make_head("span")
        self.build_now()

    def call(self, inputs):
        logits = self.span(self.backbone(inputs))
        return {"start": logits[..., 0], "end": logits[..., 1]}

    def compile(self, optimizer="adamw", loss=None, loss_weights=None, **kwargs):
        if loss is None and loss_weights is None:
            loss_weights = {"start": 0.5, "end": 0.5}
        super().compile(optimizer, loss=loss, loss_weights=loss_weights, **kwargs)

    def default_loss(self):
        return {
            name: keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
            for name in ("start", "end")
        }

    def default_metrics(self):
        return {name: [keras.metrics.SparseCategoricalAccuracy(name="accuracy")] for name in ("start", "end")}
