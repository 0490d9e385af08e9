"""Attention and the Transformer learn to reverse and to copy strings of 16 symbols; one vector holds too little."""

import numpy as np
import pytest

from benchmarks.studies.reversal import run as reversal
from benchmarks.studies.reversal.run import END, TASKS, accuracy, alignment, make_batches, make_model
from kerasbert.training import adamw

pytestmark = pytest.mark.backends("jax")  # hundreds of steps of one shape are fastest compiled
LENGTH = 8  # 32 bits a string: more than a decoder without attention learns to carry in these steps


@pytest.fixture(autouse=True)
def smallest_problem(monkeypatch):
    monkeypatch.setattr(reversal, "SYMBOLS", 16)
    recurrent = dict(reversal.RECURRENT, hidden_dim=32, alignment_dim=32, output_dim=32)
    for attention in ("additive", "multiplicative", "none"):
        monkeypatch.setitem(reversal.MODELS, attention, dict(recurrent, attention=attention))


def trained(name, task, steps, rate):
    model = make_model(name)
    model.compile(adamw(rate, warmup=steps // 10, steps=steps, weight_decay=0.0))
    model.fit(make_batches(task, steps, longest=LENGTH, buckets=1), steps_per_epoch=steps, verbose=0)
    return model


@pytest.mark.parametrize(
    ("name", "task"),
    [("additive", "reverse"), pytest.param("multiplicative", "copy", marks=pytest.mark.optimized)],
)
def test_attention_learns_where_to_look(name, task):
    model = trained(name, task, steps=120, rate=2e-2)
    assert accuracy(model, task, LENGTH)["symbols"] > 0.9
    looked = alignment(model, task, LENGTH)[:-1].argmax(axis=-1)
    assert (looked == TASKS[task](np.arange(LENGTH))).mean() > 0.8


@pytest.mark.optimized
def test_a_transformer_learns_to_reverse():
    model = trained("transformer", "reverse", steps=300, rate=4e-3)
    found = accuracy(model, "reverse", LENGTH)
    assert found["symbols"] > 0.9 and found["exact"] > 0.5
    answer = model.generate(np.array([2, 3, 4, 5, 6, 7, 8, 9], "int32"), max_new_tokens=9)
    assert answer[-1] == END and (answer[:8] == [9, 8, 7, 6, 5, 4, 3, 2]).sum() >= 6


def test_one_vector_is_too_little():
    assert accuracy(trained("none", "reverse", steps=120, rate=2e-2), "reverse", LENGTH)["symbols"] < 0.4
