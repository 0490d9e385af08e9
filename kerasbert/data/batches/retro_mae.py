"""Batches for RetroMAE: masked rows for an encoder, and the same rows for a decoder that sees parts of them."""

from collections.abc import Callable

import numpy as np

from ..corpus.corpus import Corpus
from ..noise.masking import WholeWords
from ..noise.noise import Noise, check_rate
from ..noise.visibility import hidden_positions, num_visibility_draws, visible_positions
from ..sampling import SLOTS, row_draws
from .masked_lm import MaskedLMBatches
from .whole_texts import check_embeddable_rows


class RetroMAEBatches(MaskedLMBatches):
    """Batches for RetroMAE, an encoder with a decoder that reads its embedding (Xiao et al. 2022, arXiv 2205.12035).

    x: "token_ids" (b, s), "lengths" (b,) and "masked_positions" (b, p), as in `MaskedLMBatches`; "decoder_token_ids"
    (b, s), the row without masks; and "decoder_visible" (b, s, s), True at [row, i, j] if position i of the decoder
    attends to position j. y and the weights are dicts: "tokens" (b, p), the masked tokens, and "decoder" (b, s), the
    whole row, with weight 1 at all tokens but special tokens and padding.

    A position of the decoder attends neither to itself nor to the words that are hidden from it, which are drawn for
    every position, independently of the masks of the encoder. Special tokens are hidden from none but themselves.

    Args:
        corpus, batch_size, length, seed, steps: as in `MaskedLMBatches`.
        rows: as there, but each row must be one text with a special token in front.
        noise: the masks of the encoder, as there. Default: `WholeWords(0.3)`.
        decoder_rate: share of the tokens that are hidden from each position of the decoder, 0.5 in the paper.

    Raises:
        ValueError: as in `MaskedLMBatches`, or if rows are labeled pairs, have several texts, or do not begin with a
            special token, or `decoder_rate` is not above 0 and below 1.
    """

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        length: int,
        seed: int = 0,
        steps: int | None = None,
        rows: str | Callable = "chunks",
        noise: Noise | None = None,
        decoder_rate: float = 0.5,
    ):
        check_rate(decoder_rate)
        super().__init__(corpus, batch_size, length, seed, steps, rows, noise)
        check_embeddable_rows(type(self).__name__, self._layout)
        self.decoder_rate = decoder_rate

    @staticmethod
    def default_noise(length: int) -> Noise:
        return WholeWords(0.3)

    def recipe(self) -> dict:
        return {**super().recipe(), "decoder_rate": self.decoder_rate}

    def _rows(self, update: int, first: int, last: int) -> tuple:
        if self.noise.whole_batch and (first, last) != (0, self.batch_size):
            return super()._rows(update, first, last)  # which takes them from the rows of the whole update
        x, targets, weights = super()._rows(update, first, last)
        originals = x["token_ids"].copy()
        row, slot = np.nonzero(weights)
        originals[row, x["masked_positions"][row, slot]] = targets[row, slot]
        rows = self._maskable_rows({**x, "token_ids": originals}, self._places(update, first, last)[0])
        draws = row_draws(self.seed, update, SLOTS, first, last - first, num_visibility_draws(self.length))
        hidden = hidden_positions(rows.text, rows.word_starts, x["lengths"], self.decoder_rate, draws)
        x["decoder_token_ids"] = originals
        x["decoder_visible"] = visible_positions(hidden, rows.maskable)
        y = {"tokens": targets, "decoder": originals}
        return x, y, {"tokens": weights, "decoder": rows.text.astype(np.float32)}
