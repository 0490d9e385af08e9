"""Batches whose shape changes during a run, and batches that mix monolingual and parallel text."""

import numpy as np

from kerasbert.data import Batches


class Phases(Batches):
    """Joins several runs into one, such as BERT's, which has rows of 128 tokens for 90% of the steps, and then 512.

    Args:
        parts: the runs, with the same `batch_size` if rows continue from step to step.
    """

    def __init__(self, parts: list[Batches]):
        last = parts[-1]
        if len({part.batch_size for part in parts}) > 1 and "stream_start" in last[0][0]:
            raise ValueError(
                "Rows that continue from step to step need one `batch_size`. Received: "
                f"{', '.join(str(part.batch_size) for part in parts)}."
            )
        super().__init__(last.batch_size, sum(map(len, parts)), last.seed)
        self.accumulation = last.accumulation
        self.parts = parts
        self.length = last.length

    def __getitem__(self, step: int) -> tuple:
        step = self._start + self._counted(step)
        for part in self.parts:
            if step < len(part):
                return part[step]
            step -= len(part)
        raise AssertionError("the parts are shorter than the run")

    def shape_steps(self) -> list[int]:
        steps, before = [], -self._start
        for part in self.parts:
            passed = min(max(-before, 0), len(part))
            steps += [before + passed + step for step in part.starting_at(passed).shape_steps()]
            before += len(part)
        return steps

    def prefixes(self) -> list["Phases"]:
        """Returns, for each part, the run up to its end. These runs are passed to `fit` one after the other."""
        return [Phases(self.parts[: number + 1]) for number in range(len(self.parts))]

    def accumulated(self, count: int) -> "Phases":
        run = super().accumulated(count)
        run.parts = [part.accumulated(count) for part in self.parts]
        return run

    def shard(self, index: int, count: int) -> "Phases":
        part = super().shard(index, count)
        part.parts = [part.shard(index, count) for part in self.parts]
        return part

    def corpora(self) -> list:
        return [corpus for part in self.parts for corpus in part.corpora()]

    def recipe(self) -> dict:
        return {"batches": type(self).__name__, "parts": [{**p.recipe(), "steps": len(p)} for p in self.parts]}


class Mixed(Batches):
    """A mixture of monolingual and parallel text. All its batches have `position_ids`, which parallel text needs.

    Args:
        mixture: `Batches`, some of which lack `position_ids`.
    """

    def __init__(self, mixture: Batches):
        super().__init__(mixture.batch_size, len(mixture), mixture.seed)
        self.mixture, self.length = mixture, mixture.length

    def __getitem__(self, step: int) -> tuple:
        x, y, weights = self.mixture[self._start + self._counted(step)]
        if "position_ids" not in x:
            counted = np.arange(x["token_ids"].shape[1], dtype=np.int32)
            x = {**x, "position_ids": np.broadcast_to(counted, x["token_ids"].shape).copy()}
        return x, y, weights

    def shape_steps(self) -> list[int]:
        return self.mixture.starting_at(self._start).shape_steps()

    def accumulated(self, count: int) -> "Mixed":
        run = super().accumulated(count)
        run.mixture = self.mixture.accumulated(count)
        return run

    def shard(self, index: int, count: int) -> "Mixed":
        part = super().shard(index, count)
        part.mixture = self.mixture.shard(index, count)
        return part

    def corpora(self) -> list:
        return self.mixture.corpora()

    def recipe(self) -> dict:
        return self.mixture.recipe()
