"""Batches for permutation language modelling."""

import numpy as np

from ..corpus.corpus import Corpus
from ..corpus.packing import truncation
from ..corpus.streams import TokenStream
from ..noise.corruption import positions_of
from ..noise.permutations import SpanTargets, order_ranks, random_order
from ..sampling import DYNAMIC, row_draws
from .batches import Batches
from .passes import tokenizer_info_of
from .settings import SettingsBatches


class PermutationLMBatches(SettingsBatches, Batches):
    """Rows for XLNet: text that goes into the memory, then a pair of segments, each part in a separate random order.

    A row is [text of `reuse_length`] [A SEP B SEP CLS], without padding. No token is masked in "token_ids" (b, s);
    "query_ranks" and "key_ranks" (b, s) determine who attends to whom: the first part never to the second, the second
    to all of the first. "segment_ids" (b, s) are 0 for text, A and its SEP, 1 for B and its SEP, 2 for CLS.
    "masked_positions" (b, p) are the positions to predict, ascending, -1 in unused slots, y the tokens there, with
    weight 1 in used slots.

    The text is cut into as many equal columns as there are rows, and row r of every step continues in column r,
    `reuse_length` further (so A becomes text of the next step). "stream_start" (b,) is True where the column begins, in
    every pass. Half of all B follow A, the others are from anywhere in the column, and both are extended to whole
    sentences before they are truncated on the right. Papers: Yang et al. 2019, 1906.08237, sections 2.3 to 2.5, and the
    official code.

    Args:
        corpus: a `Corpus` that knows its tokenizer, which has tokens for cls and sep; if it has a token "<eod>", this
            follows every document.
        batch_size: rows per step; must be even with `bidirectional_data`.
        length: tokens per row.
        seed: determines pairs, targets and orders.
        steps: number of steps in the run. Default: one pass over the columns.
        reuse_length: tokens of the first part; default: half of `length`. 0: no first part and no memory, so no
            "stream_start"; rows then follow each other in their column without overlap.
        bidirectional_data: the second half of the rows reads the columns of the first half from right to left, which
            "backward" (b,) tells the backbone.
        noise: the spans to predict; default: `SpanTargets()`. Its `max_predictions` is split equally between both
            parts of a row.
        permutation_size: tokens are permuted within chunks of this size; default: within the whole part.
        accumulation: number of items per update; must be 1 with a memory.
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
        accumulation: int = 1,
        **settings,
    ):
        if settings:
            noise = self.replaced_settings(length, {**settings, "noise": noise})["noise"]
        noise = noise or SpanTargets()
        info = tokenizer_info_of(corpus, "cls", "sep")
        reuse = length // 2 if reuse_length is None else reuse_length
        if reuse < 0 or length - reuse < 5:
            raise ValueError(
                "A row needs space for two segments and three special tokens after `reuse_length`. Received: "
                f"length={length}, reuse_length={reuse}. Leave at least 5 tokens, and do not use a negative value."
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
                "Rows of a stream must continue from step to step, so an update must be one step. Received: "
                f"accumulation={accumulation} with reuse_length={reuse}. Use accumulation=1 or reuse_length=0."
            )
        self.corpus, self.length, self.reuse_length = corpus, length, reuse
        self.bidirectional_data, self.noise, self.permutation_size = bidirectional_data, noise, permutation_size
        self.max_predictions = noise.num_slots(length)
        self._sep, self._cls = np.int32(info["sep_id"]), np.int32(info["cls_id"])
        self._stream = TokenStream(corpus, corpus.tokenizer().backend.token_to_id("<eod>"))
        self._sentences = _sentence_bounds(corpus, self._stream)
        self._word_starts = corpus.word_starts

        self._columns = batch_size // 2 if bidirectional_data else batch_size
        self._size = len(self._stream) // max(1, self._columns)  # tokens of a column
        self._max_tokens = length - reuse - 3  # tokens of A and B
        self.steps_per_pass = -(-(self._size - reuse - self._max_tokens) // (reuse or self._max_tokens))
        if self.steps_per_pass < 1:
            raise ValueError(
                f"Each of the {self._columns} columns needs more than the {reuse + self._max_tokens} tokens of a row. "
                f"Received: a corpus of {len(self._stream)} tokens. Use fewer rows, or shorter ones."
            )
        second = self.max_predictions // 2 if reuse else self.max_predictions
        self._blocks = [
            (slice(first, last), goal)
            for first, last, goal in ((0, reuse, self.max_predictions - second), (reuse, length, second))
            if last > first
        ]
        super().__init__(batch_size, self.steps_per_pass if steps is None else steps, seed, accumulation)

    @staticmethod
    def arguments(
        length: int,
        partial_prediction: int = 6,
        max_predictions: int | None = None,
        max_span: int = 5,
        whole_words: bool = False,
    ) -> dict:
        """The arguments that stand for the settings of a recipe, which are those of `SpanTargets`."""
        return {"noise": SpanTargets(partial_prediction, max_span, whole_words, max_predictions)}

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
            starts = self._word_starts[tokens[:, part]]
            starts[backward] = starts[backward, ::-1]  # word starts follow the reading order
            hidden = self.noise(starts, goal, raw)
            hidden[backward] = hidden[backward, ::-1]
            size = part.stop - part.start
            order = random_order(size, self.permutation_size or size, raw[:, self.noise.num_draws(size, goal) :])
            queries, keys = order_ranks(hidden, ~text[:, part], order)
            # Ranks lie above those of the previous part: its tokens see none of this part, which sees all of them.
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
        """Positions of a row's tokens in the stream in reading order, -1 at special tokens; and the length of A."""
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
        # B begins where A ends, or at a random position and is extended to whole sentences.
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
        """Where sentences begin in the stream when read in the given direction, followed by the end of the stream."""
        return len(self._stream) - self._sentences[::-1] if backward else self._sentences

    def _at(self, backward: np.ndarray, number: np.ndarray) -> np.ndarray:
        return np.where(backward, self._bounds(True)[number], self._bounds(False)[number])


def _sentence_bounds(corpus: Corpus, stream: TokenStream) -> np.ndarray:
    """Where sentences begin in the stream, followed by its end, int64 (sentences + 1,).

    In the stream, documents may be followed by an end token.
    """
    documents = np.searchsorted(corpus.document_starts, np.arange(corpus.num_sequences), side="right") - 1
    ends = stream.starts[documents] - corpus.sequence_starts[corpus.document_starts[documents]]
    return np.append(corpus.sequence_starts + ends, len(stream)).astype(np.int64)


def _below(draws: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Random integers in [0, limit), 0 where that range is empty."""
    return (draws.astype(np.int64) * np.asarray(limits, dtype=np.int64)) >> 32
