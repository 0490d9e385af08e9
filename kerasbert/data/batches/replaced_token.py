"""Batches for replaced token detection."""

import dataclasses

import numpy as np

from ..corpus.corpus import Corpus
from ..noise.corruption import num_to_predict, replace_tokens
from ..noise.masking import TokenMasking
from .masked_lm import MaskedLMBatches


def draw_tokens(candidates: np.ndarray, counts: np.ndarray, slots: int, draws: np.ndarray) -> np.ndarray:
    """Positions of `counts` candidates per row, drawn with replacement, in the order drawn; -1 in unused slots.

    As in ELECTRA's official code, a position may be drawn twice, and then counts twice. For a row without candidates,
    all slots are unused.

    Args:
        candidates, counts, slots: as in `choose_tokens`.
        draws: uint32 (b, at least `slots`).
    """
    totals = np.count_nonzero(candidates, axis=1)
    ranks = (draws[:, :slots].astype(np.uint64) * totals[:, None].astype(np.uint64)) >> np.uint64(32)
    places = np.flatnonzero(candidates)
    first = np.cumsum(totals) - totals
    unused = (np.arange(slots) >= counts[:, None]) | (totals == 0)[:, None]
    flat = np.where(unused, 0, first[:, None] + ranks.astype(np.int64))
    columns = places.take(flat) % candidates.shape[1] if len(places) else flat
    return np.where(unused, -1, columns).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class DrawnMasking:
    """A `TokenMasking` whose slots are drawn with replacement. A position is masked if any of its slots is."""

    rule: TokenMasking

    def num_draws(self, length: int) -> int:
        return 2 * self.rule.slots

    def __call__(self, token_ids: np.ndarray, lengths: np.ndarray, draws: np.ndarray, left_padding=False, never=None):
        rule = self.rule
        candidates = rule.candidates(token_ids, lengths, left_padding, never)
        counts = num_to_predict(lengths, rule.rate, rule.slots)
        positions = draw_tokens(candidates, counts, rule.slots, draws)
        shares = draws[:, rule.slots : 2 * rule.slots]
        targets = replace_tokens(token_ids, positions, shares, rule.mask_id, rule.vocabulary_size, rule.shares)
        rows, slots = np.nonzero((positions >= 0) & (shares < round(rule.shares[0] * 2**32)))
        token_ids[rows, positions[rows, slots]] = rule.mask_id
        return positions, targets


class ReplacedTokenBatches(MaskedLMBatches):
    """Rows whose masked slots are filled by a generator, as in ELECTRA (Clark et al. 2020, arXiv 2003.10555).

    x: "token_ids" (b, s), "lengths" (b,) or "padding_mask" (b, s), "masked_positions" (b, p) with -1 in unused slots.
    y: "tokens", the original tokens (b, p). Weights: "tokens", 1 in used slots; "replaced" (b, s), 1 at real tokens.

    Args:
        corpus, batch_size, length: as in `MaskedLMBatches`.
        mask_rate: share of tokens to fill, counting special tokens. The paper uses 0.15, and 0.25 for the large model.
        max_predictions: maximum number of slots per row. Default: (`mask_rate` + 0.005) * `length`, as in the official
            code.
        mask_share: share of slots that show the mask; the others show their token. ELECTRA uses 0.85, DeBERTa-v3 1.
        with_replacement: draw slots one by one, as the official code does, so that a position may have two; otherwise
            slots are at different positions.
        **options: arguments of `MaskedLMBatches`, such as `seed`, `steps`, `static_masks` and `accumulation`.
    """

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        length: int,
        mask_rate: float = 0.15,
        max_predictions: int | None = None,
        mask_share: float = 0.85,
        with_replacement: bool = False,
        **options,
    ):
        if not 0 <= mask_share <= 1:
            raise ValueError(f"`mask_share` must be between 0 and 1. Received: {mask_share}.")
        if "shares" in options:
            raise ValueError("Slots show the mask or their token. Received: shares. Use `mask_share` instead.")
        others = [name for name in ("whole_words", "ngrams", "rare_exponent") if options.get(name)]
        others += ["rule"] if options.get("rule", "bert") != "bert" else []
        if with_replacement and others:
            raise ValueError(
                "With replacement, slots are pieces drawn uniformly by BERT's rule. Received: "
                f"{', '.join(others)}, too. Choose one."
            )
        self.mask_share, self.with_replacement = mask_share, with_replacement
        slots = max(1, int((mask_rate + 0.005) * length)) if max_predictions is None else max_predictions
        super().__init__(corpus, batch_size, length, mask_rate=mask_rate, max_predictions=slots, **options)
        if self.sentence_pairs:
            raise ValueError("Replaced token detection has no second target. Received: rows of labelled pairs.")
        masking = dataclasses.replace(self._masking, shares=(mask_share, 1 - mask_share))
        self._masking = DrawnMasking(masking) if with_replacement else masking

    def recipe(self) -> dict:
        return {**super().recipe(), "mask_share": self.mask_share, "with_replacement": self.with_replacement}

    def _rows(self, update: int, first: int, last: int) -> tuple:
        x, tokens, used = super()._rows(update, first, last)
        if "lengths" in x:
            real = np.arange(self.length) < x["lengths"][:, None]
        else:
            real = x["padding_mask"] if "padding_mask" in x else x["sequence_ids"] > 0
        return x, {"tokens": tokens}, {"tokens": used, "replaced": real.astype(np.float32)}
