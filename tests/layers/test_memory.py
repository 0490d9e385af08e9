"""Memories of earlier segments."""

import numpy as np
import pytest
from keras import ops

from kerasbert.layers.memory import next_memory
from tests.models.reference import gradient, to_numpy


@pytest.mark.parametrize("real", [None, [[True, True, False]]])
def test_the_next_memory_has_the_last_states_without_gradients(real):
    memory, mask = np.zeros((1, 1, 2, 1), "float32"), np.array([[False, True]])
    states = np.array([[[2.0], [3.0], [4.0]]], "float32")
    given = None if real is None else np.array(real)
    found = next_memory(memory, mask, [states], given)
    assert to_numpy(found["memory"]).ravel().tolist() == ([3, 4] if real is None else [2, 3])
    assert to_numpy(found["memory_mask"]).all()

    def total(x):
        return ops.sum(next_memory(ops.convert_to_tensor(memory), mask, [x], given)["memory"] ** 2)

    assert not gradient(total, states).any()
