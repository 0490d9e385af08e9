"""Batches with masked spans, for the span boundary objective."""

from collections.abc import Callable

import numpy as np

from ..corpus.corpus import Corpus
from ..noise.noise import MaskableRows, Noise
from ..noise.span_masks import Spans, span_boundaries
from .masked_lm import MaskedLMBatches


class SpanMaskBatches(MaskedLMBatches):
    """Batches with masked spans, for the span boundary objective (Joshi et al. 2019, arXiv 1907.10529).

    x: "token_ids" (b, s), "lengths" (b,) or "padding_mask" (b, s), "masked_positions" (b, p) with -1 in unused slots,
    and "span_left", "span_right", "span_offset" (b, p), -1 in slots without a span boundary target. y and weights:
    dicts of "tokens" and "boundary". Both entries of y are the original tokens (b, p).

    Args:
        corpus, batch_size, length, seed, steps: as in `MaskedLMBatches`.
        rows: as in `MaskedLMBatches`, but layouts with labeled pairs are not supported. Default: "sentences", as in
            SpanBERT.
        noise: the masking rule. Default: `Spans()`.
        boundary: whether to add the keys of the span boundary objective. Without them, y and the weights are single
            arrays, as `MaskedLM` requires.
        max_targets: maximum number of tokens per span that are targets of the span boundary objective.

    Raises:
        ValueError: as in `MaskedLMBatches`, or if the layout has labeled pairs, or `max_targets` is below 1.
    """

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        length: int,
        seed: int = 0,
        steps: int | None = None,
        rows: str | Callable = "sentences",
        noise: Noise | None = None,
        boundary: bool = True,
        max_targets: int = 15,
    ):
        if max_targets < 1:
            raise ValueError(f"`max_targets` must be at least 1. Received: {max_targets}.")
        self.boundary, self.max_targets = boundary, max_targets
        super().__init__(corpus, batch_size, length, seed, steps, rows, noise)
        if self.sentence_pairs:
            raise ValueError(
                "Batches of masked spans have no sentence-pair label. Received: a layout of labeled pairs. Use "
                "another `rows`."
            )

    @staticmethod
    def default_noise(length: int) -> Noise:
        return Spans()

    def recipe(self) -> dict:
        return {**super().recipe(), "boundary": self.boundary, "max_targets": self.max_targets}

    def _maskable_rows(self, x: dict, lines: np.ndarray) -> MaskableRows:
        rows = super()._maskable_rows(x, lines)
        rows.text  # noqa: B018  (computes the cached property before tokens are replaced)
        return rows

    def _with_targets(self, x: dict, targets: np.ndarray, weights: np.ndarray, lines: np.ndarray, rows) -> tuple:
        if not self.boundary:
            return x, targets, weights
        x |= span_boundaries(x["masked_positions"], rows.text, self.max_targets)
        bounded = (x["span_offset"] >= 0).astype(np.float32)
        return x, {"tokens": targets, "boundary": targets}, {"tokens": weights, "boundary": bounded}
