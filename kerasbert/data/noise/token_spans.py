"""Masks of short spans of tokens, as in LTG-BERT and GPT-BERT (Samuel et al. 2023, arXiv 2303.09859, section 3)."""

import dataclasses

import numpy as np

from .corruption import LARGEST_KEY, drawn_count, positions_of
from .noise import MaskableRows, Noise, check_rate, check_shares


def cut_into_spans(borders: np.ndarray, longest: int, draws: np.ndarray) -> np.ndarray:
    """Cuts rows into spans of 1 to `longest` tokens, all of these lengths equally likely.

    Spans of lengths 2, 1 and 3 -> 0 0 2 3 3 3

    Args:
        borders: bool (b, s), True at tokens at which a span must begin.
        longest: maximum length. A border may make a span shorter.
        draws: random integers, uint32 (b, at least s).

    Returns: the position of the first token of each token's span, int (b, s).
    """
    lengths = 1 + ((draws[:, : borders.shape[1]].astype(np.uint64) * np.uint64(longest)) >> np.uint64(32)).astype(int)
    starts = np.zeros(borders.shape, dtype=np.int64)
    first = left = np.zeros(len(borders), dtype=np.int64)
    for column in range(borders.shape[1]):
        begins = (left == 0) | borders[:, column]
        first, left = np.where(begins, column, first), np.where(begins, lengths[:, column], left) - 1
        starts[:, column] = first
    return starts


@dataclasses.dataclass(frozen=True)
class TokenSpans(Noise):
    """Selects spans of one to three tokens. All tokens of a span are masked, kept or replaced together.

    Each row is cut into spans of random lengths. Spans are selected in random order until they have `rate` times the
    number of tokens, rounded up or down at random; the last one is selected as a whole. The official code counts in
    each text of a row separately, and prefers tokens that were seldom masked before; here, a row does not depend on
    earlier steps.

    Args:
        rate: number of tokens to predict, as a share of the text without special tokens.
        longest: maximum number of tokens in a span.
        shares: the share of the spans that become mask tokens, and the share that are kept. The others become random
            tokens.
        random_from: smallest id that a random token can have. Tokens with smaller ids are never selected.

    Raises:
        ValueError: if `longest` is below 1, or `rate` or `shares` is out of range.
    """

    rate: float = 0.15
    _: dataclasses.KW_ONLY
    longest: int = 3
    shares: tuple[float, float] = (0.8, 0.1)
    random_from: int = 0

    def __post_init__(self):
        check_rate(self.rate)
        check_shares(self.shares)
        if self.longest < 1:
            raise ValueError(f"`longest` must be at least 1. Received: {self.longest}.")

    def num_slots(self, length: int, num_special: int) -> int:
        most = length - num_special
        return min(most, max(1, int(drawn_count(np.array(most), self.rate, np.array(2**32 - 1)))) + self.longest - 1)

    def choice_draws(self, length: int, num_slots: int) -> int:
        """Number of draws of `choose`: for the length and the order of the span at each token, and for the count."""
        return 2 * length + 1

    def num_draws(self, length: int, num_slots: int) -> int:
        """Number of draws per row: those of `choose`, then the treatment of each span, then each random token."""
        return self.choice_draws(length, num_slots) + length + num_slots

    def choose(self, rows: MaskableRows, draws: np.ndarray) -> np.ndarray:
        return self._choose(rows, draws, cut_into_spans(rows.borders, self.longest, draws))

    def _choose(self, rows: MaskableRows, draws: np.ndarray, starts: np.ndarray) -> np.ndarray:
        length = rows.token_ids.shape[1]
        candidates = rows.text & (rows.token_ids >= self.random_from)
        sizes = np.count_nonzero(candidates, axis=1)
        counts = np.clip(drawn_count(sizes, self.rate, draws[:, 2 * length]), 1, np.maximum(sizes, 1))
        keys = np.take_along_axis(draws[:, length : 2 * length], starts, axis=1)
        keys = np.where(candidates, np.minimum(keys, LARGEST_KEY - np.uint32(1)), LARGEST_KEY)
        last = np.take_along_axis(np.sort(keys, axis=1), counts[:, None] - 1, axis=1)  # the span that reaches the count
        return positions_of(candidates & (keys <= last), rows.num_slots)

    def __call__(self, rows: MaskableRows, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        length, slots = rows.token_ids.shape[1], rows.num_slots
        starts = cut_into_spans(rows.borders, self.longest, draws)
        positions = self._choose(rows, draws, starts)
        treatments, further = np.split(draws[:, 2 * length + 1 : 3 * length + 1 + slots], [length], axis=1)
        starts = np.take_along_axis(starts, np.maximum(positions, 0), axis=1)
        return positions, self.replace(rows, positions, np.take_along_axis(treatments, starts, axis=1), further)
