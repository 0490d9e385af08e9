"""Batches for masked language modelling."""

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from .batches import Batches
from .corpora import Corpus
from .corruption import num_to_predict
from .masking import TokenMasking
from .examples import fill_rows
from .packing import document_chunks, segment_pairs
from .sampling import DYNAMIC, STATIC, row_draws, shuffled


class MaskedLMBatches(Batches):
    """Rows for masked language modelling, with or without BERT's next-sentence pairs.

    x: "token_ids" (b, s), "lengths" (b,) or "padding_mask" (b, s), "masked_positions" (b, p) with -1 in unused slots,
    and "segment_ids" (b, s) with pairs. y: the tokens that were there (b, p), weights 1 in used slots. With pairs y and
    weights are dicts of "tokens" and "sentence_pair" (b,), 0 = B follows A, 1 = B is random.

    A run goes through the corpus pass by pass, each in its own order. Paper: Devlin et al. 2018, 1810.04805.

    Args:
        corpus: a `Corpus` that knows its tokenizer.
        batch_size: rows of an update.
        length: tokens of a row, special tokens and padding included.
        seed: decides pairs, order and masks.
        steps: updates in the run. Default: one pass over the text, each row once, the last batch filled up with
            rows of padding that weigh nothing.
        sentence_pairs: pairs of segments with a label; otherwise chunks of documents.
        whole_words: mask words, not pieces. A word that would exceed the count is skipped.
        static_masks: a row has the same mask whenever the same pass of `dupe_factor` comes round; otherwise masks
            are new in every step.
        dupe_factor: passes that differ in their pairs and static masks.
        mask_rate: share of tokens to predict, special tokens counted.
        max_predictions: most tokens to predict a row. Default: `mask_rate` of `length`.
        short_sequence_rate: share of documents that are cut into shorter pairs.
        accumulation: items that make up an update.
    """

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        length: int,
        seed: int = 0,
        steps: int | None = None,
        sentence_pairs: bool = False,
        whole_words: bool = False,
        static_masks: bool = False,
        dupe_factor: int = 10,
        mask_rate: float = 0.15,
        max_predictions: int | None = None,
        short_sequence_rate: float = 0.1,
        accumulation: int = 1,
    ):
        facts = corpus.facts
        if facts is None:
            raise ValueError("The corpus must know its tokenizer. Open it with Corpus.open(path, tokenizer=...).")
        if facts["mask_id"] is None or facts["pad_id"] is None:
            raise ValueError("Masked language modelling needs a tokenizer with a mask and a pad token.")
        if not 0 < mask_rate < 1:
            raise ValueError(f"`mask_rate` must be between 0 and 1. Received: {mask_rate}.")
        if dupe_factor < 1 or (max_predictions or 1) < 1:
            raise ValueError(
                f"`dupe_factor` and `max_predictions` must be at least 1. Received: {dupe_factor}, {max_predictions}."
            )
        template = facts["pair" if sentence_pairs else "single"]
        room = length - sum(item not in ("A", "B") for item, _ in template)
        if room < 1 + sentence_pairs:
            raise ValueError(f"`length` must leave room for text beside the special tokens. Received: {length}.")
        self.corpus, self.length = corpus, length
        self.sentence_pairs, self.whole_words, self.static_masks = sentence_pairs, whole_words, static_masks
        self.dupe_factor, self.mask_rate, self.short_sequence_rate = dupe_factor, mask_rate, short_sequence_rate
        self.max_predictions = max_predictions or int(num_to_predict(np.array(length), mask_rate, length))
        self._masking = TokenMasking(
            mask_id=facts["mask_id"],
            vocabulary_size=facts["vocabulary_size"],
            special_ids=tuple(sorted({item for item, _ in template if item not in ("A", "B")})),
            slots=self.max_predictions,
            rate=mask_rate,
            word_starts=corpus.word_starts if whole_words else None,
        )

        self._plan, self._bounds = (self._pairs if sentence_pairs else self._chunks)(room, seed)
        self._last_row = None if steps is not None else self.num_rows
        updates = -(-self._last_row // batch_size) if steps is None else steps
        super().__init__(batch_size, updates, seed, accumulation)

    def recipe(self) -> dict:
        names = ("sentence_pairs", "whole_words", "static_masks", "dupe_factor", "mask_rate", "max_predictions")
        return {
            **super().recipe(),
            "corpus": self.corpus.fingerprint,
            **{name: getattr(self, name) for name in (*names, "short_sequence_rate")},
        }

    def _rows(self, update: int, first: int, last: int) -> tuple:
        instances, duplicates = self._instances(update * self.batch_size + np.arange(first, last))
        plan = np.asarray(self._plan[np.maximum(instances, 0)])
        tokens, real = self.corpus.tokens, instances >= 0
        columns = ((0, 1), (2, 3)) if self.sentence_pairs else ((0, 1),)
        rows = [
            tuple(tokens[line[start] : line[start] + line[size]] for start, size in columns) if there else ()
            for line, there in zip(plan.tolist(), real.tolist(), strict=True)
        ]
        x = fill_rows(self.corpus.facts, rows, self.length, segments=self.sentence_pairs)
        draws = self._masking.num_draws(self.length)
        if self.static_masks:
            marks = zip(instances.clip(0).tolist(), duplicates.tolist(), strict=True)
            draws = np.concatenate([row_draws(self.seed, d, STATIC, i, 1, draws) for i, d in marks])
        else:
            draws = row_draws(self.seed, update, DYNAMIC, first, last - first, draws)
        left = "padding_mask" in x
        lengths = x["padding_mask"].sum(axis=1) if left else x["lengths"]
        x["masked_positions"], targets = self._masking(x["token_ids"], lengths, draws, left)
        weights = (x["masked_positions"] >= 0).astype(np.float32)
        if not self.sentence_pairs:
            return x, targets, weights
        labels = np.where(real, plan[:, 4], 0).astype(np.int32)
        return (
            x,
            {"tokens": targets, "sentence_pair": labels},
            {"tokens": weights, "sentence_pair": real.astype(np.float32)},
        )

    @property
    def num_rows(self) -> int:
        """Rows of one pass over the text."""
        return int(self._bounds[1])

    def _chunks(self, room: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """The plan, and where each of the passes that differ begins in it."""
        corpus = self.corpus

        def build() -> list[np.ndarray]:
            starts = np.append(corpus.sequence_starts, corpus.num_tokens)
            return [document_chunks(starts[corpus.document_starts], room)]

        plan = corpus.plan(f"chunks_{self.length}", {"tokens": room}, build)
        return plan, np.array([0, len(plan)])

    def _pairs(self, room: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        corpus, passes, short_rate = self.corpus, self.dupe_factor, self.short_sequence_rate

        def build() -> Iterator[np.ndarray]:
            sentences = np.append(corpus.sequence_starts, corpus.num_tokens)
            documents = np.unique(corpus.document_starts)  # other writers may have documents without sentences
            return segment_pairs(sentences, documents, room, passes, seed, short_rate)

        settings = {"tokens": room, "passes": passes, "seed": seed, "short_rate": short_rate}
        plan = corpus.plan(f"segment_pairs_{self.length}", settings, build)
        bounds = [bisect_left(range(len(plan)), number, key=lambda line: plan[line, 5]) for number in range(passes)]
        return plan, np.array([*bounds, len(plan)])

    def _instances(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Plan lines of rows counted from the start of the run, -1 behind the end, and their duplicate."""
        bounds = self._bounds
        cycle, place = np.divmod(places, bounds[-1])
        part = np.searchsorted(bounds, place, side="right") - 1
        passes = cycle * (len(bounds) - 1) + part
        instances = np.full(len(places), -1, dtype=np.int64)
        for number in np.unique(passes):
            here = passes == number
            start = bounds[part[here][0]]
            size = bounds[part[here][0] + 1] - start
            instances[here] = start + shuffled(place[here] - start, int(size), self.seed, int(number))
        if self._last_row is not None:
            instances[places >= self._last_row] = -1
        return instances, passes % self.dupe_factor
