"""Extractive question answering: predicts where in a context the answer starts and ends."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from ..checkpoints.arguments import Saved
from ..data.batches.bucketing import BucketedBatches, Widths
from ..data.counts import check_counts
from ..data.tasks.answers import answered
from ..data.tasks.questions import QuestionRows
from ..data.tokenizers.tokenizer import Tokenizer
from ..models.backbone import Backbone
from ..training.convert import read_texts
from .task import Task, zipped_columns


@keras.saving.register_keras_serializable("kerasbert")
class QuestionAnswerer(Task):
    """Predicts start and end of an answer in its context (Devlin et al. 2018, arXiv 1810.04805, sections 4.2 and 4.3).

    The loss is the mean of the cross-entropies of start and end. In windows that do not contain the answer, both
    targets are the position of [CLS].

    Args:
        backbone: a backbone with a `span` head.
        max_length: maximum number of tokens per row; longer contexts are split into windows. Default: the maximum
            length of the backbone, at most 384.
        stride: number of tokens between the starts of consecutive windows.
        max_question_length: number of tokens to which questions are truncated.
        max_answer_length: maximum number of tokens in an answer.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch. Targets are {"start": int32 (b,), "end": int32 (b,)}.

    Returns: {"start": logits, "end": logits}, each float (b, s).

    Raises:
        ValueError: if `max_length` exceeds the positions of the backbone, `max_question_length` or `max_answer_length`
            is no integer of at least 1, or the backbone has no `span` head.

    Example:
        >>> from kerasbert.tasks import QuestionAnswerer
        >>> model = QuestionAnswerer.from_preset("bert_mini_en", max_length=64, stride=16)
        >>> questions = [("Where was Ann born?", "Ann was born in Rome."), ("Where is Tom?", "Tom is in Oslo now.")]
        >>> answers = [("Rome", 16), ("Oslo", 10)]  # the text and where it begins
        >>> history = model.fit(questions * 8, answers * 8, batch_size=4, epochs=4, verbose=0)
        >>> model.answer(("Where was Lee born?", "Lee was born in Paris."))["text"]
        'Paris'
    """

    SAVES = ("max_length", "stride", "max_question_length", "max_answer_length")
    SAVED_AS = {"stride": Saved(int, 1)}

    hub_task = "question-answering"
    example_call = 'model.answer([("Who sat?", "The cat sat on the mat.")])'
    pads_as_tokenizer = False  # windows are padded on the right

    def __init__(
        self,
        backbone: Backbone,
        max_length: int | None = None,
        stride: int = 128,
        max_question_length: int = 64,
        max_answer_length: int = 30,
        tokenizer: Tokenizer | None = None,
        **kwargs: Any,
    ):
        super().__init__(backbone, tokenizer, **kwargs)
        check_counts(max_question_length=max_question_length, max_answer_length=max_answer_length)
        self.max_length = self.row_length(max_length, min(self.longest_row(), 384))
        self.stride = stride
        self.max_question_length = max_question_length
        self.max_answer_length = max_answer_length
        self.span = backbone.make_head("span")
        self.build_now()

    def call(self, inputs):
        logits = self.span(self.backbone(inputs))
        return {"start": logits[..., 0], "end": logits[..., 1]}

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer | None = None,
        loss: str | Callable | Sequence | Mapping | None = None,
        loss_weights: Sequence[float] | Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
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

    def examples_of(self, x):
        return zipped_columns(x)

    def question_rows(self, questions):
        lengths = (self.max_length, self.stride, self.max_question_length)
        return QuestionRows(self.require_tokenizer(), list(questions), *lengths)

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Returns batches of windows, each a question with a part of its context.

        Args:
            x: pairs (question, context).
            y: for each pair, a tuple (text of the answer, index of its first character), or None if there is no answer.
        """
        rows = self.question_rows(x)
        weights = None if sample_weight is None else [sample_weight[number] for number in rows.question]
        y = None if y is None else rows.targets(y)
        return self.bucketed_batches(rows.x, y, weights, batch_size, epochs, seed, shuffle)

    def answer(
        self,
        questions: tuple[str, str] | Sequence[tuple[str, str]],
        n_best: int = 1,
        null_threshold: float | None = None,
        batch_size: int = 32,
    ) -> Any:
        """Extracts answers from the contexts.

        Args:
            questions: a pair (question, context), or a list of them.
            n_best: number of answers per question.
            null_threshold: value of `null_odds` above which the answer is empty, as in SQuAD 2.0. `metrics.squad`
                computes the best threshold, which is often slightly below 0. Default: the answer is never empty.
            batch_size: number of windows per batch.

        Returns:
            A dict {"text", "start", "stop", "score", "logit", "null_odds"} for each question. If `n_best` is above 1, a
                list of these dicts, best first. An empty answer has the text "", and start and stop are 0.
                - `text` is `context[start:stop]`.
                - `score` is its probability among the 20 best spans and, with `null_threshold`, the empty answer.
                - `logit` is the sum of its start and end logits.
                - `null_odds` is the logit of the empty answer minus the logit of the best span.

        Raises:
            ValueError: if an input is no pair of a question and a context, a context is empty, `n_best` is below 1,
                `null_threshold` is NaN, a question leaves no space for its context within `max_length`, or the model
                has no tokenizer.
        """
        if isinstance(questions, str):
            raise ValueError(
                f"A question is asked about a context: answer((question, context)). Received: {questions!r:.60} alone."
            )
        if null_threshold is not None and math.isnan(null_threshold):
            raise ValueError(f"`null_threshold` must be a number. Received: {null_threshold}.")
        questions = self.examples_of(read_texts(questions, "answer", "a pair (question, context)"))
        if isinstance(questions, tuple):
            return self.answer([questions], n_best, null_threshold, batch_size)[0]
        check_counts(n_best=n_best, batch_size=batch_size)
        if not len(questions):
            return []
        rows = self.question_rows(questions)
        feed = BucketedBatches(rows.x, batch_size=batch_size, shuffle=False, widths=Widths(self.max_length))
        logits = self.predict(feed, verbose=0)
        options = (n_best, null_threshold, self.max_answer_length)
        answers = answered(rows, logits["start"], logits["end"], *options)
        return answers if n_best > 1 else [best for [best] in answers]

    # === Checks and configuration ===
