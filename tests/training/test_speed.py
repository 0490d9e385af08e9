"""Speeds and the time that is left: without padding, without compilation, with the reports to come."""

import numpy as np
import pytest

from kerasbert.data.batches.batches import ExampleBatches
from kerasbert.training import Progress, RunCallback, counting, reporting
from kerasbert.training.feed import Feed, real_tokens

pytestmark = pytest.mark.one_backend


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves."""
    now = [100.0]
    for module in (counting, reporting):
        monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    return now


def begun(callback, step=0, steps=10):
    callback.set_model(type("Model", (), {"initial_step": step})())
    callback.set_params({"steps": steps, "epochs": 3})
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    return callback


def steps_of(callback, clock, seconds):
    for batch, each in enumerate(seconds):
        clock[0] += each
        callback.on_train_batch_end(batch, {})


def test_steps_that_compile_do_not_count(clock):
    """The first step, and one that meets a new shape; a step that is merely slow does."""
    callback = begun(RunCallback())
    assert callback.steps_per_second is None
    steps_of(callback, clock, [60.0])
    assert callback.steps_per_second is None
    steps_of(callback, clock, [0.0, 0.5, 0.5, 30.0, 0.5, 40.0, 0.5])
    assert callback.steps_per_second == pytest.approx(2.0)
    callback = begun(RunCallback())
    steps_of(callback, clock, [60.0, 1.0, 1.0, 4.0])
    assert callback.steps_per_second == pytest.approx(0.5)
    callback = begun(RunCallback())
    steps_of(callback, clock, [3.0, 0.001, 0.002, 0.8])  # short hiccups are what a run is like
    assert callback.steps_per_second == pytest.approx(3 / 0.803)


def test_the_time_left_has_the_reports_in_it(clock):
    progress = begun(Progress(steps=30, quiet=True))
    steps_of(progress, clock, [60.0] + [1.0] * 9)
    assert "1 steps/s  0:20 left" in progress._line({})
    clock[0] += 5.0  # validation and a checkpoint
    progress.on_epoch_end(0)
    progress.on_epoch_begin(1)
    steps_of(progress, clock, [1.0] * 5)
    assert "0:20 left" in progress._line({})  # 15 steps, and the report after the next 5


def test_padding_is_no_tokens(clock):
    x = {"token_ids": np.ones((6, 8), "int32"), "lengths": np.array([8, 3, 2, 1, 4, 5], "int32")}
    feed = Feed(ExampleBatches(x, np.zeros(6), batch_size=2, shuffle=False), 3, lambda *batch: None)
    callback = begun(RunCallback())
    callback.count_tokens = feed.real_tokens
    for step in (1, 2):
        feed[step]
    assert [feed.real_tokens(*steps) for steps in ((0, 1), (1, 3), (0, 3))] == [11, 12, 23]
    steps_of(callback, clock, [9.0, 0.5, 0.5])
    assert callback.tokens_per_second == pytest.approx(23 / 3 * 2)


def test_real_tokens_of_every_kind_of_batch():
    ids = np.ones((2, 5), "int32")
    mask = np.array([[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]], bool)
    assert real_tokens({"token_ids": ids}) == 10
    assert real_tokens({"token_ids": ids, "padding_mask": mask}) == 5
    assert real_tokens({"token_ids": ids, "sequence_ids": np.array([[1, 1, 2, 0, 0], [1, 1, 1, 1, 0]])}) == 7
    decoder = {"decoder_token_ids": ids, "decoder_lengths": np.array([1, 2])}
    assert real_tokens({"token_ids": ids, "lengths": np.array([4, 5]), **decoder}) == 12
