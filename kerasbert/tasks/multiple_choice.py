"""Multiple choice: selects one of several continuations of a context."""

from collections.abc import Sequence
from typing import Any, overload

import keras
import numpy as np
from keras import ops

from ..data.columns import values_of
from ..data.tasks.choices import encode_choices
from ..data.tokenizers.tokenizer import Tokenizer
from ..layers.masks import real_tokens
from ..models.backbone import Backbone
from ..training.convert import read_texts
from .task import Task, as_rows, check_texts_together, is_of_choices, stored_labels, zipped_columns

NOT_THERE = -3e4  # logit of padding choices; representable in float16


@keras.saving.register_keras_serializable("kerasbert")
class MultipleChoice(Task):
    """Scores each choice, with a softmax over all choices (Devlin et al. 2018, arXiv 1810.04805, section 4.4).

    Each choice is encoded as a separate row, together with the context.

    Args:
        backbone: a backbone with a `choice` head.
        max_length: maximum number of tokens per row. Default: the maximum length of the backbone, at most 512.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch whose `token_ids`, `padding_mask` and `segment_ids` are (b, c, s), and whose `lengths` are
            (b, c). Choices that consist of padding only are never predicted. Targets are int32 (b,).

    Returns: logits, float (b, c).

    Raises:
        ValueError: if `max_length` exceeds the positions of the backbone, or the backbone has no `choice` head.

    Example:
        >>> from kerasbert.tasks import MultipleChoice
        >>> model = MultipleChoice.from_preset("bert_mini_en")
        >>> examples = [("Ann opens the door", ["and goes home.", "and drinks the street."])]
        >>> examples += [("Tom takes the bus", ["and folds the rain.", "and calls a friend."])]
        >>> history = model.fit(examples * 4, [0, 1] * 4, batch_size=4, epochs=6, verbose=0)
        >>> model.choose(("Lee opens the door", ["and folds the rain.", "and goes home."]))["text"]
        'and goes home.'
    """

    SAVES = ("max_length",)

    hub_task = "multiple-choice"
    example_call = 'model.choose([("The cat", ["sat.", "barked."])])'

    def __init__(
        self, backbone: Backbone, max_length: int | None = None, tokenizer: Tokenizer | None = None, **kwargs: Any
    ):
        super().__init__(backbone, tokenizer, **kwargs)
        self.max_length = self.row_length(max_length, self.longest_row())
        self.choice = backbone.make_head("choice")
        self.build_now()

    @classmethod
    def head_to_renew(cls, stored, settings):
        """Discards stored heads with several labels. A head with one output, such as a ranker's, can score choices."""
        return "choice" if len(stored_labels(stored)) > 1 and not is_of_choices(stored) else None

    def example_inputs(self):
        return {key: array[:, None] for key, array in self.backbone.example_inputs().items()}

    def call(self, inputs):
        choices = ops.shape(inputs["token_ids"])[1]
        rows = as_rows(inputs)
        logits = ops.reshape(self.choice(self.backbone.summarize(rows)), (-1, choices))
        real = real_tokens(rows)
        if real is None:
            return logits
        return ops.where(ops.reshape(ops.any(real, axis=-1), (-1, choices)), logits, NOT_THERE)

    def inputs_of_backbone(self, x):
        check_texts_together(x, "(b, c, s), for examples of c choices")
        return as_rows(x)

    def default_loss(self):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def default_metrics(self):
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    # === Text ===

    def examples_of(self, x):
        return zipped_columns(x)

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Returns batches of multiple-choice examples.

        Args:
            x: tuples (context, choices) or (passage, question, choices).
            y: the index of the correct choice of each example.
        """
        encoded = encode_choices(self.require_tokenizer(), list(x), self.max_length)
        y = None if y is None else self.encode_labels(y)
        return self.bucketed_batches(encoded, y, sample_weight, batch_size, epochs, seed, shuffle)

    def encode_labels(self, labels):
        """Checks the indices of the correct choices, and converts them to int32 (n,).

        Raises:
            ValueError: if they are not integers, one per example.
        """
        labels = np.asarray(values_of(labels, "targets"))
        wrong = np.flatnonzero(~np.isfinite(labels) | (labels % 1 != 0)) if labels.dtype.kind in "iufb" else [0]
        if labels.ndim != 1 or len(wrong):
            received = f"{labels[wrong[0]]!r}, for example {wrong[0]}" if labels.ndim == 1 else f"shape {labels.shape}"
            raise ValueError(f"The correct choices must be integers, one per example. Received: {received}.")
        return labels.astype("int32")

    @overload
    def choose(self, examples: tuple, batch_size: int = ...) -> dict[str, Any]: ...

    @overload
    def choose(self, examples: Sequence[tuple], batch_size: int = ...) -> list[dict[str, Any]]: ...

    def choose(self, examples: tuple | Sequence[tuple], batch_size: int = 32):
        """Selects the best choice of each example.

        Args:
            examples: a tuple (context, choices) or (passage, question, choices), where `choices` is a list of str; or a
                list of such tuples.
            batch_size: number of examples per batch.

        Returns: a dict {"choice", "text", "score", "scores"} for each example: index, text and probability of the best
            choice, and the probabilities of all choices.

        Raises:
            ValueError: if an example is no such tuple of str, has fewer than two choices, or there is no tokenizer.
        """
        examples = self.examples_of(read_texts(examples, "choose", "a tuple (context, choices)"))
        if isinstance(examples, tuple):
            return self.choose([examples], batch_size)[0]
        if not len(examples):
            return []
        answers = []
        for example, logits in zip(examples, self.predict(examples, batch_size=batch_size, verbose=0), strict=True):
            logits = logits[: len(example[-1])].astype("float64")
            scores = np.exp(logits - np.logaddexp.reduce(logits))
            best = int(scores.argmax())
            text, score = example[-1][best], float(scores[best])
            answers.append({"choice": best, "text": text, "score": score, "scores": scores.tolist()})
        return answers

    # === Checks and configuration ===

    def check_batch(self, x, y=None, sample_weight=None):
        super().check_batch(x, y, sample_weight)
        if y is None:
            return
        counts = np.full(len(y), x["token_ids"].shape[1])
        if x.get("lengths") is not None:
            counts = (np.asarray(x["lengths"]) > 0).sum(axis=1)
        elif x.get("padding_mask") is not None:
            counts = np.asarray(x["padding_mask"]).any(axis=-1).sum(axis=1)
        counted = np.ones(len(y), bool) if sample_weight is None else np.asarray(sample_weight) > 0
        wrong = counted & ((np.asarray(y) < 0) | (np.asarray(y) >= counts))
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"A target must be the index of a choice, from 0 to {counts[row] - 1}. Received: {y[row]}."
            )

    @classmethod
    def needs_pooler(cls, family, settings):
        return "choice" in family.pooled_heads
