"""Masking rules of the papers: which tokens are masked, how many, by piece, word or n-gram, and what replaces them."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np

from . import corruption

# Settings in which a family differs from BERT: whether the first token and special tokens may be masked, whether counts
# are exact or random, and whether random tokens exclude the leading special ids. (ModernBERT's code draws random tokens
# below the largest id of the batch; here rows do not depend on each other, so they come from the whole vocabulary.)
RULES = {
    "bert": {},
    "roberta": {"special_ids": (), "count": "drawn", "random_from": 4, "by_word": True},
    "xlm": {"special_ids": (), "count": "independent", "skip_first": True},
    "modernbert": {"special_ids": (), "count": "independent"},
    "deberta": {"walk": "left"},
    "deberta_anywhere": {"walk": "anywhere"},
}


@dataclass(frozen=True)
class TokenMasking:
    """Masks a share `rate` of a row's tokens, or of its words or n-grams of words.

    Args:
        mask_id: id of the mask token.
        vocabulary_size: random tokens are drawn from [random_from, vocabulary_size).
        special_ids: tokens that are never masked.
        slots: maximum number of tokens to predict per row.
        rate: share of the row's length to predict.
        word_starts: bool (vocabulary,), to mask whole words; None masks pieces.
        shares: shares of the chosen tokens that become the mask, and that are kept.
        count: "rounded" (rate * length, rounded), "drawn" (rounded up or down at random so that the mean is exact) or
            "independent" (each token independently).
        random_from: smallest id that can be drawn as a random token.
        skip_first: never mask a row's first token.
        by_word: when masking words, count and decide (mask, keep, random) by word, not by piece.
        ngrams: probabilities of n = 1, 2, ..., to mask n-grams of words.
        token_weights: float (vocabulary,): tokens are chosen in proportion to these weights.
        walk: find n-grams by walking through the row (see `corruption.choose_on_a_walk`), and take them from the "left"
            or from "anywhere" until there are enough.
    """

    mask_id: int
    vocabulary_size: int
    special_ids: tuple[int, ...]
    slots: int
    rate: float = 0.15
    word_starts: np.ndarray | None = None
    shares: tuple[float, float] = (0.8, 0.1)
    count: Literal["rounded", "drawn", "independent"] = "rounded"
    random_from: int = 0
    skip_first: bool = False
    by_word: bool = False
    ngrams: tuple[float, ...] | None = None
    token_weights: np.ndarray | None = None
    walk: Literal["left", "anywhere"] | None = None

    def num_draws(self, length: int) -> int:
        """Number of 32-bit draws needed per row: to choose positions, then one or two for each slot."""
        return self._place_draws(length) + self.slots * (1 + self._decides_by_word)

    def __call__(
        self,
        token_ids: np.ndarray,
        lengths: np.ndarray,
        draws: np.ndarray,
        left_padding: bool = False,
        never: np.ndarray | None = None,
    ):
        """Corrupts int32 `token_ids` (b, s) in place.

        Args:
            lengths: (b,), number of tokens in each row, including special tokens.
            draws: uint32 (b, at least `num_draws(s)`).
            left_padding: rows are padded on the left.
            never: bool (b, s), tokens that must not be masked.

        Returns: positions and targets, int32 (b, slots).
        """
        candidates = self.candidates(token_ids, lengths, left_padding, never)
        positions = self._chosen(token_ids, candidates, lengths, draws)
        place = self._place_draws(token_ids.shape[1])
        choices, further = draws[:, place : place + self.slots], None
        if self._decides_by_word:  # the draw of a word's first piece decides for the whole word
            word = np.cumsum(self.word_starts.take(token_ids), axis=1)
            word = np.take_along_axis(word, np.maximum(positions, 0), axis=1)
            leads = np.diff(word, axis=1, prepend=-1) != 0
            lead = np.maximum.accumulate(np.where(leads, np.arange(self.slots), 0), axis=1)
            further = draws[:, place + self.slots : place + 2 * self.slots]
            choices = np.take_along_axis(choices, lead, axis=1)
        kinds = self.mask_id, self.vocabulary_size, self.shares, self.random_from
        return positions, corruption.replace_tokens(token_ids, positions, choices, *kinds, further)

    def candidates(self, token_ids: np.ndarray, lengths: np.ndarray, left_padding: bool, never: np.ndarray | None):
        """bool (b, s): the tokens that may be masked. The arguments are those of `__call__`."""
        length = token_ids.shape[1]
        columns = np.arange(length, dtype=np.int32)
        candidates = columns >= length - lengths[:, None] if left_padding else columns < lengths[:, None]
        if self.skip_first:
            candidates &= columns != (length - lengths[:, None] if left_padding else 0)
        if never is not None:
            candidates &= ~never
        for special in self.special_ids:
            candidates &= token_ids != special
        return candidates

    def _chosen(self, token_ids: np.ndarray, candidates: np.ndarray, lengths: np.ndarray, draws: np.ndarray):
        slots = self.slots
        if self.token_weights is not None:
            counts = np.minimum(np.ceil(lengths * self.rate), slots)
            return corruption.choose_by_weight(candidates, self.token_weights[token_ids], counts, slots, draws)
        if self._decides_by_word:
            starts = self.word_starts.take(token_ids)
            return corruption.choose_share_of_words(candidates, starts, self.rate, slots, draws)
        if self.count == "independent" and self.word_starts is None:
            return corruption.choose_independently(candidates, self.rate, slots, draws)
        if self.count == "rounded":
            counts = corruption.num_to_predict(lengths, self.rate, slots)
        else:
            last = draws[:, self._place_draws(token_ids.shape[1]) - 1]
            counts = np.minimum(corruption.drawn_count(lengths, self.rate, last), slots)
        starts = None if self.word_starts is None else self.word_starts.take(token_ids)
        if self.walk is not None:
            shares, anywhere = self.ngrams or (1.0,), self.walk == "anywhere"
            return corruption.choose_on_a_walk(candidates, starts, counts, slots, shares, draws, anywhere)
        if starts is None:
            return corruption.choose_tokens(candidates, counts, slots, draws)
        if self.ngrams is not None:
            return corruption.choose_ngrams(candidates, starts, counts, slots, self.ngrams, draws)
        return corruption.choose_words(candidates, starts, counts, slots, draws)

    @property
    def _decides_by_word(self) -> bool:
        return self.by_word and self.word_starts is not None and self.ngrams is None

    def _place_draws(self, length: int) -> int:
        if self.token_weights is not None or (self.count == "independent" and self.word_starts is None):
            return length
        # Half a draw for each position and one to scramble; whole draws for the n-grams, one for the count.
        if self.walk is not None:
            return -(-length // 2) + 1 + 2 * -(-length // corruption.WINDOW)
        further = length * (self.ngrams is not None) + (self.count != "rounded" or self._decides_by_word)
        return -(-length // 2) + 1 + further


def masking_for(rule: str, length: int, slots: int | None, **settings) -> TokenMasking:
    """The masking rule of a model family, with the settings of a run.

    Args:
        rule: one of `RULES`.
        length: tokens per row.
        slots: maximum number of tokens to predict per row. Default: `rate` of the row; six standard deviations more if
            the number is random; 8 tokens more if the last word is always completed.
        settings: arguments of `TokenMasking`.
    """
    if rule not in RULES:
        raise ValueError(f"`rule` must be one of {', '.join(RULES)}. Received: {rule!r}.")
    masking = TokenMasking(**{**settings, **RULES[rule]}, slots=slots or 1)
    if slots is not None:
        return masking
    mean = length * masking.rate
    if masking.token_weights is not None:
        slots = int(np.ceil(mean))
    elif masking.count == "independent" or masking._decides_by_word:
        slots = int(np.ceil(mean + 6 * np.sqrt(mean * (1 - masking.rate))))
    elif masking.count == "drawn":
        slots = int(mean) + 1
    else:
        slots = int(corruption.num_to_predict(np.array(length), masking.rate, length))
        slots += 8 * (masking.walk is not None and masking.word_starts is not None)
    return dataclasses.replace(masking, slots=min(length, slots))


def ngram_shares(longest: int) -> tuple[float, ...]:
    """p(n) proportional to 1 / n.

    3 -> 6/11, 3/11, 2/11
    """
    weights = 1 / np.arange(1, longest + 1)
    return tuple((weights / weights.sum()).tolist())


def albert_word_starts(tokens: list[str]) -> np.ndarray:
    """Pieces that begin a word by ALBERT's rule for SentencePiece, bool (vocabulary,).

    A piece begins a word if it starts with "▁" or "<", is a single punctuation mark, or contains anything but letters
    a-z and punctuation, which excludes the apostrophe:
    "ing", "s", "..." -> False; ",", "9", "é", "'s" -> True
    """
    punctuation = set('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
    plain = punctuation | set("abcdefghijklmnopqrstuvwxyz") | set("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return np.array(
        [
            token[:1] in ("▁", "<") or (len(token) == 1 and token in punctuation) or not plain >= set(token)
            for token in tokens
        ]
    )


def rare_first_weights(counts: np.ndarray, exponent: float = 0.5) -> np.ndarray:
    """Weights max(count, 1) ** -exponent for XLM's choice of tokens; 0 for tokens that never occur (special tokens).

    counts 100, 4, 0, exponent 0.5 -> 0.1, 0.5, 0
    """
    return np.where(counts > 0, np.maximum(counts, 1.0) ** -exponent, 0.0)
