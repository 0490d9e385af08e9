"""Batches for permutation language modelling."""

import numpy as np

from ..corpus.corpus import Corpus
from ..corpus.packing import truncation
from ..corpus.streams import TokenStream
from ..noise.permutations import SpanTargets, order_ranks, positions_of, random_order
from ..sampling import DYNAMIC, row_draws
from .batches import Batches
from .passes import facts_of


class PermutationLMBatches(Batches):
    """XLNet's rows: what goes into the memory, then a pair of segments, each part in a random order of its own.

    A row is [text of `reuse_length`] [A SEP B SEP CLS], full to the last token. Nothing is hidden in "token_ids"
    (b, s); "query_ranks" and "key_ranks" (b, s) say who sees whom: nobody in the first part the second, everybody in
    the second the first. "segment_ids" (b, s) are 0 for text, A and its SEP, 1 for B and its SEP, 2 for CLS.
    "masked_positions" (b, p) are the slots, ascending, -1 where unused, y the tokens there, weights 1 in used slots.

    The text is cut into as many equal columns as there are rows, and row r of every step reads on in column r,
    `reuse_length` further (so A becomes text of the next step). "stream_start" (b,) is True where it begins, in every
    pass anew. Half of all B follow A, the others are from anywhere in the column, and both go to whole sentences before
    they are cut at the right. Papers: Yang et al. 2019, 1906.08237, sections 2.3 to 2.5, and the official code.

    Args:
        corpus: a `Corpus` that knows its tokenizer, which has tokens for cls and sep; with a token "<eod>", it stands
            behind every document.
        batch_size: rows of a step; even with `bidirectional_data`.
        length: tokens of a row.
        seed: decides pairs, targets and orders.
        steps: steps in the run. Default: one pass over the columns.
        reuse_length: tokens of the first part; default: half of `length`. 0: no first part and no memory, so no
            "stream_start"; rows then lie side by side in their column.
        bidirectional_data: the second half of the rows reads the columns of the first half from right to left, which
            "backward" (b,) tells the backbone.
        partial_prediction: K: one in so many tokens is predicted.
        max_predictions: slots, in equal parts for both parts of a row; default: length // partial_prediction.
        max_span: most pieces of a span to predict.
        whole_words: spans are of words, as in the paper; the official code counts pieces.
        permutation_size: tokens are permuted within chunks of so many; default: in all of a part.
        accumulation: items that make up an update; without a memory only.
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
        partial_prediction: int = 6,
        max_predictions: int | None = None,
        max_span: int = 5,
        whole_words: bool = False,
        permutation_size: int | None = None,
        accumulation: int = 1,
    ):
        facts = facts_of(corpus, "cls", "sep")
        reuse = length // 2 if reuse_length is None else reuse_length
        if reuse < 0 or length - reuse < 5:
            raise ValueError(
                "A row needs room for two segments and three special tokens behind `reuse_length`. Received: "
                f"length={length}, reuse_length={reuse}. Leave 5 tokens or more."
            )
        if partial_prediction < 1 or max_span < 1 or (max_predictions or 1) < 1:
            raise ValueError(
                "`partial_prediction`, `max_span` and `max_predictions` must be at least 1. Received: "
                f"{partial_prediction}, {max_span}, {max_predictions}."
            )
        if permutation_size is not None and (
            permutation_size < 1 or reuse % permutation_size or length % permutation_size
        ):
            raise ValueError(
                "`permutation_size` must divide both parts of a row. Received: "
                f"{permutation_size} for {reuse} and {length - reuse} tokens."
            )
        if bidirectional_data and batch_size % 2:
            raise ValueError(f"With bidirectional_data, `batch_size` must be even. Received: {batch_size}.")
        if accumulation > 1 and reuse:
            raise ValueError(
                "Rows of a stream must go on from step to step, so an update is one step. Received: "
                f"accumulation={accumulation} with reuse_length={reuse}. Use 1, or reuse_length=0."
            )
        self.corpus, self.length, self.reuse_length = corpus, length, reuse
        self.bidirectional_data, self.partial_prediction = bidirectional_data, partial_prediction
        self.max_predictions = max_predictions or max(1, length // partial_prediction)
        self.max_span, self.whole_words, self.permutation_size = max_span, whole_words, permutation_size
        self._sep, self._cls = np.int32(facts["sep_id"]), np.int32(facts["cls_id"])
        self._stream = TokenStream(corpus, corpus.tokenizer().backend.token_to_id("<eod>"))
        self._sentences = _sentence_bounds(corpus, self._stream)
        self._word_starts = corpus.word_starts

        self._columns = batch_size // 2 if bidirectional_data else batch_size
        self._size = len(self._stream) // max(1, self._columns)  # tokens of a column
        self._room = length - reuse - 3  # tokens of A and B
        self.steps_per_pass = -(-(self._size - reuse - self._room) // (reuse or self._room))
        if self.steps_per_pass < 1:
            raise ValueError(
                f"Each of the {self._columns} columns needs more than the {reuse + self._room} tokens of a row. "
                f"Received: a corpus of {len(self._stream)} tokens. Use fewer rows, or shorter ones."
            )
        second = self.max_predictions // 2 if reuse else self.max_predictions
        self._blocks = [
            (slice(first, last), SpanTargets(goal, partial_prediction, max_span, whole_words))
            for first, last, goal in ((0, reuse, self.max_predictions - second), (reuse, length, second))
            if last > first
        ]
        super().__init__(batch_size, self.steps_per_pass if steps is None else steps, seed, accumulation)

    def recipe(self) -> dict:
        names = ("reuse_length", "bidirectional_data", "partial_prediction", "max_predictions", "max_span")
        return {
            **super().recipe(),
            "corpus": self.corpus.fingerprint,
            **{name: getattr(self, name) for name in (*names, "whole_words", "permutation_size")},
        }

    def _rows(self, update: int, first: int, last: int) -> tuple:
        rows = np.arange(first, last)
        backward, column = rows >= self._columns, rows % self._columns
        step = update % self.steps_per_pass
        sizes = [part.stop - part.start for part, _ in self._blocks]
        counts = [
            3,
            *(targets.num_draws(size) + size // 2 + 2 for (_, targets), size in zip(self._blocks, sizes, strict=True)),
        ]
        draws = row_draws(self.seed, update, DYNAMIC, first, len(rows), sum(counts))
        draws = np.split(draws[:, : sum(counts)], np.cumsum(counts)[:-1], axis=1)

        begin = step * (self.reuse_length or self._room)
        places, length_a = self._layout(column, backward, begin, draws[0])
        text = places >= 0
        tokens = self._stream[np.where(text, np.where(backward[:, None], len(self._stream) - 1 - places, places), 0)]
        tokens = np.where(text, tokens, self._sep)
        tokens[:, -1] = self._cls
        behind_a = np.arange(self.length) > self.reuse_length + length_a[:, None]
        segments = behind_a.astype(np.int32)
        segments[:, -1] = 2

        x = {"token_ids": tokens, "segment_ids": segments}
        x |= {"query_ranks": np.empty_like(tokens), "key_ranks": np.empty_like(tokens)}
        targets = np.empty(tokens.shape, dtype=bool)
        for (part, spans), raw in zip(self._blocks, draws[1:], strict=True):
            starts = self._word_starts[tokens[:, part]]
            starts[backward] = starts[backward, ::-1]  # words begin where reading order says
            hidden = spans(starts, raw)
            hidden[backward] = hidden[backward, ::-1]
            size = part.stop - part.start
            order = random_order(size, self.permutation_size or size, raw[:, spans.num_draws(size) :])
            queries, keys = order_ranks(hidden, ~text[:, part], order)
            # Above every rank of the part before: its tokens see nothing here, and are seen by all.
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

    def _layout(self, column: np.ndarray, backward: np.ndarray, begin: int, draws: np.ndarray) -> tuple:
        """Places of a row's tokens in the stream as the row reads it, -1 at special tokens; and the length of A."""
        total, size, room = len(self._stream), self._size, self._room
        start = np.where(backward, total - (column + 1) * size, column * size)
        stop, a = start + size, start + begin + self.reuse_length
        cuts, after, before = (np.empty_like(a) for _ in range(3))
        for way in (False, True):
            here, bounds = backward == way, self._bounds(way)
            cuts[here] = np.searchsorted(bounds, a[here], side="right")
            after[here] = np.searchsorted(bounds, a[here] + room)
        num_cuts = after - cuts
        cut = cuts + _below(draws[:, 1], num_cuts)
        end = np.minimum(self._at(backward, after), stop)
        random = (num_cuts == 0) | (draws[:, 0] < 2**31)
        end_a = np.where(num_cuts == 0, end, self._at(backward, cut))
        # B goes on where A ends, or begins anywhere and is widened to whole sentences.
        least = np.maximum(1, room - (end_a - a))
        begin_b = start + _below(draws[:, 2], size - least + 1)
        end_b = begin_b + least
        for way in (False, True):
            here, bounds = backward == way, self._bounds(way)
            before[here] = bounds[np.searchsorted(bounds, begin_b[here], side="right") - 1]
            after[here] = bounds[np.searchsorted(bounds, end_b[here])]
        begin_b = np.where(random, np.maximum(before, start), end_a)
        end_b = np.where(random, np.minimum(after, stop), end)
        drops_a, _ = truncation(end_a - a, end_b - begin_b, room)
        length_a = end_a - a - drops_a

        columns = np.arange(self.length) - self.reuse_length
        places = a[:, None] + columns  # the first part, and A behind it
        places = np.where(columns > length_a[:, None], begin_b[:, None] + columns - length_a[:, None] - 1, places)
        places[(columns == length_a[:, None]) | (columns >= room + 1)] = -1
        return places, length_a

    def _bounds(self, backward: bool) -> np.ndarray:
        """Where sentences begin in the stream, read in one of both directions; its end last."""
        return len(self._stream) - self._sentences[::-1] if backward else self._sentences

    def _at(self, backward: np.ndarray, number: np.ndarray) -> np.ndarray:
        return np.where(backward, self._bounds(True)[number], self._bounds(False)[number])


def _sentence_bounds(corpus: Corpus, stream: TokenStream) -> np.ndarray:
    """int64 (sentences + 1,): where each begins in the stream, in which documents may have an end token; its end."""
    documents = np.searchsorted(corpus.document_starts, np.arange(corpus.num_sequences), side="right") - 1
    ends = stream.starts[documents] - corpus.sequence_starts[corpus.document_starts[documents]]
    return np.append(corpus.sequence_starts + ends, len(stream)).astype(np.int64)


def _below(draws: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Integers from [0, limit), 0 where that is empty."""
    return (draws.astype(np.int64) * np.asarray(limits, dtype=np.int64)) >> 32
