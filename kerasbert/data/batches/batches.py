"""Batches: every step of a run is a pure function of the seed and the step."""

import copy
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..counts import check_counts
from ..sampling import shuffled


class Batches:
    """The steps of a run, with random access: `batches[step]` -> (x, y, sample_weight).

    A step is one call of the model. In `accumulated(k)`, k steps make up one update of the weights: step i contains
    the rows of micro-batch i % k of update i // k. `batch_size` counts the rows of the whole update, so a run uses the
    same rows for every k. With k > 1, x also contains "loss_normalizer": the total weight of the update divided by its
    number of rows.

    Subclasses implement `_rows(update, first, last)`, which returns the rows [first, last) of an update.

    Args:
        batch_size: rows per update.
        updates: number of updates in the run.
        seed: seed of all random choices, at least 0.

    Raises:
        ValueError: if `batch_size`, `updates` or `seed` is no integer of at least 1, 0 and 0.
        IndexError: for a step outside the run.
    """

    length: int
    single_step: str = ""  # the reason why an update must be a single step, if there is one
    corpus: Any = None  # the `Corpus` whose token ids the batches contain, if there is exactly one

    def __init__(self, batch_size: int, updates: int, seed: int = 0):
        check_counts(batch_size=batch_size)
        check_counts(0, steps=updates, seed=seed)
        self.batch_size = batch_size
        self.seed = seed
        self.accumulation = 1  # number of steps per update
        self._items = updates
        self._start = 0
        self._part, self._parts = 0, 1
        self._span = (0.0, 1.0)  # see `within`
        self._latest: tuple = (None, None)

    def __len__(self) -> int:
        return self._items - self._start

    def __getitem__(self, step: int) -> tuple:
        update, micro = divmod(self._start + self._counted(step), self.accumulation)
        first = micro * (self.batch_size // self.accumulation) + self._part * self.rows
        if self.accumulation == 1:
            return self._rows(update, first, first + self.rows)
        latest = self._latest  # read only once, because other threads may set it
        if latest[0] != update:  # the items of an update are consecutive
            latest = self._latest = (update, self._rows(update, 0, self.batch_size))
        x, y, weight = self._part_of_update(latest[1], first, first + self.rows)
        return {**x, "loss_normalizer": self._normalizers(latest[1])}, y, weight

    def _normalizers(self, batch: tuple) -> Any:
        """The "loss_normalizer" of each step of an update, given its (x, y, weights)."""
        return _map(self._per_row, batch[2])

    def _per_row(self, weights: np.ndarray) -> np.ndarray:
        """The sum of the weights of an update, divided by its number of rows, for each row of a step: float32 (b,)."""
        return np.full(self.rows, weights.sum(dtype=np.float64) / self.batch_size, np.float32)

    @staticmethod
    def _part_of_update(update: tuple, first: int, last: int) -> tuple:
        """The rows [first, last) of (x, y, weights)."""
        return tuple(_map(lambda value: value[first:last], part) for part in update)

    def _counted(self, step: int) -> int:
        """The index of a step in this run, at least 0. Negative indices count from the end, as in a list."""
        step = operator.index(step)
        if not -len(self) <= step < len(self):
            raise IndexError(f"Step {step} is outside this run of {len(self)} steps.")
        return step % len(self)

    def __iter__(self) -> Iterator[tuple]:
        return (self[step] for step in range(len(self)))

    @property
    def rows(self) -> int:
        """Number of rows in one step."""
        return self.batch_size // self.accumulation // self._parts

    @property
    def tokens_per_step(self) -> int:
        """Number of tokens in one step, including padding."""
        return self.rows * self.length

    def starting_at(self, step: int) -> "Batches":
        """The rest of the run from `step` on. Its step 0 is `step` of this run.

        Raises:
            ValueError: if `step` is outside the run.
        """
        if not 0 <= step <= len(self):
            raise ValueError(f"`step` must be within the run of {len(self)} steps. Received: {step}.")
        rest = copy.copy(self)
        rest._start += step
        return rest

    def accumulated(self, count: int) -> "Batches":
        """The same run with every update split into `count` steps, whose gradients the optimizer accumulates.

        Raises:
            ValueError: if `count` does not divide `batch_size`, the batches are accumulated already, or an update must
                be one step.
        """
        if count > 1 and self.single_step:
            raise ValueError(
                f"An update of {type(self).__name__} must be one step: {self.single_step}. Received: "
                f"accumulation={count}."
            )
        if count < 1 or self.batch_size % count or self.accumulation > 1:
            raise ValueError(
                f"`accumulation` must divide `batch_size`. Received: accumulation={count}, batch_size={self.batch_size}"
                f"{'' if self.accumulation == 1 else f', for batches with accumulation={self.accumulation}'}."
            )
        found = copy.copy(self)
        found.accumulation, found._items, found._start = count, self._items * count, self._start * count
        return found

    def within(self, first: float, last: float) -> "Batches":
        """The same batches, for a part of a longer run. What changes during the run, such as masking rates, needs this.

        Args:
            first, last: where the part begins and ends, from 0 at the start of the run to 1 at its end.
        """
        part = copy.copy(self)
        part._span = first, last
        return part

    def _progress(self, update: int) -> float:
        """Where an update is in the run, from 0 for the first one to 1 at the end."""
        first, last = self._span
        return first + (last - first) * update * self.accumulation / self._items

    def shape_steps(self) -> list[int]:
        """Indices of steps that together contain every batch shape of the run. Default: the first two steps."""
        return list(range(min(2, len(self))))

    def shard(self, index: int, count: int) -> "Batches":
        """The rows for one of `count` hosts: part `index` of every step, which is split into `count` equal parts.

        Raises:
            ValueError: if `count` does not divide the rows of a step, or `index` is not below `count`.
        """
        if not 0 <= index < count or self.rows % count:
            raise ValueError(
                f"`count` must divide the {self.rows} rows of a step, and `index` must be below `count`. Received: "
                f"index={index}, count={count}."
            )
        part = copy.copy(self)
        part._part, part._parts = self._part * count + index, self._parts * count
        return part

    def corpora(self) -> list:
        """All corpora whose token ids the batches contain. Batches that consist of other batches override this."""
        return [] if self.corpus is None else [self.corpus]

    def recipe(self) -> dict:
        """The settings that determine the rows of every step, as a dict that JSON can represent.

        The dict is saved with the run. The number of steps is not part of it.
        """
        return {
            "batches": type(self).__name__,
            "batch_size": self.batch_size,
            "length": self.length,
            "seed": self.seed,
            "accumulation": self.accumulation,
        }

    def _rows(self, update: int, first: int, last: int) -> tuple:
        raise NotImplementedError


class ExampleBatches(Batches):
    """Batches of examples from arrays in memory, for fine-tuning. Every pass uses a different order.

    If the last batch of a pass is not full, padding rows with weight 0 are added.

    Args:
        x: dict of arrays, or one array, with examples along the first axis.
        y: an array of targets, a dict of such arrays, or None.
        sample_weight: weights with the same structure as y, or one array for all targets. Default: 1 for every example.
        batch_size: rows per step.
        epochs: number of passes over the examples.
        seed: seed of the order.
        shuffle: whether to shuffle the examples. False keeps the given order.

    Raises:
        ValueError: if there are no examples, or arrays or weights have different numbers of them.
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
                f"All arrays must have the same number of examples, at least one. Received: arrays of {sorted(sizes)}."
            )
        self.num_examples = sizes.pop()
        if sample_weight is None:
            sample_weight = np.ones(self.num_examples, dtype=np.float32)
        if isinstance(self.y, dict) and not isinstance(sample_weight, dict):
            sample_weight = dict.fromkeys(self.y, sample_weight)
        self.sample_weight = _map(lambda w: np.asarray(w, dtype=np.float32), sample_weight)
        if {len(array) for array in _leaves(self.sample_weight)} != {self.num_examples}:
            received = sorted({len(array) for array in _leaves(self.sample_weight)})
            raise ValueError(
                f"`sample_weight` must have a weight for each of the {self.num_examples} examples. Received: "
                f"{received}."
            )
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
        chosen = places[places < self.num_examples]
        if self.shuffle:
            chosen = shuffled(chosen, self.num_examples, self.seed, number)
        return self._taken(chosen, len(places))

    def _taken(self, examples: np.ndarray, rows: int) -> tuple:
        """Selects the x, y and weights of the given examples, and adds padding rows up to `rows` rows."""

        def pick(array: np.ndarray, name: str) -> np.ndarray:
            return _filled(array[examples], rows, name)

        return tuple(_map_named(pick, part) for part in (self.x, self.y, self.sample_weight))


def _filled(array: np.ndarray, rows: int, name: str) -> np.ndarray:
    """Pads an array to `rows` rows with zeros, or with -1 for keys in which -1 marks an unused slot."""
    if len(array) == rows:
        return array
    value = -1 if name in ("masked_positions", "span_left", "span_right", "span_offset") else 0
    rest = np.full((rows - len(array), *array.shape[1:]), value, dtype=array.dtype)
    return np.concatenate([array, rest])


def _map(function: Callable, structure: Any) -> Any:
    return _map_named(lambda value, _: function(value), structure)


def _map_named(function: Callable, structure: Any) -> Any:
    """Applies `function(array, key)` to every array of a dict, or to a single array with key "". None stays None."""
    if structure is None:
        return None
    if isinstance(structure, dict):
        return {name: function(value, name) for name, value in structure.items()}
    return function(structure, "")


def _leaves(structure: Any) -> Iterator[np.ndarray]:
    if structure is not None:
        yield from structure.values() if isinstance(structure, dict) else [structure]
