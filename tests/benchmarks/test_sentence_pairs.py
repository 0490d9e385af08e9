"""The study of labels of pairs: its cells, and the standard error over documents."""

import numpy as np
import pytest

from benchmarks.studies.sentence_pairs.run import cells, gain, is_clear

pytestmark = pytest.mark.one_backend


def test_the_error_is_that_of_a_mean_over_documents():
    right, majority = np.array([1, 1, 0, 1]), np.array([0, 1, 0, 0])
    # Residuals of the documents: 0.5 + 0.5 and -0.5 - 0.5. The error is sqrt(2 / 1 * (1 + 1)) / 4.
    assert gain(right, majority, np.array([3, 7, 7, 3])) == pytest.approx((0.5, 0.5))
    # In each document, the gain is 0.5.
    assert gain(right, majority, np.array([3, 3, 7, 7])) == pytest.approx((0.5, 0.0))


def test_a_gain_must_be_above_five_standard_errors():
    assert is_clear(0.06, 0.01) and not is_clear(0.05, 0.01)
    assert not is_clear(0.0, 0.0)  # always the majority


def test_cells():
    assert cells()[:3] == ["next, trained, seed 0", "next, random, seed 0", "order, trained, seed 0"]
    assert len(cells()) == 8
