"""Batches that mix rows for masked next-token prediction with rows for causal language modeling."""

from collections.abc import Callable

import numpy as np

from ..corpus.corpus import Corpus
from ..noise.corruption import choose_tokens, positions_of
from ..noise.noise import Noise
from ..noise.token_spans import TokenSpans
from ..sampling import SLOTS, row_draws
from .masked_lm import MaskedLMBatches, sequence_starts
from .rows import real_tokens


class HybridLMBatches(MaskedLMBatches):
    """Batches of masked and causal rows in a fixed ratio, for GPT-BERT (Charpentier, Samuel 2024, arXiv 2410.24159).

    x: "token_ids" (b, s), "causal_rows" (b,), and the other keys that the layout of the rows has, as in
    `MaskedLMBatches`. y: the original tokens (b, s). The weight is 1 at predicted tokens: in masked rows those that the
    noise selects, in causal rows all but padding and the first token of each text. Causal rows have no masks.

    If `causal_targets` is given, x also has "masked_positions" (b, p), y and the weights are (b, p), and causal rows
    have at most so many predicted tokens, which are drawn at random. This is faster, because logits are computed only
    at predicted tokens.

    share 1/4, 8 rows -> rows 3 and 7 are causal

    Args:
        corpus, batch_size, length, seed, steps: as in `MaskedLMBatches`.
        rows: as there, but layouts with labeled pairs are not supported.
        noise: as there. Default: `TokenSpans(0.15)`.
        causal_share: share of the causal rows, at least 0 and at most 1. They are distributed evenly over the run.
        causal_targets: maximum number of predicted tokens in a causal row. Default: all.

    Raises:
        ValueError: as in `MaskedLMBatches`, or if the layout has labeled pairs, or `causal_share` or `causal_targets`
            is out of range.
    """

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        length: int,
        seed: int = 0,
        steps: int | None = None,
        rows: str | Callable = "packed",
        noise: Noise | None = None,
        causal_share: float = 1 / 16,
        causal_targets: int | None = None,
    ):
        if not 0 <= causal_share <= 1:
            raise ValueError(f"`causal_share` must be between 0 and 1. Received: {causal_share}.")
        if causal_targets is not None and not 1 <= causal_targets <= length:
            raise ValueError(
                f"`causal_targets` must be between 1 and `length`, {length}, or None for all tokens. Received: "
                f"{causal_targets}."
            )
        super().__init__(corpus, batch_size, length, seed, steps, rows, noise)
        if self.sentence_pairs:
            raise ValueError(
                "Hybrid language modeling has no sentence-pair label. Received: a layout of labeled pairs. Use "
                "another `rows`."
            )
        self.causal_share, self.causal_targets = causal_share, causal_targets
        self._slots = None if causal_targets is None else max(self.max_predictions, causal_targets)

    @staticmethod
    def default_noise(length: int) -> Noise:
        return TokenSpans()

    def recipe(self) -> dict:
        return {**super().recipe(), "causal_share": self.causal_share, "causal_targets": self.causal_targets}

    def _rows(self, update: int, first: int, last: int) -> tuple:
        if self.noise.whole_batch and (first, last) != (0, self.batch_size):
            return super()._rows(update, first, last)  # which takes them from the rows of the whole update
        x, targets, weights = super()._rows(update, first, last)
        row, slot = np.nonzero(weights)
        column = x.pop("masked_positions")[row, slot]
        originals, predicted = x["token_ids"].copy(), np.zeros(x["token_ids"].shape, dtype=bool)
        originals[row, column], predicted[row, column] = targets[row, slot], True

        causal = self._is_causal(update * self.batch_size + np.arange(first, last))
        real = real_tokens(x)
        later = real & ~sequence_starts(x, real)
        if self.causal_targets is not None:
            later = self._drawn(later, update, first)
        x["token_ids"] = np.where(causal[:, None], originals, x["token_ids"])
        predicted = np.where(causal[:, None], later, predicted)
        x["causal_rows"] = causal
        if self._slots is None:
            return x, originals, predicted.astype(np.float32)
        positions = x["masked_positions"] = positions_of(predicted, self._slots)
        used = positions >= 0
        return x, np.where(used, np.take_along_axis(originals, positions.clip(0), axis=1), 0), used.astype(np.float32)

    def _is_causal(self, numbers: np.ndarray) -> np.ndarray:
        """Says which rows are causal, given their numbers in the run."""
        before, after = (np.floor((numbers + one) * self.causal_share + 1e-9) for one in (0, 1))
        return after > before

    def _drawn(self, candidates: np.ndarray, update: int, first: int) -> np.ndarray:
        """Selects `causal_targets` of the candidates in each row, or all if there are fewer. Both are bool (b, s)."""
        rows, length = candidates.shape
        draws = row_draws(self.seed, update, SLOTS, first, rows, length // 2 + 2)
        count = self.causal_targets or 0
        places = choose_tokens(candidates, np.full(rows, count), count, draws)
        chosen = np.zeros((rows, length + 1), dtype=bool)
        np.put_along_axis(chosen, places, True, axis=1)  # unused slots, -1, are in the last column
        return chosen[:, :-1]

    def _normalizers(self, batch: tuple) -> dict:
        """The normalizer of each kind of rows, because the objective averages their losses separately."""
        x, _, weights = batch
        kinds = {"masked": ~x["causal_rows"], "causal": x["causal_rows"]}
        return {name: self._per_row(weights[rows]) for name, rows in kinds.items()}
