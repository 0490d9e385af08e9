"""Batches for masked language modelling."""

from bisect import bisect_left

import numpy as np

from .batches import Batches
from .corpora import Corpus
from .corruption import choose_tokens, choose_words, num_to_predict, replace_tokens
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
        if dupe_factor < 1:
            raise ValueError(f"`dupe_factor` must be at least 1. Received: {dupe_factor}.")
        template = facts["pair" if sentence_pairs else "single"]
        room = length - sum(item not in ("A", "B") for item, _ in template)
        if room < 1 + sentence_pairs:
            raise ValueError(f"`length` must leave room for text beside the special tokens. Received: {length}.")
        self.corpus, self.length = corpus, length
        self.sentence_pairs, self.whole_words, self.static_masks = sentence_pairs, whole_words, static_masks
        self.dupe_factor, self.mask_rate, self.short_sequence_rate = dupe_factor, mask_rate, short_sequence_rate
        self.max_predictions = max_predictions or int(num_to_predict(np.array(length), mask_rate, length))
        self._word_starts = corpus.word_starts if whole_words else None
        self._special = sorted({item for item, _ in template if item not in ("A", "B")})

        starts = corpus.sequence_starts
        starts = np.append(starts, corpus.num_tokens) if sentence_pairs else starts
        if sentence_pairs:
            settings = {"tokens": room, "passes": dupe_factor, "seed": seed, "short_rate": short_sequence_rate}
            documents = _without_repeats(corpus.document_starts)
            self._plan = corpus.plan(
                f"segment_pairs_{length}",
                settings,
                lambda: segment_pairs(starts, documents, room, dupe_factor, seed, short_sequence_rate),
            )
            bounds = [bisect_left(_Column(self._plan, 5), number) for number in range(dupe_factor)]
            self._bounds = np.array([*bounds, len(self._plan)])
        else:
            self._plan = corpus.plan(
                f"chunks_{length}",
                {"tokens": room},
                lambda: [document_chunks(np.append(starts, corpus.num_tokens)[corpus.document_starts], room)],
            )
            self._bounds = np.array([0, len(self._plan)])
        self._last_row = None if steps is not None else int(self._bounds[1])
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
        if self.static_masks:
            draws = [
                row_draws(self.seed, int(duplicate), STATIC, int(instance), 1, self._draws)
                for instance, duplicate in zip(instances.clip(0), duplicates, strict=True)
            ]
            draws = np.concatenate(draws)
        else:
            draws = row_draws(self.seed, update, DYNAMIC, first, last - first, self._draws)
        x["masked_positions"], targets = self._mask(x, draws)
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
    def _draws(self) -> int:
        return self.length + 1 + self.max_predictions

    def _mask(self, x: dict, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        token_ids, facts, slots = x["token_ids"], self.corpus.facts, self.max_predictions
        if "lengths" in x:
            lengths, candidates = x["lengths"], np.arange(self.length, dtype=np.int32) < x["lengths"][:, None]
        else:
            lengths, candidates = x["padding_mask"].sum(axis=1), x["padding_mask"].copy()
        for special in self._special:
            candidates &= token_ids != special
        counts = num_to_predict(lengths, self.mask_rate, slots)
        if self.whole_words:
            positions = choose_words(candidates, self._word_starts[token_ids], counts, slots, draws)
        else:
            positions = choose_tokens(candidates, counts, slots, draws)
        choices = draws[:, self.length + 1 : self.length + 1 + slots]
        return positions, replace_tokens(token_ids, positions, choices, facts["mask_id"], facts["vocabulary_size"])

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


class _Column:
    """One column of a table, for a search that reads only the lines it compares."""

    def __init__(self, table: np.ndarray, column: int):
        self._table, self._column = table, column

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, line: int) -> int:
        return int(self._table[line, self._column])


def _without_repeats(document_starts: np.ndarray) -> np.ndarray:
    """Leaves out documents without sequences, which other writers may have."""
    return document_starts[np.append(True, np.diff(document_starts) > 0)]
