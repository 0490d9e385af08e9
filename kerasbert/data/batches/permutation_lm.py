"""Batches for permutation language modeling."""

import numpy as np

from ..corpus.corpus import Corpus
from ..corpus.packing import truncation
from ..corpus.streams import TokenStream
from ..noise.corruption import positions_of
from ..noise.permutations import SpanTargets, order_ranks, random_order
from ..sampling import DYNAMIC, row_draws
from .batches import Batches
from .passes import tokenizer_info_of


class PermutationLMBatches(Batches):
    """Batches for XLNet. Each row has a part that fills the memory, followed by a pair of segments.

    A row consists of two parts, [`reuse_length` tokens of text] [A SEP B SEP CLS], without padding. Each part has a
    separate random order. x contains:

    - "token_ids" (b, s), in which no token is masked.
    - "query_ranks", "key_ranks" (b, s), which determine the attention mask (see `order_ranks`). Tokens of the second
      part attend to all tokens of the first part, but not the other way round.
    - "segment_ids" (b, s): 0 for the text, A and its SEP, 1 for B and its SEP, 2 for CLS.
    - "masked_positions" (b, p): the positions to predict, ascending, -1 in unused slots.
    - "stream_start" (b,): True in the first step of every pass.
    - "backward" (b,), with `bidirectional_data`: True for rows that are read from right to left.

    y: the tokens to predict (b, p), with weight 1 in used slots.

    The text is divided into as many columns of equal length as there are rows. In every step, row r starts in column r,
    `reuse_length` tokens after its start in the previous step, so that the text of A is read again in the first part of
    a later row. Half of the segments B follow A in the text, and the others come from a random position in the column.
    Both segments are extended to whole sentences, and then truncated on the right. Paper: Yang et al. 2019,
    arXiv 1906.08237, sections 2.3 to 2.5, and the official code.

    Args:
        corpus: a `Corpus` whose tokenizer has tokens for cls and sep. If it also has a token "<eod>", that token
            follows every document.
        batch_size: rows per update. It must be even with `bidirectional_data`.
        length: tokens per row.
        seed: seed of the pairs, the targets, and the orders.
        steps: number of updates in the run. Default: one pass over the columns.
        reuse_length: number of tokens in the first part. Default: half of `length`. With 0, there is no first part and
            no "stream_start", for a model without a memory, and the rows of a column do not overlap.
        bidirectional_data: whether the second half of the rows reads the columns of the first half from right to left.
        noise: the rule that selects the tokens to predict. Default: `SpanTargets()`. Its `max_predictions` is divided
            equally between the two parts of a row.
        permutation_size: size of the chunks within which tokens are permuted. Default: the whole part.

    Raises:
        ValueError: if `length`, `reuse_length` and `permutation_size` do not fit together, `batch_size` is odd with
            `bidirectional_data`, or the text is too short for so many columns.
    """

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        length: int,
        seed: int = 0,
        steps: int | None = None,
        reuse_length: int | None = None,
        bidirectional_data: bool = False,
        noise: SpanTargets | None = None,
        permutation_size: int | None = None,
    ):
        noise = noise or SpanTargets()
        info = tokenizer_info_of(corpus, "cls", "sep")
        reuse = length // 2 if reuse_length is None else reuse_length
        _check_parts(length, reuse, permutation_size)
        if bidirectional_data and batch_size % 2:
            raise ValueError(f"`batch_size` must be even with bidirectional_data. Received: {batch_size}.")
        self.corpus, self.length, self.reuse_length = corpus, length, reuse
        self.bidirectional_data, self.noise, self.permutation_size = bidirectional_data, noise, permutation_size
        self.max_predictions = noise.num_slots(length)
        self._sep, self._cls = np.int32(info["sep_id"]), np.int32(info["cls_id"])
        end = corpus.tokenizer().backend.token_to_id("<eod>")
        self._special = [token for token in (self._sep, self._cls, end) if token is not None]
        self._stream = TokenStream(corpus, end)
        self._sentences = _sentence_bounds(corpus, self._stream)
        self._word_starts = corpus.tokenizer().word_boundaries

        self._columns = batch_size // 2 if bidirectional_data else batch_size
        self._size = len(self._stream) // max(1, self._columns)  # tokens per column
        self._max_tokens = length - reuse - 3  # tokens in A and B together
        self.steps_per_pass = -(-(self._size - reuse - self._max_tokens) // (reuse or self._max_tokens))
        if self.steps_per_pass < 1:
            raise ValueError(
                f"The text is divided into {self._columns} columns, each of which needs more than the "
                f"{reuse + self._max_tokens} tokens of a row. Received: a corpus of {len(self._stream)} tokens. Use a "
                "smaller `batch_size`, or a smaller `length`."
            )
        second = self.max_predictions // 2 if reuse else self.max_predictions
        self._blocks = [
            (slice(first, last), goal)
            for first, last, goal in ((0, reuse, self.max_predictions - second), (reuse, length, second))
            if last > first
        ]
        super().__init__(batch_size, self.steps_per_pass if steps is None else steps, seed)

    @property
    def single_step(self) -> str:
        return "rows for a model with a memory continue from step to step" if self.reuse_length else ""

    def recipe(self) -> dict:
        names = ("reuse_length", "bidirectional_data", "permutation_size")
        noise = self.noise
        return {
            **super().recipe(),
            "corpus": self.corpus.fingerprint,
            **{name: getattr(self, name) for name in names},
            **{"partial_prediction": noise.partial, "max_span": noise.longest, "whole_words": noise.whole_words},
            "max_predictions": self.max_predictions,
        }

    def _rows(self, update: int, first: int, last: int) -> tuple:
        rows = np.arange(first, last)
        backward, column = rows >= self._columns, rows % self._columns
        step = update % self.steps_per_pass
        sizes = [part.stop - part.start for part, _ in self._blocks]
        counts = [
            3,
            *(
                self.noise.num_draws(size, goal) + size // 2 + 2
                for (_, goal), size in zip(self._blocks, sizes, strict=True)
            ),
        ]
        draws = row_draws(self.seed, update, DYNAMIC, first, len(rows), sum(counts))
        draws = np.split(draws[:, : sum(counts)], np.cumsum(counts)[:-1], axis=1)

        begin = step * (self.reuse_length or self._max_tokens)
        places, length_a = self._layout(column, backward, begin, draws[0])
        text = places >= 0
        tokens = self._stream[np.where(text, np.where(backward[:, None], len(self._stream) - 1 - places, places), 0)]
        tokens = np.where(text, tokens, self._sep)
        tokens[:, -1] = self._cls
        after_a = np.arange(self.length) > self.reuse_length + length_a[:, None]
        segments = after_a.astype(np.int32)
        segments[:, -1] = 2

        x = {"token_ids": tokens, "segment_ids": segments}
        x |= {"query_ranks": np.empty_like(tokens), "key_ranks": np.empty_like(tokens)}
        targets = np.empty(tokens.shape, dtype=bool)
        for (part, goal), raw in zip(self._blocks, draws[1:], strict=True):
            read = tokens[:, part].copy()
            read[backward] = read[backward, ::-1]  # in reading order
            starts = self._word_starts(read, self._after_special(read))
            hidden = self.noise(starts, goal, raw)
            hidden[backward] = hidden[backward, ::-1]
            size = part.stop - part.start
            order = random_order(size, self.permutation_size or size, raw[:, self.noise.num_draws(size, goal) :])
            queries, keys = order_ranks(hidden, ~text[:, part], order)
            # Larger ranks let the second part attend to all of the first part, and prevent the reverse.
            base = part.start + (part.start > 0)
            x["query_ranks"][:, part], x["key_ranks"][:, part] = queries + base, keys + base
            targets[:, part] = hidden & text[:, part]
        x["masked_positions"] = positions = positions_of(targets, self.max_predictions)
        if self.reuse_length:
            x["stream_start"] = np.full(len(rows), step == 0)
        if self.bidirectional_data:
            x["backward"] = backward
        used = positions >= 0
        y = np.where(used, np.take_along_axis(tokens, np.maximum(positions, 0), axis=1), np.int32(0))
        return x, y, used.astype(np.float32)

    def _after_special(self, tokens: np.ndarray) -> np.ndarray:
        """bool (b, s), True at tokens behind a special token."""
        found = np.zeros(tokens.shape, dtype=bool)
        found[:, 1:] = np.isin(tokens[:, :-1], self._special)
        return found

    def _layout(self, column: np.ndarray, backward: np.ndarray, begin: int, draws: np.ndarray) -> tuple:
        """Selects the segments A and B of every row.

        Args:
            column: int (b,), the column of each row.
            backward: bool (b,), whether the row is read from right to left.
            begin: position in the column at which all rows begin.
            draws: random integers, uint32 (b, 3).

        Returns: int (b, s), the position of each token in the stream (counted in reading direction), or -1 for special
            tokens; and int (b,), the number of tokens in A.
        """
        total, size, max_tokens = len(self._stream), self._size, self._max_tokens
        start = np.where(backward, total - (column + 1) * size, column * size)
        stop, a = start + size, start + begin + self.reuse_length
        cuts, after, before = (np.empty_like(a) for _ in range(3))
        for way in (False, True):
            here, bounds = backward == way, self._bounds(way)
            cuts[here] = np.searchsorted(bounds, a[here], side="right")
            after[here] = np.searchsorted(bounds, a[here] + max_tokens)
        num_cuts = after - cuts
        cut = cuts + _below(draws[:, 1], num_cuts)
        end = np.minimum(self._at(backward, after), stop)
        random = (num_cuts == 0) | (draws[:, 0] < 2**31)
        end_a = np.where(num_cuts == 0, end, self._at(backward, cut))
        # B begins where A ends, or at a random position. A random B is extended to whole sentences.
        least = np.maximum(1, max_tokens - (end_a - a))
        begin_b = start + _below(draws[:, 2], size - least + 1)
        end_b = begin_b + least
        for way in (False, True):
            here, bounds = backward == way, self._bounds(way)
            before[here] = bounds[np.searchsorted(bounds, begin_b[here], side="right") - 1]
            after[here] = bounds[np.searchsorted(bounds, end_b[here])]
        begin_b = np.where(random, np.maximum(before, start), end_a)
        end_b = np.where(random, np.minimum(after, stop), end)
        drops_a, _ = truncation(end_a - a, end_b - begin_b, max_tokens)
        length_a = end_a - a - drops_a

        columns = np.arange(self.length) - self.reuse_length
        places = a[:, None] + columns  # the first part, followed by A
        places = np.where(columns > length_a[:, None], begin_b[:, None] + columns - length_a[:, None] - 1, places)
        places[(columns == length_a[:, None]) | (columns >= max_tokens + 1)] = -1
        return places, length_a

    def _bounds(self, backward: bool) -> np.ndarray:
        """Start of each sentence in the stream, followed by the length of the stream, for one reading direction."""
        return len(self._stream) - self._sentences[::-1] if backward else self._sentences

    def _at(self, backward: np.ndarray, number: np.ndarray) -> np.ndarray:
        return np.where(backward, self._bounds(True)[number], self._bounds(False)[number])


def _sentence_bounds(corpus: Corpus, stream: TokenStream) -> np.ndarray:
    """Start of each sentence in the stream, followed by the length of the stream: int64 (sentences + 1,).

    The positions differ from `corpus.sequence_starts`, because the stream has an end token after each document.
    """
    documents = np.searchsorted(corpus.document_starts, np.arange(corpus.num_sequences), side="right") - 1
    ends = stream.starts[documents] - corpus.sequence_starts[corpus.document_starts[documents]]
    return np.append(corpus.sequence_starts + ends, len(stream)).astype(np.int64)


def _below(draws: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Converts random integers to the range [0, limit). The result is 0 where the limit is 0."""
    return (draws.astype(np.int64) * np.asarray(limits, dtype=np.int64)) >> 32


def _check_parts(length: int, reuse: int, permutation_size: int | None) -> None:
    if reuse < 0 or length - reuse < 5:
        raise ValueError(
            "`length` must leave space for two segments and three special tokens after `reuse_length`, which must not "
            f"be negative. Received: length={length}, reuse_length={reuse}. Use a length of at least "
            f"{max(reuse, 0) + 5}."
        )
    size = permutation_size
    if size is not None and (size < 1 or reuse % size or length % size):
        raise ValueError(
            "`permutation_size` must divide the number of tokens in both parts of a row. Received: "
            f"{size} for {reuse} and {length - reuse} tokens."
        )
