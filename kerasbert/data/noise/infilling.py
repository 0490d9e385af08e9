"""The noise of BART (Lewis et al. 2019, arXiv 1910.13461, section 2.2): text infilling and sentence permutation.

The functions are vectorized over the batch. All rows that they take and return are padded on the right.
"""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from ..corpus.corpus import Corpus
from .span_corruption import Rows, kept

SMALLEST_PROBABILITY = 1e-7  # longer spans are not drawn, as in fairseq
FURTHER_SPANS = 8  # drawn in addition to twice the budget: together, they always reach it
LAST_KEY = 2**32  # sorts behind all draws


@dataclass(frozen=True)
class TextInfilling:
    """Spans of random length become a single mask each, and sentences are shuffled. The target is the whole text.

    Spans begin at random words, and their lengths in words are drawn from a Poisson distribution. A span of length 0
    is a mask between two words. Inputs and targets begin with the first token of the tokenizer (<s>).

    Args:
        rate: share of the words that are removed. Spans that run into each other, or beyond the end of the text, remove
            fewer.
        mean_span: mean length of a span, the parameter of the Poisson distribution, 3 in the paper.
        permute_sentences: whether the sentences of a row are shuffled. A sentence ends with a full stop.
        random_share: probability that a random token replaces the mask of a span, 0.1 in fairseq's recipe.
        whole_words: whether spans consist of whole words, as in fairseq, rather than of tokens.
        mask_id: id of the mask token. Default: that of the tokenizer.

    Raises:
        ValueError: if `rate`, `mean_span` or `random_share` is out of range. For a corpus, if the tokenizer lacks a
            token that the rule needs.
    """

    rate: float = 0.3
    mean_span: float = 3.0
    permute_sentences: bool = True
    random_share: float = 0.0
    whole_words: bool = True
    mask_id: int | None = None

    objective = "text_infilling"
    has_inputs = True
    starts_with_end = True  # decoders start with the end token
    num_first = 1

    def __post_init__(self):
        if not 0 < self.rate < 1:
            raise ValueError(f"`rate` must be above 0 and below 1. Received: {self.rate}.")
        if not 0 < self.mean_span <= 100:
            raise ValueError(f"`mean_span` must be above 0 and at most 100. Received: {self.mean_span}.")
        if not 0 <= self.random_share <= 1:
            raise ValueError(f"`random_share` must be between 0 and 1. Received: {self.random_share}.")

    def for_corpus(self, corpus: Corpus) -> "VocabularyInfilling":
        """Returns the same noise with the ids of the tokenizer of a corpus.

        Raises: ValueError if the tokenizer has no mask token, no first token, or no full stop.
        """
        tokenizer = corpus.tokenizer()
        info = tokenizer.info
        mask_id = info["mask_id"] if self.mask_id is None else self.mask_id
        first_id = info["cls_id"] if info["bos_id"] is None else info["bos_id"]
        if mask_id is None or first_id is None:
            raise ValueError(
                "Text infilling needs a tokenizer with a mask token and a first token. Received: one without "
                f"{'a mask token' if mask_id is None else 'a first token'}."
            )
        stops = np.zeros(info["vocabulary_size"], bool)
        if self.permute_sentences:
            stops[[i for i, token in enumerate(tokenizer.tokens) if token.removeprefix("##").lstrip("Ġ▁") == "."]] = (
                True
            )
            if not stops.any():
                raise ValueError(
                    "Sentences end with a full stop. Received: a vocabulary without the token '.'. Use "
                    "permute_sentences=False."
                )
        starts = np.asarray(corpus.word_starts) if self.whole_words else np.ones(info["vocabulary_size"], bool)
        leading = {info[role] for role in info if role.endswith("_id")}
        first = next(number for number in range(len(leading) + 1) if number not in leading)
        tables = Tables(first_id, mask_id, starts, stops, (first, info["vocabulary_size"]))
        return VocabularyInfilling(**{**self.recipe(), "mask_id": mask_id}, tables=tables)

    def recipe(self) -> dict:
        """Returns what the rows of a run depend on, for JSON."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(TextInfilling)}

    def most(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Numbers of tokens in the inputs, in the targets, and in both together, without end tokens.

        Inputs are almost never longer than the text: only if most spans are empty.

        Args:
            lengths: int (n,), numbers of tokens of texts.
        """
        return lengths + 1, lengths + 1, 2 * lengths + 2

    def num_draws(self, width: int) -> int:
        """Number of 32-bit random integers needed per row."""
        return self._num_spans(width) + 6 * self._widest(width)

    def _num_spans(self, width: int) -> int:
        return 2 * math.ceil(width * self.rate) + FURTHER_SPANS

    def _widest(self, width: int) -> int:
        """Maximum number of tokens in a row: those of the text, and a mask for each span."""
        return width + self._num_spans(width)


@dataclass(frozen=True, eq=False)
class Tables:
    """What text infilling knows about a vocabulary.

    Args:
        first_id: id of the first token of inputs and targets.
        mask_id: id of the mask token.
        starts: bool (vocabulary size,), True for tokens that begin a word.
        stops: bool (vocabulary size,), True for full stops.
        vocabulary: (first, last + 1), the range of ids of random tokens.
    """

    first_id: int
    mask_id: int
    starts: np.ndarray
    stops: np.ndarray
    vocabulary: tuple[int, int]


@dataclass(frozen=True, eq=False)
class VocabularyInfilling(TextInfilling):
    """A `TextInfilling` with the `Tables` of a vocabulary, which `for_corpus` returns."""

    tables: Tables = dataclasses.field(kw_only=True)

    def __call__(self, token_ids: np.ndarray, lengths: np.ndarray, draws: np.ndarray) -> tuple[Rows, Rows]:
        """Corrupts rows of text.

        Args:
            token_ids: int32 (b, s), padded on the right.
            lengths: int (b,), number of tokens in each row.
            draws: random integers, uint32 (b, n), where n is at least `num_draws(s)`.

        Returns: inputs and targets, each as (token ids, lengths), without end tokens.
        """
        width, tables = token_ids.shape[1], self.tables
        spans, rest = draws[:, : self._num_spans(width)], draws[:, self._num_spans(width) : self.num_draws(width)]
        order, places, shares, others, kinds, between = np.split(rest, 6, axis=1)
        text, real = token_ids, np.arange(width) < lengths[:, None]
        if self.permute_sentences:
            text = permuted(text, real, tables.stops[text], order)
        starts = real & (tables.starts[text] | (np.arange(width) == 0))
        counts = np.count_nonzero(starts, axis=1)
        sizes, empty = span_lengths(np.ceil(counts * self.rate).astype(np.int64), self.mean_span, spans)
        spans = at_random_words(starts, sizes, places)
        masks = self._masks(shares[:, :width], others[:, :width])
        rows, left = without_spans(text, real, starts, spans, masks)
        inputs = inserted(rows, left, empty, self._masks(kinds, others), between)
        return self._begun(*inputs), self._begun(token_ids, lengths)

    def _begun(self, token_ids: np.ndarray, lengths: np.ndarray) -> Rows:
        """Puts the first token before every row."""
        return np.pad(token_ids, ((0, 0), (1, 0)), constant_values=self.tables.first_id), lengths + 1

    def _masks(self, shares: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Returns what is put in place of spans, int32: the mask, or with `random_share` a random token."""
        first, last = self.tables.vocabulary
        tokens = first + (others.astype(np.uint64) * np.uint64(last - first) >> np.uint64(32)).astype(np.int64)
        return np.where(shares < round(self.random_share * 2**32), tokens, self.tables.mask_id).astype(np.int32)


def permuted(token_ids: np.ndarray, real: np.ndarray, stops: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Shuffles the sentences of each row. A sentence ends with the first of a series of full stops.

    a b . c d . e, draws 7 2 5 -> c d . e a b .

    Args:
        token_ids: int32 (b, s).
        real: bool (b, s), False at padding.
        stops: bool (b, s), True at full stops.
        draws: uint32 (b, at least s). The sentences are sorted by them.
    """
    ends = stops.copy()
    ends[:, 1:] &= ~stops[:, :-1]
    sentences = np.cumsum(ends, axis=1) - ends
    keys = np.where(real, np.take_along_axis(draws.astype(np.int64), sentences, axis=1), LAST_KEY)
    return np.take_along_axis(token_ids, np.argsort(keys, axis=1, kind="stable"), axis=1)


def span_lengths(budget: np.ndarray, mean: float, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draws lengths of spans from a Poisson distribution until their sum reaches the budget. The last is cut to fit.

    budget 4, lengths 2 0 3 1 -> 2 2, and one empty span

    Args:
        budget: int (b,), numbers of words.
        mean: mean length.
        draws: uint32 (b, k).

    Returns: int (b, k), the lengths above 0 in the order in which they were drawn, then zeros; and int (b,), the
        numbers of empty spans.
    """
    sums = np.cumsum(np.searchsorted(_cumulative(mean), draws, side="right"), axis=1)
    sums[:, -1] = np.maximum(sums[:, -1], budget)
    before = np.pad(sums[:, :-1], ((0, 0), (1, 0)))
    lengths = np.minimum(sums, budget[:, None]) - np.minimum(before, budget[:, None])
    empty = np.count_nonzero((lengths == 0) & (before < budget[:, None]), axis=1)
    order = np.argsort(lengths == 0, axis=1, kind="stable")
    return np.take_along_axis(lengths, order, axis=1), empty


def _cumulative(mean: float) -> np.ndarray:
    """Returns the limits of the draws for the lengths 0, 1, ...: int64, the cumulative probabilities times 2 ** 32."""
    numbers = np.arange(math.ceil(mean) + 200)
    logs = numbers * math.log(mean) - mean - np.array([math.lgamma(number + 1) for number in numbers])
    probabilities = np.exp(logs)
    last = np.flatnonzero(probabilities >= SMALLEST_PROBABILITY)[-1]
    sums = np.cumsum(probabilities[: last + 1])
    return np.rint(sums[:-1] / sums[-1] * 2**32).astype(np.int64)


def at_random_words(starts: np.ndarray, lengths: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Puts spans at different random words. Returns the length of the span at each token, int (b, s), 0 for none.

    Args:
        starts: bool (b, s), True at the first token of each word.
        lengths: int (b, k), lengths of spans, zeros at the end.
        draws: uint32 (b, at least s). The spans are put at the words with the smallest draws, in this order.
    """
    width = starts.shape[1]
    keys = np.where(starts, draws[:, :width].astype(np.int64), LAST_KEY)
    ranks = np.argsort(np.argsort(keys, axis=1, kind="stable"), axis=1, kind="stable")
    padded = np.pad(lengths, ((0, 0), (0, max(0, width - lengths.shape[1]))))
    return np.where(starts, np.take_along_axis(padded, ranks, axis=1), 0)


def without_spans(
    token_ids: np.ndarray, real: np.ndarray, starts: np.ndarray, spans: np.ndarray, masks: np.ndarray
) -> Rows:
    """Replaces each span by one mask: its first token becomes the mask, and its other tokens are left out.

    20 21 ... 29, spans of 2 at 21 and at 26 -> 20 M 23 24 25 M 28 29

    A span inside another one leaves no mask.

    Args:
        token_ids: int32 (b, s).
        real: bool (b, s), False at padding.
        starts: bool (b, s), True at the first token of each word.
        spans: int (b, s), the number of words of the span that begins at each token, 0 for none.
        masks: int32 (b, s), the mask, or another token, for the span that begins at each token.
    """
    words = np.cumsum(starts, axis=1)
    ends = np.maximum.accumulate(np.where(spans > 0, words + spans, 0), axis=1)
    covered = np.pad(ends[:, :-1], ((0, 0), (1, 0))) > words
    return kept(np.where(spans > 0, masks, token_ids), real & ~covered)


def inserted(
    token_ids: np.ndarray, lengths: np.ndarray, counts: np.ndarray, masks: np.ndarray, draws: np.ndarray
) -> Rows:
    """Inserts masks at random places of each row.

    Args:
        token_ids: int32 (b, s), padded on the right.
        lengths: int (b,), number of tokens in each row.
        counts: int (b,), number of masks.
        masks: int32 (b, n), the mask, or another token, for each column of the result.
        draws: uint32 (b, n). The masks are in the columns with the smallest draws.

    Returns: int32 (b, n), the rows with their masks, and int (b,), their lengths.
    """
    totals = lengths + counts
    columns = np.arange(draws.shape[1])
    keys = np.where(columns < totals[:, None], draws.astype(np.int64), LAST_KEY)
    ranks = np.argsort(np.argsort(keys, axis=1, kind="stable"), axis=1, kind="stable")
    is_mask = ranks < counts[:, None]
    sources = np.minimum(np.cumsum(~is_mask, axis=1) - 1, token_ids.shape[1] - 1)
    found = np.where(is_mask, masks, np.take_along_axis(token_ids, np.maximum(sources, 0), axis=1))
    return np.where(columns < totals[:, None], found, 0).astype(np.int32), totals
