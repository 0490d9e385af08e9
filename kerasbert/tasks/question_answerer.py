"""Extractive question answering: where in a context the answer starts and ends."""

import dataclasses

import keras

from ..core.feeding import check_texts
from ..data.batches.bucketing import BucketedBatches
from ..data.tasks.questions import QuestionRows
from .task import Task


@keras.saving.register_keras_serializable("kerasbert")
class QuestionAnswerer(Task):
    """Start and end of the answer's span (Devlin et al. 2018, arXiv 1810.04805, sections 4.2 and 4.3).

    The loss is the mean of the two cross-entropies. A window without the answer has both at [CLS].

    Args:
        backbone: a backbone with a `span` head.
        max_length: tokens of a row; longer contexts are read in windows. Default: what the backbone takes, up to 384.
        stride: tokens from one window to the next.
        max_question_length: tokens to which questions are cut.
        max_answer_length: tokens of the longest answer.
        tokenizer: for text.

    Call:
        inputs: a batch. Targets are {"start": int32 (b,), "end": int32 (b,)}.

    Returns: a dict of logits `start` and `end`, float (b, s).
    """

    def __init__(
        self,
        backbone,
        max_length=None,
        stride=128,
        max_question_length=64,
        max_answer_length=30,
        tokenizer=None,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, **kwargs)
        self.max_length = max_length or min(self.longest_row(), 384)
        self.stride = stride
        self.max_question_length = max_question_length
        self.max_answer_length = max_answer_length
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

    # === Text ===

    def question_rows(self, questions):
        lengths = (self.max_length, self.stride, self.max_question_length)
        return QuestionRows(self.require_tokenizer(), list(questions), *lengths)

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """`x`: pairs (question, context); `y`: (text, first character) of each answer, or None where there is none."""
        rows = self.question_rows(x)
        weights = None if sample_weight is None else [sample_weight[number] for number in rows.question]
        y = None if y is None else rows.targets(y)
        return BucketedBatches(rows.x, y, weights, batch_size, epochs, seed, shuffle, limit=self.max_length)

    def answer(self, questions, n_best=1, null_threshold=None, batch_size=32):
        """Answers out of the contexts.

        Args:
            questions: a pair (question, context), or a list of them.
            n_best: answers a question.
            null_threshold: odds of no answer above which there is none (SQuAD 2.0; the best value, often a little below
                0, is that of `metrics.squad`). Default: there always is one.
            batch_size: windows a batch.

        Returns: for each question {"text", "start", "stop", "score", "logit", "null_odds"}, where `text` is
            `context[start:stop]` and `score` its share of the probability among the 20 best spans; or a list of them,
            best first, for `n_best` above 1. Without an answer the text is "" and start and stop are 0.
        """
        check_texts(questions, "answer", "a pair (question, context)")
        if isinstance(questions, tuple):
            return self.answer([questions], n_best, null_threshold, batch_size)[0]
        if n_best < 1:
            raise ValueError(f"`n_best` must be at least 1. Received: {n_best}.")
        if not len(questions):
            return []
        rows = self.question_rows(questions)
        feed = BucketedBatches(rows.x, batch_size=batch_size, shuffle=False, limit=self.max_length)
        logits = self.predict(feed, verbose=0)
        answers = []
        found = rows.answers(logits["start"], logits["end"], max(20, n_best), self.max_answer_length)
        for spans, odds in found:
            best = [{**dataclasses.asdict(span), "null_odds": odds} for span in spans[:n_best]]
            if null_threshold is not None and odds > null_threshold:
                none = dict(text="", start=0, stop=0, score=1.0, logit=spans[0].logit + odds, null_odds=odds)
                best = [none, *best][:n_best]
            answers.append(best if n_best > 1 else best[0])
        return answers

    # === What this task says of itself ===

    def arguments(self):
        names = ("max_length", "stride", "max_question_length", "max_answer_length")
        return {name: getattr(self, name) for name in names}
