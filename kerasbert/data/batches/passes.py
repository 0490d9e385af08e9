"""Base class of batches that make passes over the rows of a plan."""

import copy
from collections.abc import Sequence

import numpy as np

from ..corpus.corpus import Corpus
from ..sampling import shuffled
from .batches import Batches


class PassBatches(Batches):
    """Batches that use each row of a plan once per pass, in a different order in every pass.

    Subclasses implement `_rows(update, first, last)`, and get the indices of these rows in their plan from `_places`.

    Args:
        batch_size: rows per update.
        bounds: int (passes + 1,): where each pass with different rows begins in the plan, followed by the length of the
            plan.
        seed: seed of the order of the rows.
        steps: number of updates in the run. Default: one pass, with padding rows at the end of the last batch.
    """

    def __init__(self, batch_size: int, bounds: Sequence[int], seed: int = 0, steps: int | None = None):
        self._bounds = np.asarray(bounds, dtype=np.int64)
        if self.num_rows < 1:
            raise ValueError(
                "The text is too short to produce a row of this kind. Provide more text, or use another `length`."
            )
        self._last_row = None if steps is not None else self.num_rows
        updates = -(-self.num_rows // max(1, batch_size)) if steps is None else steps
        super().__init__(batch_size, updates, seed)

    @property
    def num_rows(self) -> int:
        """Number of rows in one pass."""
        return int(self._bounds[1])

    def endless(self) -> "PassBatches":
        """The same batches, with further passes after the last row instead of padding rows, as mixtures need them."""
        other = copy.copy(self)
        other._last_row = None
        return other

    def _places(self, update: int, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """The index in the plan (-1 after the end of the run) and the pass of each row [first, last) of an update."""
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


def tokenizer_info_of(corpus: Corpus, *roles: str) -> dict:
    """Returns the `tokenizer_info` of a corpus. Raises a ValueError if it lacks one of the special tokens `roles`."""
    if not isinstance(corpus, Corpus):
        raise ValueError(
            f"`corpus` must be a Corpus. Received: {type(corpus).__name__}. Use Corpus.open(folder), or "
            "Corpus.write(folder, documents, tokenizer)."
        )
    if corpus.tokenizer_info is None:
        raise ValueError(
            "The corpus must know its tokenizer. Received: a corpus without one. Open it with Corpus.open(path, "
            "tokenizer=...)."
        )
    missing = [role for role in roles if corpus.tokenizer_info[f"{role}_id"] is None]
    if missing:
        raise ValueError(f"The tokenizer must have a token for: {', '.join(roles)}. It lacks: {', '.join(missing)}.")
    return corpus.tokenizer_info
