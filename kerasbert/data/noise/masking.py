"""The masking rules of the papers, which select single tokens, words, n-grams or rare tokens."""

import dataclasses
import math
from typing import Any, Literal

import numpy as np

from . import corruption, word_selection
from .noise import MaskableRows, Noise, check_rate, check_shares


@dataclasses.dataclass(frozen=True)
class Tokens(Noise):
    """Selects a share of the tokens of each row (Devlin et al. 2018, arXiv 1810.04805, section 3.1).

    Args:
        rate: number of tokens to predict, as a share of the number of tokens in the row, including special tokens.
        shares: the share of the selected tokens that become the mask token, and the share that are kept. The others
            become random tokens.
        max_predictions: maximum number of tokens to predict per row. Default: `rate` of the row length, plus six
            standard deviations if the number of tokens is random.
        count: how the number of tokens to predict is determined: "rounded" (rate * length, rounded), "drawn" (rounded
            up or down at random so that the mean is exact), or "independent" (each token is selected independently).
        mask_special: whether special tokens may be selected, too.
        skip_first: whether the first token of a row, or of a sequence in a packed row, is never selected.
        random_from: smallest id that a random token can have.

    Raises:
        ValueError: if `rate`, `shares` or `max_predictions` is out of range, or `count` is unknown.
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
        """Maximum number of tokens to predict in a row of `length` tokens. If random, the mean plus six sigma."""
        if self.count == "independent":
            return self._most_of_a_random_number(length)
        if self.count == "drawn":
            return int(length * self.rate) + 1
        return int(corruption.num_to_predict(np.array(length), self.rate, length))

    def _most_of_a_random_number(self, length: int) -> int:
        mean = length * self.rate
        return math.ceil(mean + 6 * math.sqrt(mean * (1 - self.rate)))

    def candidates(self, rows: MaskableRows) -> np.ndarray:
        """bool (b, s), True at tokens that may be selected."""
        candidates = rows.maskable if self.mask_special else rows.text
        return candidates & ~rows.first if self.skip_first else candidates

    def counts(self, rows: MaskableRows, draws: np.ndarray) -> np.ndarray:
        """Number of tokens to predict per row, int (b,). If it is random, the last of `choice_draws` determines it."""
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
    """Selects whole words. A word that would exceed the number of tokens to predict is skipped.

    Args:
        rate, shares, max_predictions, count, mask_special, skip_first, random_from: as in `Tokens`.
        by_word: whether `rate` is a share of the words instead of the tokens, and all tokens of a word are masked, kept
            or replaced together, as in RoBERTa's code.

    Raises:
        ValueError: as in `Tokens`.

    Example:
        >>> from kerasbert.data import Corpus, MaskedLMBatches, Tokenizer, WholeWords
        >>> tokenizer = Tokenizer.from_preset("bert_mini_en")
        >>> corpus = Corpus.in_memory(["the captain laughed quietly at the passengers"], tokenizer)
        >>> noise = WholeWords(rate=0.3, shares=(1.0, 0.0))  # all of them become [MASK]
        >>> x, y, sample_weight = MaskedLMBatches(corpus, batch_size=1, length=10, noise=noise)[0]
        >>> tokenizer.decode(x["token_ids"][0], skip_special_tokens=False)
        '[CLS] the [MASK] laughed [MASK] at [MASK] passengers [SEP]'
    """

    by_word: bool = False

    def _most(self, length: int) -> int:
        return self._most_of_a_random_number(length) if self.by_word else super()._most(length)

    def choice_draws(self, length: int, num_slots: int) -> int:
        return _order_draws(length) + (self.by_word or self.count != "rounded")

    def num_draws(self, length: int, num_slots: int) -> int:
        return super().num_draws(length, num_slots) + num_slots * self.by_word

    def choose(self, rows: MaskableRows, draws: np.ndarray) -> np.ndarray:
        candidates, starts = self.candidates(rows), rows.word_starts
        if self.by_word:
            return word_selection.choose_share_of_words(candidates, starts, self.rate, rows.num_slots, draws)
        return word_selection.choose_words(candidates, starts, self.counts(rows, draws), rows.num_slots, draws)

    def __call__(self, rows: MaskableRows, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not self.by_word:
            return super().__call__(rows, draws)
        positions, slots = self.choose(rows, draws), rows.num_slots
        word = np.cumsum(rows.word_starts, axis=1)
        word = np.take_along_axis(word, np.maximum(positions, 0), axis=1)
        leads = np.diff(word, axis=1, prepend=-1) != 0
        lead = np.maximum.accumulate(np.where(leads, np.arange(slots), 0), axis=1)
        first = self.choice_draws(rows.token_ids.shape[1], slots)
        decisions, further = (draws[:, first + part * slots : first + (part + 1) * slots] for part in (0, 1))
        # All tokens of a word use the draw of its first token.
        return positions, self.replace(rows, positions, np.take_along_axis(decisions, lead, axis=1), further)


@dataclasses.dataclass(frozen=True)
class NGrams(Tokens):
    """Selects n-grams of whole words (Lan et al. 2019, arXiv 1909.11942, section 4.1).

    Args:
        rate, shares, max_predictions, count, mask_special, skip_first, random_from: as in `Tokens`.
        ngrams: the probabilities of n = 1, 2, ..., or the largest n. In the latter case, the probability of n is
            proportional to 1 / n.

    Raises:
        ValueError: as in `Tokens`, or if `ngrams` are neither a number of at least 1 nor probabilities.
    """

    ngrams: int | tuple[float, ...] = 3

    def __post_init__(self):
        super().__post_init__()
        ngrams = self.ngrams
        if not (ngrams >= 1 if isinstance(ngrams, int) else sum(ngrams) > 0 <= min(ngrams)):
            raise ValueError(
                "`ngrams` must be the largest n (at least 1), or the probabilities of n = 1, 2, .... Received: "
                f"{ngrams}."
            )

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The probabilities of n = 1, 2, ...."""
        return ngram_shares(self.ngrams) if isinstance(self.ngrams, int) else tuple(self.ngrams)

    def choice_draws(self, length: int, num_slots: int) -> int:
        return _order_draws(length) + length + (self.count != "rounded")

    def choose(self, rows: MaskableRows, draws: np.ndarray) -> np.ndarray:
        starts = rows.vocabulary.albert_word_starts_of(rows)
        return word_selection.choose_ngrams(
            self.candidates(rows),
            starts,
            self.counts(rows, draws),
            rows.num_slots,
            self.probabilities,
            draws,
            rows.borders,
        )


@dataclasses.dataclass(frozen=True)
class WindowNGrams(NGrams):
    """Selects one n-gram in each window of a row until enough tokens are selected, as in DeBERTa's code.

    See `word_selection.choose_in_windows`. The number of tokens to predict is always "rounded".

    Args:
        rate, shares, max_predictions, mask_special, skip_first, random_from, ngrams: as in `NGrams`.
        words: whether n-grams consist of words instead of tokens.
        anywhere: whether windows are used in random order, so that tokens at the end of a row are selected as often as
            those at its beginning. Otherwise, windows are used from left to right, as in DeBERTa's code.

    Raises:
        ValueError: as in `NGrams`.
    """

    words: bool = True
    anywhere: bool = False

    def _most(self, length: int) -> int:
        return super()._most(length) + 8 * self.words  # the last word is selected completely

    def choice_draws(self, length: int, num_slots: int) -> int:
        return _order_draws(length) + 2 * -(-length // word_selection.WINDOW)

    def choose(self, rows: MaskableRows, draws: np.ndarray) -> np.ndarray:
        starts = rows.word_starts if self.words else None
        counts = corruption.num_to_predict(rows.lengths, self.rate, rows.num_slots)
        return word_selection.choose_in_windows(
            self.candidates(rows),
            starts,
            counts,
            rows.num_slots,
            self.probabilities,
            draws,
            self.anywhere,
            rows.borders,
        )


@dataclasses.dataclass(frozen=True)
class RareTokens(Tokens):
    """Samples tokens with probability proportional to count ** -exponent, where count is the token's corpus frequency.

    Args:
        rate, shares, max_predictions, mask_special, skip_first, random_from: as in `Tokens`.
        exponent: 0.5 in XLM's paper, 0.7 in DistilBERT's code.
        whole_batch: whether to sample among all tokens of an update, as in the official implementations of XLM and
            DistilBERT, so that rows with many rare tokens have more predictions. Otherwise, each row is sampled
            separately. A row has at most `max_predictions` of them; by default, three times its share.

    Raises:
        ValueError: as in `Tokens`, or if `exponent` is not finite.
    """

    exponent: float = 0.5
    whole_batch: bool = False

    def __post_init__(self):
        super().__post_init__()
        if not math.isfinite(self.exponent):
            raise ValueError(f"`exponent` must be a finite number. Received: {self.exponent}.")

    def _most(self, length: int) -> int:
        return min(length, math.ceil(length * self.rate * (3 if self.whole_batch else 1)))

    def choice_draws(self, length: int, num_slots: int) -> int:
        return length

    def choose(self, rows: MaskableRows, draws: np.ndarray) -> np.ndarray:
        weights = rows.vocabulary.rare_first_weights(self.exponent)[rows.token_ids]
        if self.whole_batch:
            count = math.ceil(rows.lengths.sum() * self.rate)
            return corruption.choose_from_batch(self.candidates(rows), weights, count, rows.num_slots, draws)
        counts = np.minimum(np.ceil(rows.lengths * self.rate), rows.num_slots)
        return corruption.choose_by_weight(self.candidates(rows), weights, counts, rows.num_slots, draws)


@dataclasses.dataclass(frozen=True)
class TokensWithReplacement(Tokens):
    """Draws positions with replacement, as in ELECTRA's official code, so that two slots may have the same position.

    Such a position becomes the mask token if that is drawn for any of its slots. The arguments are the same as in
    `Tokens`.

    Raises:
        ValueError: as in `Tokens`.
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


# Differences of each family's code from BERT's. ModernBERT's code draws random tokens below the largest id of the
# batch. Here, they are drawn from the whole vocabulary, so that rows do not depend on each other.
RULES = {
    "bert": {},
    "roberta": {"mask_special": True, "count": "drawn", "random_from": 4},
    "xlm": {"mask_special": True, "count": "independent", "skip_first": True},
    "modernbert": {"mask_special": True, "count": "independent"},
    "distilbert": {"whole_batch": True},
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
    """Builds the masking rule of a family from settings that a recipe can store.

    Args:
        rule: the family. "bert": `Tokens` with its defaults. "roberta", "xlm" and "modernbert" may select special
            tokens, too. "roberta" with `whole_words` is `WholeWords(by_word=True)`. "xlm" and "modernbert" select each
            token independently. "deberta" and "deberta_anywhere" are `WindowNGrams`, the latter in random order.
            "distilbert" selects rare tokens among those of a whole batch, and needs `rare_exponent`.
        mask_rate, max_predictions, shares: `rate`, `max_predictions` and `shares` of `Tokens`.
        whole_words: whether to select whole words, as in `WholeWords`.
        ngrams: selects n-grams of words, as in `NGrams`.
        rare_exponent: selects rare tokens, with this exponent of `RareTokens`.

    Raises:
        ValueError: if `rule` is unknown, or `rare_exponent` is combined with another rule or missing.
    """
    if rule not in RULES:
        raise ValueError(f"`rule` must be one of {', '.join(RULES)}. Received: {rule!r}.")
    if rare_exponent is not None and (whole_words or ngrams):
        raise ValueError(
            "`rare_exponent` cannot be combined with `whole_words` or `ngrams`. Received: both. Choose one."
        )
    if rule == "distilbert" and rare_exponent is None:
        raise ValueError(
            'The rule "distilbert" selects rare tokens, so it needs `rare_exponent`. Received: None. Use 0.7, as in '
            "DistilBERT's code."
        )
    settings: dict[str, Any] = dict(
        rate=mask_rate, shares=tuple(shares), max_predictions=max_predictions, **RULES[rule]
    )
    if rare_exponent is not None:
        return RareTokens(exponent=rare_exponent, **settings)
    if rule.startswith("deberta"):
        words, anywhere = bool(ngrams or whole_words), rule == "deberta_anywhere"
        return WindowNGrams(ngrams=ngrams or 1, words=words, anywhere=anywhere, **settings)
    if ngrams is not None:
        return NGrams(ngrams=ngrams, **settings)
    return WholeWords(by_word=rule == "roberta", **settings) if whole_words else Tokens(**settings)


def ngram_shares(longest: int) -> tuple[float, ...]:
    """The probabilities of n = 1, 2, ... `longest`, proportional to 1 / n.

    3 -> 6/11, 3/11, 2/11
    """
    weights = 1 / np.arange(1, longest + 1)
    return tuple((weights / weights.sum()).tolist())


def draw_tokens(candidates: np.ndarray, counts: np.ndarray, slots: int, draws: np.ndarray) -> np.ndarray:
    """Draws `counts` candidates per row with replacement, as in ELECTRA's official code.

    A position that is drawn twice uses two slots. In a row without candidates, all slots are unused.

    Args:
        candidates, counts, slots: as in `choose_tokens`.
        draws: uint32 (b, at least `slots`).

    Returns: positions in the order in which they were drawn, int32 (b, slots), -1 in unused slots.
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
    """Number of draws that `sort_keys` needs for a row of `length` tokens."""
    return -(-length // 2) + 1
