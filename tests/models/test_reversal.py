"""Attention and the Transformer learn to reverse and to copy strings up to 20 symbols; one vector is too little."""

import keras
import numpy as np
import pytest

from benchmarks.reversal import END, TASKS, accuracy, alignment, make_batches, make_model
from kerasbert.training import adamw

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="trains for seconds on JAX, for a minute elsewhere"
)


def trained(name, task, steps, rate, batch_size):
    model = make_model(name)
    model.compile(adamw(rate, warmup=steps // 10, steps=steps, weight_decay=0.0))
    batches = make_batches(task, steps, longest=20, batch_size=batch_size, buckets=1)
    history = model.fit(batches, steps_per_epoch=steps // 5, verbose=0)
    return model, history.history["accuracy"][-1]


@pytest.mark.parametrize(
    ("name", "task", "steps", "rate", "batch_size"),
    [("additive", "reverse", 250, 6e-3, 64), ("multiplicative", "copy", 400, 6e-3, 64)],
)
def test_attention_learns_where_to_look(name, task, steps, rate, batch_size):
    model, reached = trained(name, task, steps, rate, batch_size)
    assert reached > 0.97
    assert accuracy(model, task, 20)["symbols"] > 0.9
    looked = alignment(model, task)[:-1].argmax(axis=-1)
    assert (looked == TASKS[task](np.arange(20))).mean() > 0.8


def test_a_transformer_learns_to_reverse():
    model, reached = trained("transformer", "reverse", 450, 5e-3, 32)
    assert reached > 0.98
    found = accuracy(model, "reverse", 20)
    assert found["symbols"] > 0.95 and found["exact"] > 0.6
    answer = model.generate(np.array([2, 3, 4, 5, 6, 7, 8], "int32"), max_new_tokens=9)
    assert answer.tolist() == [8, 7, 6, 5, 4, 3, 2, END]


def test_one_vector_is_too_little():
    model, reached = trained("none", "reverse", 250, 6e-3, 64)
    assert reached < 0.8 and accuracy(model, "reverse", 20)["exact"] < 0.1
