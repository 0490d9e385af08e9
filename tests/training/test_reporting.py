"""Logs that continue, curves, TensorBoard without TensorFlow, and the exact step of a nan."""

import csv
import json
import re
import subprocess
import sys
import threading
import types

import keras
import pytest

from kerasbert.training import (
    Checkpoints,
    Progress,
    RunCallback,
    RunLog,
    StopOnNaN,
    TensorBoardLog,
    TrainingDiverged,
    adamw,
    plot_curves,
    read_log,
    reporting,
)
from kerasbert.training.reporting import connect, in_lines


def csv_rows(folder):
    with open(folder / "log.csv", newline="") as file:
        return list(csv.DictReader(file))


def scheduled(tiny):
    return tiny.build_model(adamw(0.01, warmup=4, steps=8))


def test_log_holds_every_epoch(tiny, tmp_path):
    model = scheduled(tiny)
    history = tiny.train(model, 0, 8, [RunLog(tmp_path, tokens_per_step=20)], validation_data=tiny.Steps(90, 92))
    rows = read_log(tmp_path)
    assert [row["step"] for row in rows] == [4, 8]
    assert [row["tokens"] for row in rows] == [80, 160]
    assert [row["learning_rate"] for row in rows] == pytest.approx([0.01, 0.0])
    assert [row["loss"] for row in rows] == history.history["loss"]
    assert [row["val_loss"] for row in rows] == history.history["val_loss"]
    assert rows[1]["seconds"] > rows[0]["seconds"] > 0 and rows[1]["tokens_per_second"] > 0
    table = csv_rows(tmp_path)
    assert list(table[0]) == list(rows[0])
    assert [float(row["val_loss"]) for row in table] == history.history["val_loss"]


@pytest.mark.one_backend
def test_goodput_counts_processes(tiny, tmp_path, monkeypatch):
    """A process that calls `fit` repeatedly, for the phases of a run, has started it once."""

    def goodput(start, stop):
        model, checkpoints = scheduled(tiny), Checkpoints(tmp_path / "checkpoints")
        assert checkpoints.restore(model) == start
        log = RunLog(tmp_path, checkpoints=checkpoints)
        tiny.train(model, start, stop, [checkpoints, log])
        return log.describe_goodput()

    assert goodput(0, 4) == goodput(4, 8) == ""
    monkeypatch.setattr(reporting, "PROCESS", 0.0)
    assert re.fullmatch(r"goodput \d+%: \d+ of \d+ s, in 2 starts", goodput(8, 12))


@pytest.mark.one_backend
def test_log_continues_without_doubled_steps(tiny, tmp_path):
    """Steps behind the checkpoint are trained again: their rows go; a line cut off by a crash goes, too."""
    model = scheduled(tiny)
    tiny.train(model, 0, 12, [RunLog(tmp_path, tokens_per_step=20)])
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"step": 16, "lo')
    first = read_log(tmp_path)
    model.initial_step = 8
    tiny.train(model, 8, 16, [RunLog(tmp_path, tokens_per_step=30)], validation_data=tiny.Steps(90, 92))
    rows = read_log(tmp_path)
    assert [row["step"] for row in rows] == [4, 8, 12, 16]
    assert [row["tokens"] for row in rows] == [80, 160, 280, 400]
    assert rows[:2] == first[:2] and rows[2]["seconds"] > rows[1]["seconds"]
    table = csv_rows(tmp_path)
    assert [row["step"] for row in table] == ["4", "8", "12", "16"]
    assert [bool(row["val_loss"]) for row in table] == [False, False, True, True]


@pytest.mark.one_backend
def test_log_of_an_earlier_run_is_put_aside(tiny, tmp_path):
    (tmp_path / "log.1.jsonl").write_text("")
    (tmp_path / "log.1.csv").write_text("")
    for _ in range(2):
        tiny.train(scheduled(tiny), 0, 4, [RunLog(tmp_path)])
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["log.1.csv", "log.1.jsonl", "log.2.csv", "log.2.jsonl", "log.csv", "log.jsonl"]
    assert [row["step"] for row in read_log(tmp_path)] == [4]


@pytest.mark.one_backend
def test_curves(tiny, tmp_path):
    tiny.train(scheduled(tiny), 0, 12, [RunLog(tmp_path)], validation_data=tiny.Steps(90, 92))
    path = plot_curves(tmp_path)
    content = path.read_bytes()
    assert path == tmp_path / "curves.png" and content.startswith(b"\x89PNG") and len(content) > 5_000
    with pytest.raises(ValueError, match="no rows to draw"):
        plot_curves(tmp_path / "elsewhere")


@pytest.mark.one_backend
def test_curves_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"kerasbert\[plots\]"):
        plot_curves(tmp_path)


@pytest.mark.one_backend
def test_tensorboard(tiny, tmp_path):
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    history = tiny.train(scheduled(tiny), 0, 8, [TensorBoardLog(tmp_path, tokens_per_step=20)])
    (path,) = tmp_path.glob("events.out.tfevents.*")
    scalars = [
        (value.tag, event.step, value.simple_value)
        for event in LegacyEventFileLoader(str(path)).Load()
        for value in event.summary.value
    ]
    losses = [(step, value) for tag, step, value in scalars if tag == "loss"]
    assert losses == [(4, pytest.approx(history.history["loss"][0])), (8, pytest.approx(history.history["loss"][1]))]
    assert {tag for tag, _, _ in scalars} == {"loss", "learning_rate", "tokens_per_second"}


@pytest.mark.one_backend
def test_tensorboard_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        TensorBoardLog(tmp_path)


@pytest.mark.one_backend
@pytest.mark.backends("jax", "torch")
def test_importing_is_cheap():
    """Training imports none of the optional packages, and TensorBoardLog does not import TensorFlow."""
    code = (
        "import sys, keras\n"
        "before = set(sys.modules)\n"
        "from kerasbert.training import TensorBoardLog\n"
        "lazy = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "assert not lazy & {'matplotlib', 'rich', 'tensorboard', 'datasets', 'pandas', 'tensorflow'}, lazy\n"
        "import importlib.util as u\n"
        "if u.find_spec('tensorboard'): TensorBoardLog('.')\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("broken", [0, 6, 9])
def test_nan_stops_at_its_step(tiny, tmp_path, broken):
    checkpoints = Checkpoints(tmp_path)
    model = scheduled(tiny)
    with pytest.raises(
        TrainingDiverged, match=rf"nan at step {broken + 1} of the run, on `batches\[{broken}\]`"
    ) as caught:
        tiny.train(model, 0, 12, [checkpoints, StopOnNaN(checkpoints)], broken=broken)
    last = broken // 4 * 4
    assert caught.value.step == broken
    assert caught.value.checkpoint == (tmp_path / f"step_{last:08d}.safetensors" if last else None)
    assert ("no checkpoint yet" in str(caught.value)) == (last == 0)
    if broken == 6:
        assert checkpoints.restore(model) == last
        tiny.train(model, last, 12, [checkpoints, StopOnNaN(checkpoints)])  # good batches: the run goes on
        assert checkpoints.newest.name == "step_00000012.safetensors"


@pytest.mark.one_backend
def test_nan_names_the_checkpoints_among_the_callbacks(tmp_path):
    stop, other, checkpoints = StopOnNaN(), StopOnNaN(Checkpoints(tmp_path / "other")), Checkpoints(tmp_path)
    connect([stop, other, checkpoints], None)
    assert stop.checkpoints is checkpoints and other.checkpoints.folder == tmp_path / "other"


@pytest.mark.one_backend
def test_nan_after_a_resume_and_in_any_order():
    """Reports arrive from threads: a later nan that arrives first does not hide the first one."""
    stop = StopOnNaN()
    stop.set_model(type("Model", (), {"initial_step": 100})())
    stop.on_train_begin()
    stop.on_epoch_begin(0)
    for batch in range(4):
        stop.on_train_batch_begin(batch)
    nan = {"loss": float("nan")}
    stop.on_train_batch_end(3, nan)
    stop.on_train_batch_end(0, {"loss": 1.0})
    stop.on_train_batch_end(2, nan)
    with pytest.raises(TrainingDiverged, match=r"batches\[101\]"):
        stop.on_train_batch_end(1, nan)


@pytest.mark.one_backend
def test_late_reports_of_a_failed_fit_are_not_counted(tiny):
    """Its threads may report batches when the next `fit` with the same callbacks has begun."""
    stop, begun = StopOnNaN(), threading.Event()
    late = threading.Thread(
        target=lambda: begun.wait(10) and stop.on_train_batch_end(3, {"loss": float("nan")}), daemon=True
    )
    late.start()

    class Wait(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            begun.set()
            late.join()

    tiny.train(scheduled(tiny), 0, 8, [stop, Wait()])
    assert stop.step == 8


@pytest.mark.one_backend
def test_a_batch_of_a_failed_fit_that_waited_for_the_lock_is_not_counted():
    """Its thread asks for the lock before the next `fit` begins, and gets it afterwards."""
    asked, begun = threading.Event(), threading.Event()

    class Lock:
        def __enter__(self):
            if threading.current_thread() is not threading.main_thread():
                asked.set()
                begun.wait()

        def __exit__(self, *error):
            pass

    counting = RunCallback()
    counting.set_model(types.SimpleNamespace(initial_step=4))
    counting.on_train_begin()
    counting.on_epoch_begin(0)
    counting._lock = Lock()
    late = threading.Thread(target=counting.on_train_batch_end, args=(3,))
    late.start()
    asked.wait()
    counting.on_train_begin()
    begun.set()
    late.join()
    assert counting.step == 4


def test_callbacks_never_make_the_device_wait(tiny, tmp_path):
    """On JAX and torch, Keras calls all of our batch hooks from its threads."""
    seen = []

    class Spy(RunCallback):
        def on_steps(self, logs):
            seen.append((self.step, threading.current_thread() is threading.main_thread()))

    callbacks = [Spy(), Progress(quiet=True), RunLog(tmp_path), StopOnNaN(), Checkpoints(tmp_path)]
    tiny.train(scheduled(tiny), 0, 8, callbacks)
    assert seen[-1][0] == 8 and [step for step, _ in seen] == sorted({step for step, _ in seen})
    assert {on_main for _, on_main in seen} == {keras.backend.backend() == "tensorflow"}


@pytest.mark.one_backend
def test_plain_progress(tiny, capsys):
    model = scheduled(tiny)
    tiny.train(model, 0, 8, [Progress(8, tokens_per_step=20, interval=0.0)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("step 8/8  loss ") and "tokens/s" in lines[-1] and lines[-1].endswith("0:00 left")
    assert any(line.startswith("step 4/8") for line in lines)
    tiny.train(model, 0, 8, [Progress(quiet=True)])
    assert capsys.readouterr().out == ""
    model.initial_step = 40
    tiny.train(model, 0, 8, [Progress(interval=1e9)])
    steps = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert steps == ["step 44/48", "step 48/48"]


@pytest.mark.one_backend
def test_lines_of_progress_fit_into_a_log():
    parts = [f"val_metric_{number} 0.1234" for number in range(9)]
    lines = in_lines("  ".join(parts)).splitlines()
    assert max(map(len, lines)) <= 120 and len(lines) == 2 and lines[1].startswith("    val_metric_")
    assert "  ".join(line.strip() for line in lines) == "  ".join(parts)


@pytest.mark.one_backend
def test_bar_in_a_terminal(tiny, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    tiny.train(scheduled(tiny), 0, 8, [Progress(8, tokens_per_step=20)])
    output = capsys.readouterr().out
    assert "8/8" in output and "step 4/8" in output and "tokens/s" in output


@pytest.mark.one_backend
def test_log_is_valid_json(tiny, tmp_path):
    log = RunLog(tmp_path)
    log.set_model(scheduled(tiny))
    log.on_train_begin()
    log.on_epoch_begin(0)
    log.on_train_batch_end(0, {})
    log.on_epoch_end(0, {"loss": 1.5, "perplexity": float("inf")})
    (line,) = (tmp_path / "log.jsonl").read_text().splitlines()
    row = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert row["epoch"] == row["step"] == 1 and row["loss"] == 1.5
    assert row["tokens"] is None and row["perplexity"] is None


@pytest.mark.parametrize("programs, expected", [(0, ""), (1, "compiling 1 program "), (3, "compiling 3 programs ")])
@pytest.mark.one_backend
def test_a_line_says_what_is_compiled(programs, expected, capsys):
    progress = Progress(4)
    progress.programs = programs
    progress.set_model(types.SimpleNamespace())
    progress.on_train_begin()
    assert capsys.readouterr().out == (expected and expected + "during the first steps\n")
