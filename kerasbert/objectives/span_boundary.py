"""Span boundary objective: predicts the tokens of a masked span from the two tokens around the span."""

from typing import Any

import keras
from keras import ops

from ..backend.compilation import concrete_array
from ..checkpoints.arguments import Saved
from ..data import SpanMaskBatches
from ..data.corpus.corpus import Corpus
from ..data.tokenizers.tokenizer import Tokenizer
from ..layers.embeddings import gather_positions
from ..models.backbone import Backbone
from .objective import (
    Objective,
    Perplexity,
    WeightedMean,
    check_labels,
    cross_entropy,
    predicted_correctly,
    slot_shape,
    slot_weights,
)

SPAN_KEYS = ("span_left", "span_right", "span_offset")


@keras.saving.register_keras_serializable("kerasbert")
class SpanBoundary(Objective):
    """SpanBERT: masked language modeling, and a second prediction of each masked token from the boundary of its span.

    Joshi, Chen, Liu, Weld, Zettlemoyer, Levy 2019, arXiv 1907.10529, section 3.2. The loss is the sum of the mean
    losses of both predictions. The official code divides the sum of the boundary losses by their number plus one.

    Args:
        backbone: a backbone with the heads `masked_lm` and `span_boundary`.
        max_targets: number of position embeddings of the boundary head. Later positions in a span share the last one.
        boundary_weight: weight of the boundary loss.
        tokenizer: a `Tokenizer`, which is required for text inputs.

    Call:
        inputs: a batch with `masked_positions`, `span_left`, `span_right` and `span_offset`.

    Returns: a dict of the logits `tokens` and `boundary`, float (b, p, v). The targets y are int32 (b, p), or a dict
        with such an array under each of these names.

    Raises:
        ValueError: if the backbone lacks one of the heads, or a batch lacks one of the inputs or has a `span_offset` of
            `max_targets` or more.
    """

    SAVES = ("max_targets", "boundary_weight")
    SAVED_AS = {"max_targets": Saved(int, 1, 10_000)}

    def __init__(
        self,
        backbone: Backbone,
        max_targets: int = 15,
        boundary_weight: float = 1.0,
        tokenizer: Tokenizer | None = None,
        **kwargs: Any,
    ):
        super().__init__(backbone, tokenizer, **kwargs)
        self.masked_lm = backbone.make_head("masked_lm")
        self.span_boundary = backbone.make_head("span_boundary", max_targets=max_targets)
        self.max_targets, self.boundary_weight = max_targets, boundary_weight
        self.accuracy = WeightedMean(name="accuracy")
        self.perplexity = Perplexity(name="perplexity")
        self.boundary_loss = WeightedMean(name="boundary_loss")
        self.boundary_accuracy = WeightedMean(name="boundary_accuracy")
        self.build_now()

    def example_inputs(self):
        slots = dict.fromkeys(("masked_positions", *SPAN_KEYS), ops.zeros((1, 1), "int32"))
        return {**super().example_inputs(), **slots}

    def call(self, inputs):
        x = self.backbone(inputs)["sequence_output"]
        table = self.backbone.token_table
        left, right = (gather_positions(x, inputs[side]) for side in ("span_left", "span_right"))
        return {
            "tokens": self.masked_lm(gather_positions(x, inputs["masked_positions"]), table),
            "boundary": self.span_boundary(left, right, inputs["span_offset"], table),
        }

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        y = y if isinstance(y, dict) else {"tokens": y, "boundary": y}
        given = sample_weight if isinstance(sample_weight, dict) else dict.fromkeys(y, sample_weight)
        weights = {name: slot_weights(x, y[name], given[name]) for name in y}
        bounded = (x["span_left"] >= 0) & (x["span_right"] >= 0) & (x["span_offset"] >= 0)
        weights["boundary"] = weights["boundary"] * ops.cast(bounded, "float32")
        losses = {name: cross_entropy(y_pred[name], y[name]) for name in y}
        right = {name: predicted_correctly(y_pred[name], y[name]) for name in y}
        self.perplexity.update_state(losses["tokens"], weights["tokens"])
        self.accuracy.update_state(right["tokens"], weights["tokens"])
        self.boundary_loss.update_state(losses["boundary"], weights["boundary"])
        self.boundary_accuracy.update_state(right["boundary"], weights["boundary"])
        means = {name: self.mean_loss(x, losses[name], weights[name], name) for name in y}
        return means["tokens"] + self.boundary_weight * means["boundary"]

    # === Text ===

    def text_batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle):
        """Returns batches with masked spans for texts, each of which is one document; see `SpanMaskBatches`."""
        if y is not None:
            raise ValueError("The targets of the span boundary objective are in the text. Received: y. Drop it.")
        corpus = Corpus.in_memory(x, self.require_tokenizer())
        length = min(self.backbone.config.max_length, 128)
        options: dict[str, Any] = dict(seed=seed, max_targets=self.max_targets, rows="chunks")
        once = SpanMaskBatches(corpus, batch_size, length, **options)
        return once if epochs == 1 else SpanMaskBatches(corpus, batch_size, length, steps=len(once) * epochs, **options)

    # === Checks and configuration ===

    def target_shapes(self, x):
        return dict.fromkeys(("tokens", "boundary"), slot_shape(x))

    def check_batch(self, x, y=None, sample_weight=None):
        super().check_batch(x, y, sample_weight)
        missing = [key for key in ("masked_positions", *SPAN_KEYS) if x.get(key) is None]
        if missing:
            raise ValueError(
                f"The span boundary objective needs {', '.join(missing)}. Received: {', '.join(sorted(x))}. "
                "Use `SpanMaskBatches`."
            )
        for key, limit in zip(SPAN_KEYS, (*[x["token_ids"].shape[1]] * 2, self.max_targets), strict=True):
            array = concrete_array(x[key])
            if array is not None and array.size and not (array.min() >= -1 and array.max() < limit):
                wrong = int(array.max() if array.max() >= limit else array.min())
                raise ValueError(
                    f"`{key}` must be below {limit}, or -1 for positions without a boundary loss. Received: {wrong}."
                    + (" Use the same `max_targets` for batches and objective." if key == "span_offset" else "")
                )
        for labels in y.values() if isinstance(y, dict) else [y]:
            check_labels(labels, self.backbone.config.vocabulary_size)
