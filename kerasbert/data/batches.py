"""Batches: every step of a run as a pure function of the seed and the step."""

import copy
import operator
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .corpora import Corpus
from .corruption import choose_tokens, choose_words, num_to_predict, replace_tokens, row_draws
from .examples import fill_rows
from .packing import document_chunks, segment_pairs

DYNAMIC, STATIC, ORDER = 0, 1, 2  # streams of draws; the plan of pairs has the fourth


class Batches:
    """The steps of a run, with random access: `batches[step]` -> (x, y, sample_weight).

    One item is one call of the model. With `accumulation=k` an update takes k items: item i holds the rows of
    micro-batch i % k of update i // k, and `batch_size` counts the rows of the whole update, so that the run is the
    same for every k. Its x then has "loss_normalizer": the total weight of the update divided by its rows.

    Subclasses give `_rows(update, first, last)`: rows [first, last) of an update.

    Args:
        batch_size: rows of an update.
        updates: number of updates in the run.
        seed: of everything that is random, at least 0.
        accumulation: items that make up an update.
    """

    length: int

    def __init__(self, batch_size: int, updates: int, seed: int = 0, accumulation: int = 1):
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("steps", updates, 0),
            ("seed", seed, 0),
            ("accumulation", accumulation, 1),
        ):
            if operator.index(value) < least:
                raise ValueError(f"`{name}` must be an integer of at least {least}. Received: {value}.")
        if batch_size % accumulation:
            raise ValueError(
                f"`batch_size` must be a multiple of `accumulation`. Received: batch_size={batch_size}, "
                f"accumulation={accumulation}."
            )
        self.batch_size = batch_size
        self.seed = seed
        self.accumulation = accumulation
        self._items = updates * accumulation
        self._start = 0
        self._part, self._parts = 0, 1
        self._latest: tuple = (None, None)

    def __len__(self) -> int:
        return self._items - self._start

    def __getitem__(self, step: int) -> tuple:
        step = operator.index(step)
        step = step + len(self) if step < 0 else step
        if not 0 <= step < len(self):
            raise IndexError(f"Step {step} is outside this run of {len(self)} steps.")
        update, micro = divmod(self._start + step, self.accumulation)
        first = micro * (self.batch_size // self.accumulation) + self._part * self.rows
        if self.accumulation == 1:
            return self._rows(update, first, first + self.rows)
        if self._latest[0] != update:  # the items of an update come one after the other
            self._latest = (update, self._rows(update, 0, self.batch_size))
        _, (x, y, weight) = self._latest
        normalizer = _map(lambda w: np.full(self.rows, w.sum(dtype=np.float64) / self.batch_size, np.float32), weight)
        x, y, weight = (_map(lambda value: value[first : first + self.rows], part) for part in (x, y, weight))
        return {**x, "loss_normalizer": normalizer}, y, weight

    def __iter__(self) -> Iterator[tuple]:
        return (self[step] for step in range(len(self)))

    @property
    def rows(self) -> int:
        """Rows of one item."""
        return self.batch_size // self.accumulation // self._parts

    @property
    def tokens_per_step(self) -> int:
        """Slots of one item, padding included."""
        return self.rows * self.length

    def starting_at(self, step: int) -> "Batches":
        """The rest of the run from `step` on; step 0 of the result is that step."""
        if not 0 <= step <= len(self):
            raise ValueError(f"`step` must be within the run of {len(self)} steps. Received: {step}.")
        rest = copy.copy(self)
        rest._start += step
        return rest

    def shard(self, index: int, count: int) -> "Batches":
        """One host's part: rows [index, index + 1) / count of every item."""
        if not 0 <= index < count or self.rows % count:
            raise ValueError(
                f"`count` must divide the {self.rows} rows of a step, and `index` be below it. Received: "
                f"index={index}, count={count}."
            )
        part = copy.copy(self)
        part._part, part._parts = self._part * count + index, self._parts * count
        return part

    def recipe(self) -> dict:
        """What decides every row of every step, JSON-able; how long the run is does not."""
        return {
            "batches": type(self).__name__,
            "batch_size": self.batch_size,
            "length": self.length,
            "seed": self.seed,
            "accumulation": self.accumulation,
        }

    def _rows(self, update: int, first: int, last: int) -> tuple:
        raise NotImplementedError


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


class ExampleBatches(Batches):
    """Ready arrays in batches, for fine-tuning; a new order in every pass.

    The last batch of a pass is filled up with rows of padding that weigh nothing.

    Args:
        x: dict of arrays, or one array, with examples along the first axis.
        y: targets, or a dict of them, or None.
        sample_weight: of the form of y. Default: 1 for every example.
        batch_size: rows of a step.
        epochs: passes over the examples.
        seed: of the orders.
        shuffle: False keeps the given order.
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        batch_size: int = 32,
        epochs: int = 1,
        seed: int = 0,
        shuffle: bool = True,
    ):
        self.x, self.y = _map(np.asarray, x), _map(np.asarray, y)
        sizes = {len(array) for part in (self.x, self.y) for array in _leaves(part)}
        if len(sizes) != 1 or 0 in sizes:
            raise ValueError(
                f"All arrays must have the same number of examples, at least one. Received: {sorted(sizes)}."
            )
        self.num_examples = sizes.pop()
        if sample_weight is None:
            ones = np.ones(self.num_examples, dtype=np.float32)
            sample_weight = dict.fromkeys(self.y, ones) if isinstance(self.y, dict) else ones
        self.sample_weight = _map(lambda w: np.asarray(w, dtype=np.float32), sample_weight)
        if {len(array) for array in _leaves(self.sample_weight)} != {self.num_examples}:
            raise ValueError(f"`sample_weight` must have a weight for each of the {self.num_examples} examples.")
        first = self.x["token_ids"] if isinstance(self.x, dict) and "token_ids" in self.x else next(_leaves(self.x))
        self.length = first.shape[-1] if first.ndim > 1 else 1
        self.shuffle = shuffle
        self.steps_per_epoch = -(-self.num_examples // max(1, batch_size))
        super().__init__(batch_size, self.steps_per_epoch * epochs, seed)

    def recipe(self) -> dict:
        return {**super().recipe(), "examples": self.num_examples, "shuffle": self.shuffle}

    def _rows(self, update: int, first: int, last: int) -> tuple:
        number, step = divmod(update, self.steps_per_epoch)
        places = step * self.batch_size + np.arange(first, last)
        real = places < self.num_examples
        chosen = places[real]
        if self.shuffle:
            chosen = shuffled(chosen, self.num_examples, self.seed, number)

        def pick(array: np.ndarray, name: str) -> np.ndarray:
            return _filled(array[chosen], len(places), name)

        return tuple(_map_named(pick, part) for part in (self.x, self.y, self.sample_weight))


def shuffled(places: np.ndarray, size: int, seed: int, number: int) -> np.ndarray:
    """Where `places` of [0, size) go in permutation `number`, computed for these places alone.

    A Feistel network over a grid of about sqrt(size) x sqrt(size) cells; places that it puts beyond `size` are sent
    through again. `shuffled(np.arange(n), n, ...)` is a permutation of 0...n-1.
    """
    width = int(np.ceil(np.sqrt(size)))
    height = -(-size // width)
    generator = np.random.Philox(key=np.array([seed, number], dtype=np.uint64), counter=[0, 0, 0, ORDER])
    keys = generator.random_raw(12)
    places = np.asarray(places, dtype=np.int64)
    result = places.copy()
    moving = np.arange(len(places))
    while len(moving):
        high, low = np.divmod(result[moving], width)
        for turn in range(0, len(keys), 2):
            high = (high + _scrambled(low, keys[turn]) % np.uint64(height)).astype(np.int64) % height
            low = (low + _scrambled(high, keys[turn + 1]) % np.uint64(width)).astype(np.int64) % width
        result[moving] = high * width + low
        moving = moving[result[moving] >= size]
    return result


def _scrambled(values: np.ndarray, key: np.uint64) -> np.ndarray:
    mixed = (values.astype(np.uint64) + key) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    return mixed ^ (mixed >> np.uint64(32))


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


def _filled(array: np.ndarray, rows: int, name: str) -> np.ndarray:
    """Adds rows of padding: -1 where it means an unused slot, otherwise 0."""
    if len(array) == rows:
        return array
    value = -1 if name in ("masked_positions", "span_left", "span_right", "span_offset") else 0
    rest = np.full((rows - len(array), *array.shape[1:]), value, dtype=array.dtype)
    return np.concatenate([array, rest])


def _map(function: Callable, structure: Any) -> Any:
    return _map_named(lambda value, _: function(value), structure)


def _map_named(function: Callable, structure: Any) -> Any:
    """Applies to the arrays of a dict, or to the one array, or to nothing; with the key, or ""."""
    if structure is None:
        return None
    if isinstance(structure, dict):
        return {name: function(value, name) for name, value in structure.items()}
    return function(structure, "")


def _leaves(structure: Any) -> Iterator[np.ndarray]:
    if structure is not None:
        yield from structure.values() if isinstance(structure, dict) else [structure]
