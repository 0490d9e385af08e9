"""Span masking, and the tokens at the boundaries of spans, as in SpanBERT (Joshi et al. 2019, arXiv 1907.10529)."""

from dataclasses import dataclass

import numpy as np

SCHEMES = ("spans", "words", "pieces")


def geometric_lengths(chance: float = 0.2, longest: int = 10) -> tuple[float, ...]:
    """Probabilities of span lengths 1, 2, ..., `longest`: a truncated geometric distribution, normalised to sum to 1.

    0.2, 3 -> 0.41, 0.328, 0.262
    """
    weights = (1 - chance) ** np.arange(longest)
    return tuple((weights / weights.sum()).tolist())


def spans_to_predict(tokens: np.ndarray, rate: float) -> np.ndarray:
    """Number of tokens to predict per row: ceil(rate * tokens), not counting special tokens.

    rate 0.15: 10, 100, 510 -> 2, 15, 77
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
) -> np.ndarray:
    """Tokens of random spans of whole words, exactly `counts` per row: bool (b, s).

    Spans are added until the count is reached. Each begins at the word of a random free token, all equally likely, and
    covers the drawn number of words, free or not; the count may cut the last word. Drawing among free tokens is
    equivalent to drawing among all and rejecting chosen ones (section 3.1). With `phrases`, a span is with some
    probability one of the phrases that begin with a free token, all equally likely.

    Args:
        candidates: bool (b, s).
        starts: bool (b, s), True where a piece begins a word; the first candidate of a row always does.
        counts: int (b,), at most the number of candidates of a row.
        lengths: probabilities of spans of 1, 2, ... words.
        draws: uint32 (b, at least 3 * the largest count).
        phrases: int (b, s): tokens with the same number above 0 form a phrase.
        phrase_share: probability that a span is a phrase, if one is available.
    """
    words = np.cumsum(starts & candidates, axis=1, dtype=np.int32)
    limits = np.rint(np.cumsum(lengths)[:-1] / np.sum(lengths) * 2**32)
    share = np.float64(phrase_share * 2**32)
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
        first = np.take_along_axis(unit, np.argmax(ranks > rank[:, None].astype(np.int32), axis=1)[:, None], axis=1)
        inside = free & (unit >= first) & (unit < first + size[:, None])
        inside &= np.cumsum(inside, axis=1, dtype=np.int32) <= left[row][:, None]
        chosen[row] |= inside
        left[row] -= np.count_nonzero(inside, axis=1).astype(np.int32)
        turn, row = turn + 1, row[left[row] > 0]
    return chosen


def positions_of(chosen: np.ndarray, slots: int) -> np.ndarray:
    """Positions where each row is True, int32 (b, slots), ascending; -1 in unused slots.

    [[0, 1, 0, 1]], 3 -> [[1, 3, -1]]
    """
    rows, columns = np.nonzero(chosen)
    counts = np.count_nonzero(chosen, axis=1)
    positions = np.full((len(chosen), slots), -1, dtype=np.int32)
    positions[rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)] = columns
    return positions


def span_ends(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and last position of the span (a run without gaps) that contains each slot; meaningless in unused slots.

    [[2, 3, 4, 7]] -> [[2, 2, 2, 7]], [[4, 4, 4, 7]]
    """
    breaks = positions[:, 1:] != positions[:, :-1] + 1
    edge = np.ones((len(positions), 1), dtype=bool)
    first = np.where(np.concatenate([edge, breaks], axis=1), positions, -1)
    is_last = np.concatenate([breaks, edge], axis=1) & (positions >= 0)
    last = np.where(is_last, positions, np.iinfo(np.int32).max)
    return np.maximum.accumulate(first, axis=1), np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]


def span_boundaries(positions: np.ndarray, candidates: np.ndarray, max_targets: int) -> dict[str, np.ndarray]:
    """Inputs of the boundary objective: the positions next to the span of each slot, and the slot's offset in the span.

    x of 10 tokens in [CLS] x [SEP], positions [[3, 4, 5, 8]] -> left [[2, 2, 2, 7]], right [[6, 6, 6, 9]],
    offset [[0, 1, 2, 0]]

    Args:
        positions: int32 (b, p), ascending, -1 in unused slots.
        candidates: bool (b, s): tokens of the text. A span at either end of the text has no boundary term.
        max_targets: maximum number of tokens of a span, from its first, that have a boundary term.

    Returns: `span_left`, `span_right`, `span_offset`, int32 (b, p), all -1 where there is no boundary term.
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


@dataclass(frozen=True)
class SpanMasking:
    """Masks a share `rate` of a row's text in spans; each span is masked, kept or replaced by random tokens as a whole.

    Adjacent spans count as one span. Random tokens have the frequencies of `noise`.

    Args:
        mask_id: id of the mask token.
        special_ids: tokens that are never masked.
        slots: maximum number of tokens to predict per row.
        noise: int (n,): random tokens are drawn from these.
        word_starts: bool (vocabulary,); None treats every piece as a word.
        lengths: probabilities of spans of 1, 2, ... words.
        rate: share of the text to predict.
        by_span: False decides for each token independently.
        shares: shares of the spans that become the mask, and that are kept.
    """

    mask_id: int
    special_ids: tuple[int, ...]
    slots: int
    noise: np.ndarray
    word_starts: np.ndarray | None = None
    lengths: tuple[float, ...] = (1.0,)
    rate: float = 0.15
    by_span: bool = True
    shares: tuple[float, float] = (0.8, 0.1)

    def num_draws(self) -> int:
        """Number of 32-bit draws needed per row: per slot, three for spans, one to decide, one for a random token."""
        return 5 * self.slots

    def candidates(self, token_ids: np.ndarray, real: np.ndarray) -> np.ndarray:
        """bool (b, s): the tokens of the text."""
        for special in self.special_ids:
            real = real & (token_ids != special)
        return real

    def __call__(self, token_ids: np.ndarray, candidates: np.ndarray, draws: np.ndarray, phrases=None, share=0.5):
        """Corrupts int32 `token_ids` (b, s) in place.

        Args:
            candidates: bool (b, s).
            draws: uint32 (b, at least `num_draws()`).
            phrases, share: as in `choose_spans`.

        Returns: positions and targets, int32 (b, slots).
        """
        counts = np.minimum(spans_to_predict(np.count_nonzero(candidates, axis=1), self.rate), self.slots)
        starts = candidates.copy() if self.word_starts is None else self.word_starts.take(token_ids)
        starts[np.arange(len(starts)), np.argmax(candidates, axis=1)] = True
        for_spans, deciding, random = np.split(draws[:, : 5 * self.slots], [3 * self.slots, 4 * self.slots], axis=1)
        chosen = choose_spans(candidates, starts, counts, self.lengths, for_spans, phrases, share)
        positions = positions_of(chosen, self.slots)
        used = positions >= 0
        originals = np.take_along_axis(token_ids, np.maximum(positions, 0), axis=1)
        if self.by_span:
            first = span_ends(positions)[0]
            span = np.cumsum(first == positions, axis=1) - 1
            deciding = np.take_along_axis(deciding, np.maximum(span, 0), axis=1)
        mask_below, keep_below = (round(sum(self.shares[:n]) * 2**32) for n in (1, 2))
        drawn = (random.astype(np.uint64) * np.uint64(len(self.noise))) >> np.uint64(32)
        replaced = np.where(deciding < mask_below, np.int32(self.mask_id), originals)
        swap = used & (deciding >= keep_below)
        replaced[swap] = self.noise[drawn[swap]]
        rows, slots = np.nonzero(used)
        token_ids[rows, positions[rows, slots]] = replaced[rows, slots]
        return positions, np.where(used, originals, 0).astype(np.int32)
