"""Batches of several tasks, one task per step, for a model with one head per task."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .batches import Batches
from .mixtures import MixtureBatches


class TaskBatches(MixtureBatches):
    """Batches from several tasks, one task per step, in random order (arXiv 1901.11504, algorithm 1).

    x is a dict of "task", int32 (b,), the index of the task that this step uses, and "tasks", the x of every task by
    name. y and the weights are dicts that contain the y and the weights of every task by name. All steps have the same
    structure: for tasks that a step does not use, the arrays have 0 rows.

    Args:
        parts: the `Batches` of each task, by name.
        rates: share of each task in the steps, by name (see `mixing_rates`). Default: proportional to the number of
            steps of each part. With this default and that of `steps`, a run uses every step of every part once.
        batch_size: rows per step, the same as in the parts.
        steps: number of steps in the run. Default: the number of steps of all parts together.
        seed: seed of the order of the tasks.
    """

    def __init__(
        self,
        parts: Mapping[str, Batches],
        rates: Mapping[str, float] | None = None,
        batch_size: int = 32,
        steps: int | None = None,
        seed: int = 0,
    ):
        sizes = {name: len(part) for name, part in parts.items()}
        steps = sum(sizes.values()) if steps is None else steps
        super().__init__(parts, rates or sizes, batch_size, steps, seed, by="batches")
        self._pass, self._order = sum(sizes.values()), (None, None)
        self._none = {name: _without_rows(part[0]) for name, part in parts.items()}

    @property
    def _period(self) -> int:
        return self._pass

    def _turn(self, update: int) -> tuple[str, int]:
        block, place = divmod(update, self._pass)
        if self._order[0] != block:
            self._order = (block, self._drawn(block, self._pass))
        counts, order = self._order[1]
        return list(self.parts)[order[place]], int(
            counts[order[place]] + np.count_nonzero(order[:place] == order[place])
        )

    def _rows(self, update: int, first: int, last: int) -> tuple:
        name, _ = self._turn(update)
        batch = super()._rows(update, first, last)
        x, y, weight = (
            {other: none[i] for other, none in self._none.items()} | {name: part} for i, part in enumerate(batch)
        )
        task = np.full(last - first, list(self.parts).index(name), np.int32)
        return {"task": task, "tasks": x}, y, weight


def _without_rows(part: Any) -> Any:
    if isinstance(part, tuple):
        return tuple(map(_without_rows, part))
    return {key: _without_rows(value) for key, value in part.items()} if isinstance(part, dict) else part[:0]
