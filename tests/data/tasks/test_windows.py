"""Windows over long texts: memory that grows with the text, not with its square."""

import tracemalloc

import numpy as np
import pytest

from kerasbert.data.tasks.windows import most_context, window_starts

pytestmark = pytest.mark.one_backend


def test_context_by_the_table():
    """The definition: of every token, the window with the largest score; the earlier one on a tie."""
    for size, stride, length in ((10, 4, 33), (7, 7, 30), (5, 1, 12), (20, 3, 9)):
        starts = window_starts(length, size, stride)
        table = np.full((len(starts), length), -np.inf)
        for window, start in enumerate(starts):
            for token in range(start, min(start + size, length)):
                stop = min(start + size, length)
                table[window, token] = min(token - start, stop - 1 - token) + 0.01 * (stop - start)
        np.testing.assert_array_equal(most_context(starts, size, length), table.argmax(axis=0))
    assert most_context([0], 5, 0).shape == (0,)


def test_a_text_of_a_hundred_thousand_words():
    starts = window_starts(130_000, 300, 128)
    tracemalloc.start()
    best = most_context(starts, 300, 130_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert best[0] == 0 and best[-1] == len(starts) - 1 and (np.diff(best) >= 0).all()
    assert peak < 10_000_000
