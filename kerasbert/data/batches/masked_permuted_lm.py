"""Batches for masked and permuted language modeling."""

from typing import Any

import numpy as np

from ..sampling import SLOTS, row_draws
from .masked_lm import MaskedLMBatches


class MaskedPermutedLMBatches(MaskedLMBatches):
    """Batches of masked tokens in a random order of prediction, for MPNet (Song et al. 2020, arXiv 2004.09297).

    x, y and the weights are those of `MaskedLMBatches`, except that "masked_positions" (b, p) are in the order of
    prediction instead of that of the text, with -1 in unused slots at the end; y is in the same order. x also contains
    "original_ids" (b, p), the tokens at these positions before they were masked, which are equal to y. Other models
    than MPNet do not read them, and predict all masked tokens at once.

    masked positions 2, 5, 9, -1, order 1, 2, 0 -> 5, 9, 2, -1

    Args:
        corpus, batch_size, length, seed, steps, rows, noise, static_masks: as in `MaskedLMBatches`, but layouts with
            labeled pairs are not supported. The noise must not select a position twice.

    Raises:
        ValueError: as in `MaskedLMBatches`, or if the layout has labeled pairs.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if self.sentence_pairs:
            raise ValueError(
                "Masked and permuted language modeling has no sentence-pair label. Received: a layout of labeled "
                "pairs. Use another `rows`."
            )

    def _rows(self, update: int, first: int, last: int) -> tuple:
        if self.noise.whole_batch and (first, last) != (0, self.batch_size):
            return super()._rows(update, first, last)  # which takes them from the rows of the whole update
        x, targets, weights = super()._rows(update, first, last)
        draws = row_draws(self.seed, update, SLOTS, first, last - first, self.max_predictions)[
            :, : self.max_predictions
        ]
        keys = np.where(x["masked_positions"] >= 0, draws.astype(np.int64), 2**32)
        order = np.argsort(keys, axis=1, kind="stable")
        x["masked_positions"], targets, weights = (
            np.take_along_axis(array, order, axis=1) for array in (x["masked_positions"], targets, weights)
        )
        return {**x, "original_ids": targets}, targets, weights
