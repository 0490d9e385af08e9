"""Batches that go through the rows of a plan pass by pass."""

import copy
from collections.abc import Sequence

import numpy as np

from ..corpus.corpus import Corpus
from ..sampling import shuffled
from .batches import Batches


class PassBatches(Batches):
    """Rows of a plan, each once a pass, every pass in its own order.

    Subclasses give `_rows(update, first, last)`, and ask `_places` which lines of their plan these rows are.

    Args:
        batch_size: rows of an update.
        bounds: int (passes + 1,): where each of the passes that differ begins in the plan; the end last.
        seed: of the orders.
        steps: updates in the run. Default: one pass, each row once, the last batch filled up with rows of padding.
        accumulation: items that make up an update.
    """

    def __init__(
        self, batch_size: int, bounds: Sequence[int], seed: int = 0, steps: int | None = None, accumulation: int = 1
    ):
        self._bounds = np.asarray(bounds, dtype=np.int64)
        if self.num_rows < 1:
            raise ValueError("The text gives no row of this kind. Use more of it, or another `length`.")
        self._last_row = None if steps is not None else self.num_rows
        updates = -(-self.num_rows // max(1, batch_size)) if steps is None else steps
        super().__init__(batch_size, updates, seed, accumulation)

    @property
    def num_rows(self) -> int:
        """Rows of one pass."""
        return int(self._bounds[1])

    def endless(self) -> "PassBatches":
        """The same rows with no last one, for a mixture."""
        other = copy.copy(self)
        other._last_row = None
        return other

    def _places(self, update: int, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Plan lines of rows [first, last) of an update, -1 behind the run's end; and the numbers of their passes."""
        bounds = self._bounds
        rows = update * self.batch_size + np.arange(first, last)
        cycle, place = np.divmod(rows, bounds[-1])
        part = np.searchsorted(bounds, place, side="right") - 1
        passes = cycle * (len(bounds) - 1) + part
        lines = np.full(len(rows), -1, dtype=np.int64)
        for number in np.unique(passes):
            here = passes == number
            start, stop = bounds[part[here][0] : part[here][0] + 2]
            lines[here] = start + shuffled(place[here] - start, int(stop - start), self.seed, int(number))
        if self._last_row is not None:
            lines[rows >= self._last_row] = -1
        return lines, passes


def facts_of(corpus: Corpus, *roles: str) -> dict:
    """What the corpus's tokenizer decides; an error if it lacks a token of one of the roles."""
    if not isinstance(corpus, Corpus):
        raise ValueError(
            f"`corpus` must be a Corpus. Received: {type(corpus).__name__}. Use Corpus.open(folder), or "
            "Corpus.write(folder, documents, tokenizer)."
        )
    if corpus.facts is None:
        raise ValueError("The corpus must know its tokenizer. Open it with Corpus.open(path, tokenizer=...).")
    missing = [role for role in roles if corpus.facts[f"{role}_id"] is None]
    if missing:
        raise ValueError(f"The tokenizer must have a token for: {', '.join(roles)}. It lacks: {', '.join(missing)}.")
    return corpus.facts
