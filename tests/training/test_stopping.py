"""Signals that ask a run to stop, and what a run that was stopped within an epoch goes on with."""

import os
import signal
import threading
import time

import numpy as np
import pytest

from kerasbert.backend import seed_everything
from kerasbert.training import Checkpoints, RunLog, RunStopped, StopOnRequest, StopRequest, adamw, read_log, stopping


def wait_for(condition):
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    assert condition()


@pytest.fixture
def interruptible():
    """Python's own handler of SIGINT, which a process in the background may start without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.one_backend
def test_the_first_signal_asks_and_the_second_ends_the_process(monkeypatch, capsys, interruptible):
    ended = []
    monkeypatch.setattr(stopping.os, "_exit", ended.append)
    with StopRequest() as request:
        assert request.reason is None
        os.kill(os.getpid(), signal.SIGINT)
        wait_for(lambda: request.reason == "SIGINT")
        assert not ended
        os.kill(os.getpid(), signal.SIGINT)
        wait_for(lambda: ended)
    assert ended == [130] and signal.getsignal(signal.SIGINT) is interruptible
    assert "a second signal stops immediately" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):  # as before
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)


@pytest.mark.one_backend
def test_other_signals_can_be_asked_for():
    with StopRequest(signals=("SIGINT", "SIGTERM")) as request:
        os.kill(os.getpid(), signal.SIGTERM)
        wait_for(lambda: request.reason == "SIGTERM")


@pytest.mark.one_backend
def test_the_time():
    assert StopRequest(minutes=1e-9).reason == "time" and StopRequest(minutes=60).reason is None
    for minutes in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="`minutes` must be above 0. Received: "):
            StopRequest(minutes=minutes)


@pytest.mark.one_backend
def test_other_threads_have_no_signals():
    found = []

    def enter():
        with StopRequest(minutes=1e-9) as request:
            found.append(request.reason)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == ["time"]


class Asked:
    """A request that is there from a step on."""

    def __init__(self, step):
        self.step, self.seen = step, 0

    @property
    def reason(self):
        self.seen += 1
        return "SIGINT" if self.seen > self.step else None


def test_a_run_stops_before_the_next_step_with_a_checkpoint(tiny, tmp_path):
    """The state is that of a run which ended there, and the rows and tokens so far are part of it."""
    states = []
    for name, stop in (("stopped", 6), ("whole", 99)):
        seed_everything(1)
        model, checkpoints = tiny.build_model(adamw(0.01, warmup=2, steps=20)), Checkpoints(tmp_path / name, keep=3)
        log = RunLog(tmp_path / name, tokens_per_step=20, checkpoints=checkpoints)
        callbacks = [StopOnRequest(Asked(stop), checkpoints), checkpoints, log]
        if name == "stopped":
            with pytest.raises(RunStopped, match="stopped after step 6 .SIGINT.") as stopped:
                tiny.train(model, 0, 12, callbacks)
            assert (stopped.value.step, stopped.value.reason) == (6, "SIGINT")
            assert checkpoints.newest.name == "step_00000006.safetensors"
            model = tiny.build_model(adamw(0.01, warmup=2, steps=20))
            assert Checkpoints(tmp_path / name).restore(model) == 6
        else:
            tiny.train(model, 0, 6, callbacks, epoch=2)
        states.append(tiny.state(model))
    for ours, theirs in zip(*states, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    checkpoints = Checkpoints(tmp_path / "stopped")
    checkpoints.restore(model)
    assert [row["step"] for row in checkpoints.saved_log["rows"]] == [4]
    assert checkpoints.saved_log["tokens"] == 120


@pytest.mark.one_backend
def test_between_two_epochs_there_is_a_checkpoint_already(tiny, tmp_path):
    model, checkpoints = tiny.build_model(), Checkpoints(tmp_path)
    with pytest.raises(RunStopped, match="after step 4 "):
        tiny.train(model, 0, 12, [StopOnRequest(Asked(4), checkpoints), checkpoints])
    assert [path.name for path in tmp_path.glob("*.json")] == ["step_00000004.json"]


def test_a_row_whose_checkpoint_was_the_last_thing_written_is_not_lost(tiny, tmp_path):
    """A kill between checkpoint and log: the row is in the checkpoint, whichever callback comes first."""
    for first, name in ((0, "log last"), (1, "log first")):
        folder, rows = tmp_path / name, []
        for start, stop in ((0, 8), (8, 12)):
            model, checkpoints = tiny.build_model(), Checkpoints(folder, keep=1)
            log = RunLog(folder, checkpoints=checkpoints)
            checkpoints.restore(model)
            tiny.train(model, start, stop, [checkpoints, log] if first == 0 else [log, checkpoints])
            rows.append(read_log(folder))
            if stop == 8:
                kept = (folder / "log.jsonl").read_text().splitlines()[0]
                (folder / "log.jsonl").write_text(kept + "\n")
                (folder / "log.csv").unlink()
        assert [row["step"] for row in rows[1]] == [4, 8, 12]
        assert rows[1][:2] == rows[0]
        assert [line.split(",")[0] for line in (folder / "log.csv").read_text().splitlines()] == [
            "step",
            "4",
            "8",
            "12",
        ]
