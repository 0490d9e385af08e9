"""Masking rules of the papers: which tokens are predicted, by piece, word, n-gram or frequency, and how many."""

import dataclasses
import math
from typing import Literal

import numpy as np

from . import corruption
from .noise import MaskableRows, Noise, check_rate, check_shares


@dataclasses.dataclass(frozen=True)
class Tokens(Noise):
    """Masks a share of a row's tokens (Devlin et al. 2018, arXiv 1810.04805, section 3.1).

    Args:
        rate: share of the row's length to predict, counting special tokens.
        shares: shares of the chosen tokens that become the mask, and that are kept; the others become random tokens.
        max_predictions: maximum number of tokens to predict per row. Default: `rate` of the row, with a margin where
            the number is random.
        count: "rounded" (rate * length, rounded), "drawn" (rounded up or down at random so that the mean is exact) or
            "independent" (each token independently).
        mask_special: whether special tokens may be masked, too.
        skip_first: never mask the first token of a row, or of a sequence in a packed row.
        random_from: smallest id that can be drawn as a random token.
    """

    rate: float = 0.15
    _: dataclasses.KW_ONLY
    shares: tuple[float, float] = (0.8, 0.1)
    max_predictions: int | None = None
    count: Literal["rounded", "drawn", "independent"] = "rounded"
    mask_special: bool = False
    skip_first: bool = False
    random_from: int = 0

    def __post_init__(self):
        check_rate(self.rate)
        check_shares(self.shares)
        if self.max_predictions is not None and self.max_predictions < 1:
            raise ValueError(f"`max_predictions` must be at least 1. Received: {self.max_predictions}.")
        if self.count not in ("rounded", "drawn", "independent"):
            raise ValueError(f'`count` must be "rounded", "drawn" or "independent". Received: {self.count!r}.')

    def num_slots(self, length: int, num_special: int) -> int:
        return self.max_predictions or min(length, self._most(length))

    def _most(self, length: int) -> int:
        """Number of tokens to predict in a row of `length` tokens, and six standard deviations if it is random."""
        if self.count == "independent":
            return self._most_of_a_random_number(length)
        if self.count == "drawn":
            return int(length * self.rate) + 1
        return int(corruption.num_to_predict(np.array(length), self.rate, length))

    def _most_of_a_random_number(self, length: int) -> int:
        mean = length * self.rate
        return math.ceil(mean + 6 * math.sqrt(mean * (1 - self.rate)))

    def candidates(self, rows: MaskableRows) -> np.ndarray:
        """bool (b, s): the tokens that may be masked."""
        candidates = rows.maskable if self.mask_special else rows.text
        return candidates & ~rows.first if self.skip_first else candidates

    def counts(self, rows: MaskableRows, draws: np.ndarray) -> np.ndarray:
        """Number of tokens to predict per row, int (b,). A random one needs a draw, the last of `choice_draws`."""
        if self.count == "rounded":
            return corruption.num_to_predict(rows.lengths, self.rate, rows.num_slots)
        last = draws[:, self.choice_draws(rows.token_ids.shape[1], rows.num_slots) - 1]
        return np.minimum(corruption.drawn_count(rows.lengths, self.rate, last), rows.num_slots)

    def choice_draws(self, length: int, num_slots: int) -> int:
        if self.count == "independent":
            return length
        return _order_draws(length) + (self.count != "rounded")

    def choose(self, rows: MaskableRows, draws: np.ndarray) -> np.ndarray:
        candidates = self.candidates(rows)
        if self.count == "independent":
            return corruption.choose_independently(candidates, self.rate, rows.num_slots, draws)
        return corruption.choose_tokens(candidates, self.counts(rows, draws), rows.num_slots, draws)


@dataclasses.dataclass(frozen=True)
class WholeWords(Tokens):
    """Masks whole words. A word that would exceed the number of predictions is skipped.

    Args:
        by_word: count words, not pieces, and mask, keep or replace all pieces of a word alike, as RoBERTa's code does.
    """

    by_word: bool = False

    def _most(self, length: int) -> int:
        return self._most_of_a_random_number(length) if self.by_word else super()._most(length)

    def choice_draws(self, length: int, num_slots: int) -> int:
        return _order_draws(length) + (self.by_word or self.count != "rounded")

    def num_draws(self, length: int, num_slots: int) -> int:
        return super().num_draws(length, num_slots) + num_slots * self.by_word

    def choose(self, rows: MaskableRows, draws: np.ndarray) -> np.ndarray:
        candidates, starts = self.candidates(rows), rows.vocabulary.word_starts.take(rows.token_ids)
        if self.by_word:
            return corruption.choose_share_of_words(candidates, starts, self.rate, rows.num_slots, draws)
        return corruption.choose_words(candidates, starts, self.counts(rows, draws), rows.num_slots, draws)

    def __call__(self, rows: MaskableRows, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not self.by_word:
            return super().__call__(rows, draws)
        positions, slots = self.choose(rows, draws), rows.num_slots
        word = np.cumsum(rows.vocabulary.word_starts.take(rows.token_ids), axis=1)
        word = np.take_along_axis(word, np.maximum(positions, 0), axis=1)
        leads = np.diff(word, axis=1, prepend=-1) != 0
        lead = np.maximum.accumulate(np.where(leads, np.arange(slots), 0), axis=1)
        first = self.choice_draws(rows.token_ids.shape[1], slots)
        decisions, further = (draws[:, first + part * slots : first + (part + 1) * slots] for part in (0, 1))
        # The draw of a word's first piece decides for the whole word.
        return positions, self.replace(rows, positions, np.take_along_axis(decisions, lead, axis=1), further)


@dataclasses.dataclass(frozen=True)
class NGrams(Tokens):
    """Masks runs of whole words (Lan et al. 2019, arXiv 1909.11942, section 4.1).

    Args:
        ngrams: the largest n, with n drawn in proportion to 1 / n, or the probabilities of n = 1, 2, ....
    """

    ngrams: int | tuple[float, ...] = 3

    def __post_init__(self):
        super().__post_init__()
        ngrams = self.ngrams
        if not (ngrams >= 1 if isinstance(ngrams, int) else sum(ngrams) > 0 <= min(ngrams)):
            raise ValueError(
                "`ngrams` must be the largest n, at least 1, or the probabilities of n = 1, 2, .... Received: "
                f"{ngrams}."
            )

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Those of n = 1, 2, ...."""
        return ngram_shares(self.ngrams) if isinstance(self.ngrams, int) else tuple(self.ngrams)

    def choice_draws(self, length: int, num_slots: int) -> int:
        return _order_draws(length) + length + (self.count != "rounded")

    def choose(self, rows: MaskableRows, draws: np.ndarray) -> np.ndarray:
        starts, counts = rows.vocabulary.albert_word_starts.take(rows.token_ids), self.counts(rows, draws)
        return corruption.choose_ngrams(
            self.candidates(rows), starts, counts, rows.num_slots, self.probabilities, draws
        )


@dataclasses.dataclass(frozen=True)
class WindowNGrams(NGrams):
    """Masks one n-gram in each window of a row until there are enough, as DeBERTa's code does.

    See `corruption.choose_on_a_walk`. The number of predictions is "rounded".

    Args:
        words: False takes n-grams of pieces.
        anywhere: choose among all these n-grams at random, so that the end of a row is masked as often as its
            beginning; otherwise from left to right.
    """

    words: bool = True
    anywhere: bool = False

    def _most(self, length: int) -> int:
        return super()._most(length) + 8 * self.words  # the last word is always completed

    def choice_draws(self, length: int, num_slots: int) -> int:
        return _order_draws(length) + 2 * -(-length // corruption.WINDOW)

    def choose(self, rows: MaskableRows, draws: np.ndarray) -> np.ndarray:
        starts = rows.vocabulary.word_starts.take(rows.token_ids) if self.words else None
        counts = corruption.num_to_predict(rows.lengths, self.rate, rows.num_slots)
        return corruption.choose_on_a_walk(
            self.candidates(rows), starts, counts, rows.num_slots, self.probabilities, draws, self.anywhere
        )


@dataclasses.dataclass(frozen=True)
class RareTokens(Tokens):
    """Chooses tokens in proportion to their count in the corpus ** -exponent, separately in each row.

    The official codes of XLM and DistilBERT choose among all tokens of a batch.

    Args:
        exponent: XLM's paper uses 0.5, DistilBERT 0.7.
    """

    exponent: float = 0.5

    def __post_init__(self):
        super().__post_init__()
        if not math.isfinite(self.exponent):
            raise ValueError(f"`exponent` must be a number. Received: {self.exponent}.")

    def _most(self, length: int) -> int:
        return math.ceil(length * self.rate)

    def choice_draws(self, length: int, num_slots: int) -> int:
        return length

    def choose(self, rows: MaskableRows, draws: np.ndarray) -> np.ndarray:
        weights = rows.vocabulary.rare_first_weights(self.exponent)[rows.token_ids]
        counts = np.minimum(np.ceil(rows.lengths * self.rate), rows.num_slots)
        return corruption.choose_by_weight(self.candidates(rows), weights, counts, rows.num_slots, draws)


@dataclasses.dataclass(frozen=True)
class TokensWithReplacement(Tokens):
    """Draws slots one by one, as ELECTRA's official code does, so that a position may have two of them.

    A position is masked if any of its slots is.
    """

    def choice_draws(self, length: int, num_slots: int) -> int:
        return num_slots

    def choose(self, rows: MaskableRows, draws: np.ndarray) -> np.ndarray:
        counts = corruption.num_to_predict(rows.lengths, self.rate, rows.num_slots)
        return draw_tokens(self.candidates(rows), counts, rows.num_slots, draws)

    def __call__(self, rows: MaskableRows, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        positions, targets = super().__call__(rows, draws)
        decisions = draws[:, rows.num_slots : 2 * rows.num_slots]
        row, slot = np.nonzero((positions >= 0) & (decisions < round(self.shares[0] * 2**32)))
        rows.token_ids[row, positions[row, slot]] = rows.vocabulary.mask_id
        return positions, targets


# What the code of a family does differently from BERT's. (ModernBERT's code draws random tokens below the largest id of
# the batch; here rows do not depend on each other, so they come from the whole vocabulary.)
RULES = {
    "bert": {},
    "roberta": {"mask_special": True, "count": "drawn", "random_from": 4},
    "xlm": {"mask_special": True, "count": "independent", "skip_first": True},
    "modernbert": {"mask_special": True, "count": "independent"},
    "deberta": {},
    "deberta_anywhere": {},
}


def masking_rule(
    rule: str = "bert",
    mask_rate: float = 0.15,
    max_predictions: int | None = None,
    whole_words: bool = False,
    ngrams: int | tuple[float, ...] | None = None,
    rare_exponent: float | None = None,
    shares: tuple[float, float] = (0.8, 0.1),
) -> Noise:
    """The masking rule of a family, by settings that can be written into a recipe.

    Args:
        rule: "bert" never masks special tokens, "roberta", "xlm" and "modernbert" may; with `whole_words` "roberta"
            counts and decides by word. "xlm" and "modernbert" decide for each token independently. "deberta" takes
            n-grams in windows from left to right, "deberta_anywhere" at random.
        mask_rate, max_predictions, shares: `rate`, `max_predictions` and `shares` of `Tokens`.
        whole_words: mask words, not pieces.
        ngrams: mask n-grams of words, as in `NGrams`.
        rare_exponent: the exponent of `RareTokens`.
    """
    if rule not in RULES:
        raise ValueError(f"`rule` must be one of {', '.join(RULES)}. Received: {rule!r}.")
    if rare_exponent is not None and (whole_words or ngrams):
        raise ValueError("`rare_exponent` cannot be used with whole_words or ngrams. Received: both. Choose one.")
    settings = dict(rate=mask_rate, shares=tuple(shares), max_predictions=max_predictions, **RULES[rule])
    if rare_exponent is not None:
        return RareTokens(exponent=rare_exponent, **settings)
    if rule.startswith("deberta"):
        words, anywhere = bool(ngrams or whole_words), rule == "deberta_anywhere"
        return WindowNGrams(ngrams=ngrams or 1, words=words, anywhere=anywhere, **settings)
    if ngrams is not None:
        return NGrams(ngrams=ngrams, **settings)
    return WholeWords(by_word=rule == "roberta", **settings) if whole_words else Tokens(**settings)


def ngram_shares(longest: int) -> tuple[float, ...]:
    """p(n) proportional to 1 / n.

    3 -> 6/11, 3/11, 2/11
    """
    weights = 1 / np.arange(1, longest + 1)
    return tuple((weights / weights.sum()).tolist())


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


def _order_draws(length: int) -> int:
    """Draws that put the tokens of a row in random order: half a draw for each token, and one to scramble."""
    return -(-length // 2) + 1
