"""Arrays in several memory-mapped files that are read as one array, without a copy in memory."""

from collections.abc import Sequence

import numpy as np


class Shifted:
    """An array whose elements are divided by one constant, and increased by another, when they are read.

    array [0 4 10], divisor 2, shift 7 -> [7 9 12]
    """

    dtype = np.dtype(np.int64)

    def __init__(self, array, shift: int, divisor: int = 1):
        self._array, self._shift, self._divisor = array, shift, divisor

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index):
        return self._array[index] // self._divisor + self._shift

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)


class Joined:
    """Several one-dimensional arrays that are read as one. Indices are integers, slices or arrays of integers.

    [5 6] and [7 8 9] -> joined[1:4] = [6 7 8], joined[[0, 4]] = [5 9]

    `np.asarray(joined)`, and functions of numpy that call it, read everything into memory.
    """

    def __init__(self, parts: Sequence):
        self._parts = list(parts)
        self._ends = np.cumsum([len(part) for part in self._parts])
        self._starts = np.append(0, self._ends[:-1])
        self.dtype = self._parts[0].dtype
        self.itemsize = self.dtype.itemsize
        self.shape = (int(self._ends[-1]),)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index):
        if isinstance(index, slice):
            return self._slice(*index.indices(len(self)))
        index = np.asarray(index)
        if index.dtype == bool:
            index = np.flatnonzero(index)
        if index.size and not (-len(self) <= index.min() and index.max() < len(self)):
            raise IndexError(f"An index is out of bounds for {len(self)} elements.")
        index = np.where(index < 0, index + len(self), index).astype(np.int64)
        numbers = np.searchsorted(self._ends, index, side="right")
        if numbers.ndim == 0:
            return self._parts[numbers][int(index - self._starts[numbers])]
        found = np.empty(index.shape, dtype=self.dtype)
        for number in np.unique(numbers):
            here = numbers == number
            found[here] = self._parts[number][index[here] - self._starts[number]]
        return found

    def _slice(self, start: int, stop: int, step: int) -> np.ndarray:
        if step != 1:
            return self[np.arange(start, stop, step)]
        first, last = np.searchsorted(self._ends, [start, max(start, stop - 1)], side="right")
        pieces = [
            self._parts[number][max(0, start - self._starts[number]) : max(0, stop - self._starts[number])]
            for number in range(first, min(last, len(self._parts) - 1) + 1)
        ]
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else np.empty(0, self.dtype)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.asarray(self[:], dtype=dtype)
