"""Span masking and span boundaries, as in SpanBERT (Joshi et al. 2019, arXiv 1907.10529)."""

import dataclasses
from typing import Any

import numpy as np

from .corruption import positions_of
from .noise import MaskableRows, Noise, check_rate, check_shares

SCHEMES = ("spans", "words", "pieces")


def geometric_lengths(chance: float = 0.2, longest: int = 10) -> tuple[float, ...]:
    """Computes the probabilities of spans of 1, 2, ... `longest` words: a truncated, normalized geometric distribution.

    chance 0.2, longest 3 -> 0.41, 0.328, 0.262
    """
    weights = (1 - chance) ** np.arange(longest)
    return tuple((weights / weights.sum()).tolist())


def spans_to_predict(tokens: np.ndarray, rate: float) -> np.ndarray:
    """Number of tokens to predict per row: ceil(rate * tokens), where `tokens` excludes special tokens.

    tokens 10, 100, 510, rate 0.15 -> 2, 15, 77
    """
    return np.ceil(tokens * rate).astype(np.int32)


def choose_spans(
    candidates: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    lengths: tuple[float, ...],
    draws: np.ndarray,
    phrases: np.ndarray | None = None,
    phrase_share: float = 0.5,
    borders: np.ndarray | None = None,
) -> np.ndarray:
    """Selects exactly `counts` tokens per row, in random spans of whole words.

    Spans are added until the count is reached. A span begins with the word that contains a random token among those not
    selected yet, and has a random number of words, some of which may be selected already. The last span may end within
    a word. This is equivalent to drawing among all tokens and rejecting those already selected (section 3.1). With
    `phrases`, a span may instead be a random phrase whose first token is not selected yet.

    Args:
        candidates: bool (b, s), True at tokens that may be selected.
        starts: bool (b, s), True at tokens that begin a word. The first candidate of a row always begins one.
        counts: int (b,), at most the number of candidates of a row.
        lengths: probabilities of spans of 1, 2, ... words.
        draws: random integers, uint32 (b, n), where n is at least 3 times the largest count.
        phrases: int (b, s), the number of the phrase that contains each token, or 0 if there is none.
        phrase_share: probability that a span is a phrase, if the row has one whose first token is not selected yet.
        borders: bool (b, s), True at tokens that begin a text. No span crosses them.

    Returns: bool (b, s), True at selected tokens.
    """
    words = np.cumsum(starts & candidates, axis=1, dtype=np.int32)
    limits = np.rint(np.cumsum(lengths)[:-1] / np.sum(lengths) * 2**32)
    share = np.float64(phrase_share * 2**32)
    texts = np.cumsum(borders, axis=1, dtype=np.int32) if borders is not None else np.zeros_like(words)
    chosen = np.zeros_like(candidates)
    left = counts.astype(np.int32)
    turn, row = 0, np.flatnonzero(left > 0)
    while len(row):
        where, how_long, which = draws[row, 3 * turn : 3 * turn + 3].T
        free = candidates[row] & ~chosen[row]
        pool, unit, size = free, words[row], 1 + np.searchsorted(limits, how_long, side="right")
        if phrases is not None:
            numbers = phrases[row]
            begins = (numbers > 0) & (numbers != np.pad(numbers, ((0, 0), (1, 0)))[:, :-1]) & free
            is_phrase = ((which < share) & begins.any(axis=1))[:, None]
            pool, unit = np.where(is_phrase, begins, free), np.where(is_phrase, numbers, unit)
            size = np.where(is_phrase[:, 0], 1, size)
        ranks = np.cumsum(pool, axis=1, dtype=np.int32)
        rank = (where.astype(np.uint64) * ranks[:, -1].astype(np.uint64)) >> np.uint64(32)
        place = np.argmax(ranks > rank[:, None].astype(np.int32), axis=1)[:, None]
        first, text = (np.take_along_axis(numbers, place, axis=1) for numbers in (unit, texts[row]))
        inside = free & (unit >= first) & (unit < first + size[:, None]) & (texts[row] == text)
        inside &= np.cumsum(inside, axis=1, dtype=np.int32) <= left[row][:, None]
        chosen[row] |= inside
        left[row] -= np.count_nonzero(inside, axis=1).astype(np.int32)
        turn, row = turn + 1, row[left[row] > 0]
    return chosen


def span_ends(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finds the first and the last position of each slot's span. The result is undefined for unused slots.

    A span consists of consecutive positions.

    [[2, 3, 4, 7]] -> [[2, 2, 2, 7]], [[4, 4, 4, 7]]
    """
    breaks = positions[:, 1:] != positions[:, :-1] + 1
    edge = np.ones((len(positions), 1), dtype=bool)
    first = np.where(np.concatenate([edge, breaks], axis=1), positions, -1)
    is_last = np.concatenate([breaks, edge], axis=1) & (positions >= 0)
    last = np.where(is_last, positions, np.iinfo(np.int32).max)
    return np.maximum.accumulate(first, axis=1), np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]


def span_boundaries(positions: np.ndarray, candidates: np.ndarray, max_targets: int) -> dict[str, np.ndarray]:
    """For each slot, the positions before and after its span, and its offset in the span.

    10 tokens between [CLS] and [SEP], positions [[3, 4, 5, 8]] -> left [[2, 2, 2, 7]], right [[6, 6, 6, 9]],
    offset [[0, 1, 2, 0]]

    Args:
        positions: int32 (b, p), ascending, -1 in unused slots.
        candidates: bool (b, s), True at tokens of the text. Spans at either end of the text are not targets of the
            objective.
        max_targets: maximum number of targets per span. Only the first tokens of a longer span are targets.

    Returns: a dict of "span_left", "span_right" and "span_offset", int32 (b, p), all -1 in slots that are not targets.
    """
    first, last = span_ends(positions)
    left, right, offset = first - 1, last + 1, positions - first
    inside = np.pad(candidates, ((0, 0), (0, 1)))
    used = (positions >= 0) & (left >= 0) & (offset < max_targets)
    for side in (left, right):
        place = np.clip(side, 0, candidates.shape[1])
        used &= np.take_along_axis(inside, place, axis=1)
    found = {"span_left": left, "span_right": right, "span_offset": offset}
    return {name: np.where(used, array, -1).astype(np.int32) for name, array in found.items()}


@dataclasses.dataclass(frozen=True)
class Spans(Noise):
    """Selects spans of whole words. All tokens of a span are masked, kept or replaced together (section 3.1).

    Adjacent spans count as one span. The last span of a row ends where the number of tokens to predict is reached, also
    within a word, as in the authors' code. Random tokens are drawn in proportion to their frequencies in the corpus.

    Args:
        rate: number of tokens to predict, as a share of the text without special tokens.
        geometric: probability that a span ends after each of its words.
        longest: maximum number of words in a span.
        words: whether spans consist of words, instead of single tokens that are masked, kept or replaced independently.
        shares: the share of the spans that become mask tokens, and the share that are kept. The others become random
            tokens.
        max_predictions: maximum number of tokens to predict per row. Default: `rate` of a full row.
        phrases: int (n, 2), start and stop in `corpus.tokens` of phrases, such as entities or noun phrases, that are
            selected as a whole. They must be in ascending order and must not overlap.
        phrase_share: probability that a span is a phrase, if one is available. The paper uses 0.5.

    Raises:
        ValueError: if a number is out of range, or `phrases` overlap, are not in ascending order, or are not within the
            corpus.

    Example:
        >>> from kerasbert.data import Corpus, MaskedLMBatches, Spans, Tokenizer
        >>> tokenizer = Tokenizer.from_preset("bert_mini_en")
        >>> corpus = Corpus.in_memory(["the captain laughed quietly at the door of the house"], tokenizer)
        >>> noise = Spans(rate=0.3, shares=(1.0, 0.0))  # all of them become [MASK]
        >>> x, y, sample_weight = MaskedLMBatches(corpus, batch_size=1, length=12, noise=noise, seed=1)[0]
        >>> tokenizer.decode(x["token_ids"][0], skip_special_tokens=False)
        '[CLS] the captain laughed quietly [MASK] [MASK] door of [MASK] house [SEP]'
    """

    rate: float = 0.15
    _: dataclasses.KW_ONLY
    geometric: float = 0.2
    longest: int = 10
    words: bool = True
    shares: tuple[float, float] = (0.8, 0.1)
    max_predictions: int | None = None
    phrases: np.ndarray | None = dataclasses.field(default=None, repr=False, compare=False)
    phrase_share: float = 0.5

    def __post_init__(self):
        check_rate(self.rate)
        check_shares(self.shares)
        if not (0 < self.geometric < 1 and 0 <= self.phrase_share <= 1):
            raise ValueError(
                "`geometric` must be above 0 and below 1, and `phrase_share` between 0 and 1. Received: "
                f"{self.geometric}, {self.phrase_share}."
            )
        if self.longest < 1 or (self.max_predictions or 1) < 1:
            raise ValueError(
                f"`longest` and `max_predictions` must be at least 1. Received: {self.longest}, {self.max_predictions}."
            )
        if self.phrases is not None:
            object.__setattr__(self, "phrases", _checked_phrases(self.phrases))

    @classmethod
    def of_scheme(cls, scheme: str = "spans", geometric: float = 0.2, longest: int = 10, **settings: Any) -> "Spans":
        """Builds one of the masking schemes of section 5.1: random "spans", single whole "words", or single "pieces".

        Args:
            scheme: "spans", "words" or "pieces".
            geometric, longest: as in `Spans`. `longest` is only used by "spans".
            **settings: other arguments of `Spans`.

        Raises:
            ValueError: if `scheme` is unknown.
        """
        if scheme not in SCHEMES:
            raise ValueError(f"`scheme` must be one of {', '.join(SCHEMES)}. Received: {scheme!r}.")
        words = scheme != "pieces"
        return cls(geometric=geometric, longest=longest if scheme == "spans" else 1, words=words, **settings)

    def for_corpus(self, corpus: Any) -> "Spans":
        if self.phrases is not None and self.phrases[-1, 1] > corpus.num_tokens:
            raise ValueError(
                f"`phrases` must be within the corpus of {corpus.num_tokens} tokens. Received: "
                f"{self.phrases[-1].tolist()}."
            )
        return self

    def num_slots(self, length: int, num_special: int) -> int:
        return self.max_predictions or int(spans_to_predict(np.array(length - num_special), self.rate))

    def choice_draws(self, length: int, num_slots: int) -> int:
        return 3 * num_slots

    def num_draws(self, length: int, num_slots: int) -> int:
        """Number of draws per row. Each slot needs five: three to place spans, and two to replace the token."""
        return 5 * num_slots

    def choose(self, rows: MaskableRows, draws: np.ndarray) -> np.ndarray:
        candidates = rows.text
        counts = np.minimum(spans_to_predict(np.count_nonzero(candidates, axis=1), self.rate), rows.num_slots)
        starts = rows.word_starts if self.words else candidates
        starts = starts.copy()
        starts[np.arange(len(starts)), np.argmax(candidates, axis=1)] = True
        lengths, phrases = geometric_lengths(self.geometric, self.longest), self._phrases_of(rows)
        chosen = choose_spans(candidates, starts, counts, lengths, draws, phrases, self.phrase_share, rows.borders)
        return positions_of(chosen, rows.num_slots)

    def __call__(self, rows: MaskableRows, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        slots, token_ids, corpus_tokens = rows.num_slots, rows.token_ids, rows.vocabulary.corpus.tokens
        positions = self.choose(rows, draws[:, : 3 * slots])
        deciding, random = draws[:, 3 * slots : 4 * slots], draws[:, 4 * slots : 5 * slots]
        used = positions >= 0
        originals = np.take_along_axis(token_ids, np.maximum(positions, 0), axis=1)
        if self.words:
            first = span_ends(positions)[0]
            span = np.cumsum(first == positions, axis=1) - 1
            deciding = np.take_along_axis(deciding, np.maximum(span, 0), axis=1)
        mask_below, keep_below = (round(sum(self.shares[:n]) * 2**32) for n in (1, 2))
        drawn = (random.astype(np.uint64) * np.uint64(len(corpus_tokens))) >> np.uint64(32)
        replaced = np.where(deciding < mask_below, np.int32(rows.vocabulary.mask_id), originals)
        swap = used & (deciding >= keep_below)
        replaced[swap] = corpus_tokens[drawn[swap]]
        row, slot = np.nonzero(used)
        token_ids[row, positions[row, slot]] = replaced[row, slot]
        return positions, np.where(used, originals, 0).astype(np.int32)

    def _phrases_of(self, rows: MaskableRows) -> np.ndarray | None:
        """int (b, s), the number of the phrase that contains each token, counted from 1, or 0 if there is none."""
        if self.phrases is None:
            return None
        places = rows.places()
        if places is None:
            raise ValueError(
                "`phrases` requires rows that are contiguous in the corpus. Received: a layout whose rows are not. Use "
                'rows="chunks" or rows="sentences".'
            )
        number = np.searchsorted(self.phrases[:, 0], places, side="right")
        inside = (places >= 0) & (number > 0) & (places < self.phrases[np.maximum(number, 1) - 1, 1])
        return np.where(inside, number, 0)

    def settings(self) -> dict:
        phrases = None if self.phrases is None else [len(self.phrases), int(self.phrases.sum())]
        return {**super().settings(), "phrases": phrases}


def _checked_phrases(phrases: np.ndarray) -> np.ndarray:
    phrases = np.asarray(phrases)
    if phrases.ndim != 2 or phrases.shape[1] != 2 or not len(phrases) or phrases.dtype.kind not in "iu":
        raise ValueError(
            "`phrases` must be integers (n, 2), the start and stop of each phrase. Received: an array of shape "
            f"{phrases.shape}, {phrases.dtype}."
        )
    phrases = phrases.astype(np.int64)
    in_order = (np.diff(phrases.reshape(-1)) >= 0).all() and (phrases[:, 0] < phrases[:, 1]).all()
    if not in_order or phrases[0, 0] < 0:
        raise ValueError(
            "`phrases` must be in ascending order without overlaps, each with 0 <= start < stop. Received: "
            f"{phrases[:5].tolist()}..."
        )
    return phrases
