"""Batches for replaced token detection."""

from typing import Any

import numpy as np

from ..noise.masking import Tokens, TokensWithReplacement
from ..noise.noise import Noise
from .masked_lm import MaskedLMBatches


class ReplacedTokenBatches(MaskedLMBatches):
    """Batches whose masked tokens a generator replaces, as in ELECTRA (Clark et al. 2020, arXiv 2003.10555).

    x: "token_ids" (b, s), "lengths" (b,) or "padding_mask" (b, s), "masked_positions" (b, p) with -1 in unused slots.
    y: "tokens", the original tokens (b, p). Weights: "tokens", 1 in used slots; "replaced" (b, s), 1 at real tokens.

    Args:
        corpus, batch_size, length, seed, steps, rows, static_masks, language: as in `MaskedLMBatches`, but layouts with
            labeled pairs are not supported.
        noise: the masking rule. Its `shares` must add up to 1, because it must not insert random tokens. Default:
            `electra_noise(length)`.

    Raises:
        ValueError: as in `MaskedLMBatches`, or if the layout has labeled pairs, or the `shares` of the noise do not add
            up to 1.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if self.sentence_pairs:
            raise ValueError(
                "Replaced token detection has no sentence-pair label. Received: a layout of labeled pairs. Use "
                "another `rows`."
            )
        if sum(self.noise.shares) < 1 - 1e-9:
            raise ValueError(
                "The generator chooses the random tokens, so the `shares` of masked and of kept tokens must add up to "
                "1. "
                f"Received: {self.noise.shares}. Use shares=(0.85, 0.15), for example."
            )

    @staticmethod
    def default_noise(length: int) -> Noise:
        return electra_noise(length)

    def _with_targets(self, x: dict, targets: np.ndarray, weights: np.ndarray, lines: np.ndarray, rows) -> tuple:
        return x, {"tokens": targets}, {"tokens": weights, "replaced": rows.maskable.astype(np.float32)}


def electra_noise(
    length: int,
    mask_rate: float = 0.15,
    max_predictions: int | None = None,
    mask_share: float = 0.85,
    with_replacement: bool = False,
) -> Noise:
    """The masking rule of ELECTRA's code.

    Args:
        length: tokens per row.
        mask_rate: number of tokens to predict, as a share of all tokens of a row, including special tokens. The paper
            uses 0.15, and 0.25 for the large model.
        max_predictions: maximum number of tokens to predict per row. Default: (`mask_rate` + 0.005) * `length`, as in
            the official code.
        mask_share: share of the selected tokens that are replaced by the mask token in the generator's input. The
            others are kept. ELECTRA uses 0.85, DeBERTa-v3 1.
        with_replacement: whether positions are drawn with replacement, as in the official code, so that a position may
            be drawn twice.

    Raises:
        ValueError: if `mask_share` is not from 0 to 1, or `mask_rate` is out of range.
    """
    if not 0 <= mask_share <= 1:
        raise ValueError(f"`mask_share` must be between 0 and 1. Received: {mask_share}.")
    slots = max(1, int((mask_rate + 0.005) * length)) if max_predictions is None else max_predictions
    rule = TokensWithReplacement if with_replacement else Tokens
    return rule(mask_rate, max_predictions=slots, shares=(mask_share, 1 - mask_share))
