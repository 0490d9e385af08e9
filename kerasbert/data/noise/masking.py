"""The masking rules of the papers: who may be hidden, how many, by piece, word or n-gram, and what replaces them."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np

from . import corruption

# Where the families differ; what is not named is BERT's. First tokens and special tokens may be hidden or not, counts
# are exact or come out of draws, and random tokens leave the leading special ids out or not. (ModernBERT's code draws
# them below the largest id of the batch; rows that do not depend on each other take the whole vocabulary.)
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
    """Hides `rate` of a row's tokens, or of its words or n-grams of words.

    Args:
        mask_id: the token that hides others.
        vocabulary_size: random tokens come from [random_from, vocabulary_size).
        special_ids: tokens that are never hidden.
        slots: most tokens to predict a row.
        rate: share of the row's length to predict.
        word_starts: bool (vocabulary,), to hide whole words; None hides pieces.
        shares: of hidden tokens that become the mask, and that stay.
        count: "rounded" (of rate * length), "drawn" (rounded up or down so that the mean is exact) or "independent"
            (every token by itself).
        random_from: first id that may take a token's place at random.
        skip_first: never hide a row's first token.
        by_word: of words, count and decide (mask, keep, random) by word, not by piece.
        ngrams: probability of n = 1, 2, ..., to hide n-grams of words.
        token_weights: float (vocabulary,): tokens are chosen in proportion to it.
        walk: n-grams are those of a walk through the row (see `corruption.choose_on_a_walk`), taken from the "left", or
            from "anywhere", until there are enough.
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
        """32-bit draws a row needs: to choose places, then one or two for each slot."""
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
            lengths: (b,), tokens of each row, special tokens included.
            draws: uint32 (b, at least `num_draws(s)`).
            left_padding: rows end, rather than begin, with their tokens.
            never: bool (b, s), tokens that are not to be hidden.

        Returns: positions and targets, int32 (b, slots).
        """
        candidates = self.candidates(token_ids, lengths, left_padding, never)
        positions = self._chosen(token_ids, candidates, lengths, draws)
        place = self._place_draws(token_ids.shape[1])
        choices, further = draws[:, place : place + self.slots], None
        if self._decides_by_word:  # the draw of a word's first piece holds for all of it
            word = np.cumsum(self.word_starts.take(token_ids), axis=1)
            word = np.take_along_axis(word, np.maximum(positions, 0), axis=1)
            leads = np.diff(word, axis=1, prepend=-1) != 0
            lead = np.maximum.accumulate(np.where(leads, np.arange(self.slots), 0), axis=1)
            further = draws[:, place + self.slots : place + 2 * self.slots]
            choices = np.take_along_axis(choices, lead, axis=1)
        kinds = self.mask_id, self.vocabulary_size, self.shares, self.random_from
        return positions, corruption.replace_tokens(token_ids, positions, choices, *kinds, further)

    def candidates(self, token_ids: np.ndarray, lengths: np.ndarray, left_padding: bool, never: np.ndarray | None):
        """bool (b, s): the tokens that may be hidden. Arguments as those of a call."""
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
        # Half a draw for each place, one to scramble; whole draws for the n-grams, one for the count.
        if self.walk is not None:
            return -(-length // 2) + 1 + 2 * -(-length // corruption.WINDOW)
        further = length * (self.ngrams is not None) + (self.count != "rounded" or self._decides_by_word)
        return -(-length // 2) + 1 + further


def masking_for(rule: str, length: int, slots: int | None, **settings) -> TokenMasking:
    """The masking of a family, with settings of a run.

    Args:
        rule: one of `RULES`.
        length: tokens of a row.
        slots: most tokens to predict a row. Default: what `rate` of the row needs; where the number is random, six
            standard deviations more; where a last word is finished, 8 tokens more.
        settings: of `TokenMasking`.
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
    """bool (vocabulary,): pieces that begin a word by ALBERT's rule for SentencePiece.

    A piece begins one if it begins with "▁" or "<", is a single sign, or holds anything but a-z and signs:
    "ing", "s", "..." -> False; ",", "9", "é", "'s" -> True
    """
    signs = set('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
    plain = signs | set("abcdefghijklmnopqrstuvwxyz") | set("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return np.array(
        [token[:1] in ("▁", "<") or (len(token) == 1 and token in signs) or not plain >= set(token) for token in tokens]
    )


def rare_first_weights(counts: np.ndarray, exponent: float = 0.5) -> np.ndarray:
    """Weights max(count, 1) ** -exponent for XLM's choice of tokens; tokens that never occur, specials, have 0.

    counts 100, 4, 0, exponent 0.5 -> 0.1, 0.5, 0
    """
    return np.where(counts > 0, np.maximum(counts, 1.0) ** -exponent, 0.0)
