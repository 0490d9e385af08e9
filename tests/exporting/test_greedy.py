"""Exports avoid repetition as models do: the same scores from the same histories."""

import numpy as np
import pytest

from kerasbert.exporting.greedy import without_repetition
from kerasbert.generation import repetition
from kerasbert.generation.search import Options
from tests.models.reference import to_numpy

pytestmark = pytest.mark.one_backend


@pytest.mark.parametrize("size, penalty", [(0, 1.5), (1, None), (2, 1.5), (3, None), (9, 0.8)])
def test_scores_are_those_of_the_model(size, penalty):
    random = np.random.default_rng(0)
    logits = random.standard_normal((6, 7)).astype("float32")
    prompts, lengths = random.integers(0, 2, (6, 5)).astype("int32"), np.array([1, 2, 3, 4, 5, 5])
    real, new, step = np.arange(5) >= 5 - lengths[:, None], random.integers(0, 2, (6, 8)).astype("int32"), 4
    history = [np.append(row[known], tokens[:step]) for row, known, tokens in zip(prompts, real, new, strict=True)]
    numbers = {} if penalty is None else {"repetition_penalty": penalty}
    found = without_repetition(logits, history, size, numbers)
    options = Options(no_repeat_ngram_size=size, repetition_penalty=penalty)
    theirs = repetition.without_repetition(logits, repetition.History.of((prompts, real), new, step), options)
    np.testing.assert_allclose(found, to_numpy(theirs), rtol=1e-6)
    assert (found != logits).any()
