"""Rows of like length together, in batches of a few fixed widths: little padding, and few programs to compile."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .batches import ExampleBatches
from .sampling import shuffled

WIDTHS = (16, 32, 64, 128, 256, 512)  # wider rows: multiples of the last
FINE_WIDTHS = (8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512)
TEXT = 64  # tokens of a text by which the size of a batch is reckoned, so that all batches are equally large


def bucket_width(length: int, limit: int | None = None, widths: Sequence[int] = WIDTHS) -> int:
    """The width of the bucket for rows of `length` tokens: the next of `widths`, and no more than `limit`.

    70 -> 128, or 100 with a limit of 100
    """
    width = next((width for width in widths if width >= length), -(-length // widths[-1]) * widths[-1])
    return max(length, width if limit is None else min(width, limit))


def batches_by_length(
    lengths: np.ndarray, batch_size: int, limit: int | None = None, exact: bool = False
) -> Iterator[tuple[np.ndarray, int, int]]:
    """Which examples go together, and in how many rows of what width; the longest come first.

    All batches have about as many tokens: wide ones have fewer rows. Only the last batch has rows of padding, to a
    power of two. One of the `FINE_WIDTHS` is used where it has examples for a batch or more.

    lengths 3 90 5 -> one batch of [1, 2, 0], in 4 rows of 128

    Args:
        lengths: int (n,), tokens of each example.
        batch_size: rows of a batch that is `TEXT` wide.
        limit: no row is made wider than this, but for those that are longer.
        exact: every batch is as wide as its longest example.
    """
    order = np.argsort(-lengths, kind="stable")
    fine, counts = np.unique([bucket_width(int(n), limit, FINE_WIDTHS) for n in lengths], return_counts=True)
    tokens = batch_size * TEXT
    worth = {int(width) for width, count in zip(fine, counts, strict=True) if count >= tokens // width}
    start = 0
    while start < len(order):
        longest = int(lengths[order[start]])
        width = bucket_width(longest, limit, FINE_WIDTHS)
        width = longest if exact else width if width in worth else bucket_width(longest, limit)
        rows = max(1, tokens // max(width, 1))
        examples = order[start : start + rows]
        yield examples, min(rows, 1 << (len(examples) - 1).bit_length()), width
        start += len(examples)


def row_lengths(x: dict) -> np.ndarray:
    """Tokens of every row, int32 (n,): of a row of choices, those of the longest choice."""
    if "lengths" in x:
        lengths = np.asarray(x["lengths"])
    elif "padding_mask" in x:
        lengths = np.asarray(x["padding_mask"]).sum(axis=-1)
    else:
        lengths = np.full(x["token_ids"].shape[:-1], x["token_ids"].shape[-1])
    return (lengths if lengths.ndim == 1 else lengths.max(axis=-1)).astype(np.int32)


def resized(array: np.ndarray, width: int, left: bool = False) -> np.ndarray:
    """An array whose last axis, of columns, is cut or filled with zeros to be `width` long."""
    missing = width - array.shape[-1]
    if missing <= 0:
        return array[..., -width:] if left else array[..., :width]
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(missing, 0) if left else (0, missing)])


class BucketedBatches(ExampleBatches):
    """Ready arrays in batches of like length, each cut to one of a few widths; a new order in every pass.

    What does not fill a batch of its width goes into the next wider one, so only one batch of a pass has rows of
    padding. The widest batch and the narrowest are the first two of a pass: what does not fit into memory shows at
    once.

    Args:
        x: dict of arrays with "token_ids" (n, s) or (n, c, s), and "lengths" or "padding_mask"; all but "lengths" have
            a column a token.
        y, sample_weight, batch_size, epochs, seed, shuffle: as in `ExampleBatches`. Without `shuffle` narrow batches
            come first, and examples of one width in their order.
        limit: no row is made wider than this, but for those that are longer.
        tagged: y and the weights have a column a token as well, and are cut with x.
        steps_per_width: a width that fewer steps of the run would have is left out, but for the widest: to compile a
            program for it would cost more than the padding. Default: 64, and 16 without `shuffle`.
    """

    def __init__(
        self,
        x: dict,
        y: Any = None,
        sample_weight: Any = None,
        batch_size: int = 32,
        epochs: int = 1,
        seed: int = 0,
        shuffle: bool = True,
        limit: int | None = None,
        tagged: bool = False,
        steps_per_width: int | None = None,
    ):
        super().__init__(x, y, sample_weight, batch_size, epochs, seed, shuffle)
        self._tagged = tagged
        self.pads_left = "padding_mask" in self.x
        widths = np.array([bucket_width(int(length), limit) for length in row_lengths(self.x)])
        least = (64 if shuffle else 16) if steps_per_width is None else steps_per_width
        self._examples, self._widths = [], []  # of each bucket, which examples have its width
        waiting = np.zeros(len(widths), dtype=bool)
        for width in np.unique(widths):
            waiting |= widths == width
            if width == widths.max() or waiting.sum() * epochs >= least * batch_size:
                self._examples.append(np.flatnonzero(waiting))
                self._widths.append(int(width))
                waiting[:] = False
        self._plan: tuple = (None, None, None)
        self.steps_per_epoch = len(self._pass(0)[0])

    @property
    def tokens_per_step(self) -> int:
        """Slots of a step, padding included: the mean over a pass."""
        return self.rows * round(float(np.mean(self._pass(0)[1])))

    def _pass(self, number: int) -> tuple[list[np.ndarray], list[int]]:
        """Of every step of a pass, the examples and the width."""
        if self._plan[0] == number:
            return self._plan[1:]
        batches, widths = [], []
        carried = np.zeros(0, dtype=np.int64)
        for examples, width in zip(self._examples, self._widths, strict=True):
            if self.shuffle:
                order = shuffled(np.arange(len(examples)), len(examples), self.seed, number)
                examples = examples[order]
            examples = np.concatenate([carried, examples])
            last = width == self._widths[-1]
            full = len(examples) if last else len(examples) - len(examples) % self.batch_size
            carried = examples[full:]
            for start in range(0, full, self.batch_size):
                batches.append(examples[start : start + self.batch_size])
                widths.append(width)
        if self.shuffle and len(batches) > 2:
            inner = 1 + shuffled(np.arange(len(batches) - 2), len(batches) - 2, self.seed, number)
            order = [len(batches) - 1, 0, *inner]
            batches, widths = [batches[i] for i in order], [widths[i] for i in order]
        self._plan = (number, batches, widths)
        return batches, widths

    def _rows(self, update: int, first: int, last: int) -> tuple:
        number, step = divmod(update, self.steps_per_epoch)
        batches, widths = self._pass(number)
        x, y, weight = self._taken(batches[step][first:last], last - first)
        x = {k: array if k == "lengths" else resized(array, widths[step], self.pads_left) for k, array in x.items()}
        if self._tagged and y is not None:
            y, weight = (resized(array, widths[step], self.pads_left) for array in (y, weight))
        return x, y, weight

    def shape_steps(self) -> list[int]:
        first: dict[int, int] = {}
        for step in range(min(len(self), self.steps_per_epoch * self.accumulation)):
            number, place = divmod((self._start + step) // self.accumulation, self.steps_per_epoch)
            first.setdefault(self._pass(number)[1][place], step)
        return sorted(first.values())

    def parts(self) -> Iterator[tuple["BucketedBatches", np.ndarray]]:
        """The batches of one width at a time, with the examples that their rows hold. Without `shuffle` only."""
        batches, widths = self._pass(0)
        for width in sorted(set(widths)):
            steps = [step for step, w in enumerate(widths) if w == width]
            part = copy.copy(self)
            part._start, part._items = steps[0], steps[-1] + 1
            yield part, np.concatenate([batches[step] for step in steps])
