"""Exact resume, and what happens when files, disks or recipes are not as they should be."""

import errno
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from kerasbert.backend import seed_everything
from kerasbert.tasks import TextClassifier
from kerasbert.training import (
    Checkpoints,
    LossScale,
    TrainingDiverged,
    adamw,
    checkpoint_files,
    checkpointing,
    read_log,
)

SCRIPT = Path(__file__).with_name("resume_script.py")


def assert_equal(found, expected):
    assert len(found) == len(expected) >= 7
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)
        assert x.dtype == y.dtype


def steps_in(folder):
    return sorted(int(path.stem[5:]) for path in folder.glob("step_*.json"))


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


RECIPE = {"data": {"seed": 0, "rate": 0.15}, "layers": [1, 2], "old": 1}


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory):
    """A run of 12 steps with a checkpoint every 4: its folder and its last state."""
    folder = tmp_path_factory.mktemp("whole")
    seed_everything(1)
    model = tiny.build_model(adamw(0.01, warmup=2, steps=20))
    tiny.train(model, 0, 12, [Checkpoints(folder, keep=None, recipe=RECIPE)])
    return folder, tiny.state(model)


@pytest.fixture
def run(whole, tmp_path):
    """A copy of the run's folder as it was after `steps` steps."""

    def copy(steps=12):
        folder = tmp_path / "run"
        folder.mkdir()
        for path in whole[0].iterdir():
            if int(path.stem[5:]) <= steps:
                shutil.copy(path, folder)
        return folder

    return copy


def fresh(tiny, **options):
    """The same model with other values."""
    seed_everything(2)
    return tiny.build_model(adamw(0.01, warmup=2, steps=20), **options)


@pytest.mark.one_backend
def test_a_checkpoint_within_an_epoch_knows_where_the_epoch_began(tiny, tmp_path):
    class Within(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_begin(self, batch, logs=None):
            if (self.epoch, batch) == (2, 1):
                checkpoints.save_within_epoch(batch)
                starts.update((p.stem, json.loads(p.read_text())["within_epoch"]) for p in tmp_path.glob("*.json"))

    checkpoints, starts = Checkpoints(tmp_path, keep=None), {}
    tiny.train(fresh(tiny), 0, 12, [checkpoints, Within()])
    assert starts == {"step_00000004": None, "step_00000008": None, "step_00000009": 8}


@pytest.mark.one_backend
def test_of_several_processes_only_the_first_writes(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpointing, "is_first_process", lambda: False)
    tiny.train(fresh(tiny), 0, 4, [Checkpoints(tmp_path)])
    assert not list(tmp_path.iterdir())


@pytest.mark.optimized
def test_resume_equals_no_resume(tiny, run, whole):
    """Weights, moments, seeds of both kinds of dropout, and torch's generator: the bits of an undisturbed run."""
    model, checkpoints = fresh(tiny), Checkpoints(run(4), keep=2)
    assert checkpoints.restore(model) == 4
    tiny.train(model, 4, 12, [checkpoints])
    assert_equal(tiny.state(model), whole[1])
    assert steps_in(checkpoints.folder) == [8, 12]
    assert {path.suffix for path in checkpoints.folder.iterdir()} == {".json", ".safetensors"}


def test_dropout_is_part_of_the_state(tiny, run, whole):
    """Had the seeds started anew, the resumed run would differ: the test above can fail."""
    model, checkpoints = fresh(tiny), Checkpoints(run(8))
    checkpoints.restore(model)
    seed_everything(5)
    for variable in model.variables:
        if "seed" in variable.path:
            variable.assign(np.zeros(variable.shape, variable.dtype))
    tiny.train(model, 8, 12, [checkpoints])
    assert not np.array_equal(tiny.state(model)[0], whole[1][0])


def test_killed_runs_end_with_the_same_bits(tiny, tmp_path):
    """SIGKILL in an accumulation window and in the middle of a save; then to the end."""

    spec = importlib.util.spec_from_file_location("resume_script", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    assert script.main(tmp_path / "whole", 16, "never", tiny) == 0
    for kill in ("5", "save"):
        command = [sys.executable, str(SCRIPT), str(tmp_path / "killed"), "16", kill]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert steps_in(tmp_path / "killed" / "run") == [4, 8]  # that of step 12 was cut off
    assert script.main(tmp_path / "killed", 16, "never", tiny) == 8
    whole, killed = (np.load(tmp_path / name / "final.npz") for name in ("whole", "killed"))
    assert_equal([killed[key] for key in killed], [whole[key] for key in whole])
    rows = read_log(tmp_path / "killed" / "run")
    assert [row["step"] for row in rows] == [4, 8, 12, 16]
    assert [row["loss"] for row in rows] == [row["loss"] for row in read_log(tmp_path / "whole" / "run")]
    assert not list((tmp_path / "killed" / "run").glob(".*temporary"))


def test_float16_state(tiny, tmp_path):
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        first, second = (tiny.build_model(LossScale(adamw(0.01), initial_scale=2.0**20)) for _ in range(2))
    finally:
        keras.config.set_dtype_policy(policy)
    tiny.train(first, 0, 12, [Checkpoints(tmp_path)])
    assert Checkpoints(tmp_path).restore(second) == 12  # skipped updates are steps of the run all the same
    assert_equal(tiny.state(second), tiny.state(first))
    assert float(keras.ops.convert_to_numpy(second.optimizer.dynamic_scale)) < 2.0**20


def test_bfloat16_state(tiny, tmp_path):
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("bfloat16")
    try:
        first, second = tiny.build_model(), tiny.build_model()
    finally:
        keras.config.set_dtype_policy(policy)
    tiny.train(first, 0, 4, [Checkpoints(tmp_path)])
    Checkpoints(tmp_path).restore(second)
    assert_equal(tiny.state(second), tiny.state(first))


@pytest.mark.one_backend
def test_describes_itself(run):
    folder = run(4)
    record = json.loads((folder / "step_00000004.json").read_text())
    assert record["step"] == 4 and record["backend"] == keras.backend.backend() and record["recipe"] == RECIPE
    assert record["versions"]["keras"] == keras.__version__
    assert Checkpoints(folder).newest == folder / "step_00000004.safetensors"


@pytest.mark.one_backend
def test_empty_folder(tiny, tmp_path):
    model = fresh(tiny)
    before = tiny.state(model)[: len(model.variables)]
    assert Checkpoints(tmp_path).restore(model) == 0
    assert Checkpoints(tmp_path).newest is None
    assert_equal(tiny.state(model)[: len(before)], before)


def damage(path, how):
    content = path.read_bytes()
    if how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "flipped":
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()


@pytest.mark.parametrize("how", ["truncated", "flipped", "empty", "missing"])
@pytest.mark.one_backend
def test_falls_back_to_the_previous_one(tiny, run, how):
    checkpoints = Checkpoints(run(), keep=1)
    damage(checkpoints.newest, how)
    model = fresh(tiny)
    with pytest.warns(UserWarning, match="step_00000012.*damaged"):
        assert checkpoints.restore(model) == 8
    assert checkpoints.newest.name == "step_00000008.safetensors"
    assert int(keras.ops.convert_to_numpy(model.optimizer.iterations)) == 8


@pytest.mark.one_backend
def test_a_damaged_one_crowds_out_no_good_one(tiny, run):
    checkpoints = Checkpoints(run(), keep=1)
    damage(checkpoints.newest, "truncated")
    model = fresh(tiny)
    with pytest.warns(UserWarning, match="damaged"):
        checkpoints.restore(model)
    tiny.train(model, 8, 10, [checkpoints], epoch=2)
    assert steps_in(checkpoints.folder) == [10, 12]
    tiny.train(model, 10, 12, [checkpoints], epoch=2)
    assert steps_in(checkpoints.folder) == [12] and checkpoints.restore(fresh(tiny)) == 12


@pytest.mark.one_backend
def test_damaged_description(tiny, run):
    folder = run()
    damage(folder / "step_00000012.json", "truncated")
    with pytest.warns(UserWarning, match="damaged"):
        assert Checkpoints(folder).restore(fresh(tiny)) == 8


@pytest.mark.one_backend
def test_all_damaged(tiny, run):
    folder = run(8)
    for step in (4, 8):
        damage(folder / f"step_{step:08d}.safetensors", "truncated")
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(ValueError, match="All checkpoints.*4, 8"):
        Checkpoints(folder).restore(fresh(tiny))


@pytest.mark.parametrize("at", ["weights", "description"])
@pytest.mark.one_backend
def test_full_disk(tiny, run, monkeypatch, at):
    """The error names the newest good checkpoint; not a byte of the folder has changed."""
    model, checkpoints = fresh(tiny), Checkpoints(run(8), keep=1)
    checkpoints.restore(model)
    before = files_in(checkpoints.folder)
    flush, calls = checkpoint_files._flush, []

    def full(path):
        calls.append(path)
        if len(calls) == {"weights": 1, "description": 3 if os.name == "posix" else 2}[at]:
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(path)

    monkeypatch.setattr(checkpoint_files, "_flush", full)
    checkpoints.step = 12
    with pytest.raises(OSError, match="step 12 could not be written.*step_00000008.safetensors") as caught:
        checkpoints.save(model)
    assert caught.value.errno == errno.ENOSPC
    assert files_in(checkpoints.folder) == before


@pytest.mark.one_backend
def test_full_disk_while_safetensors_writes(tiny, run, monkeypatch):
    model, checkpoints = fresh(tiny), Checkpoints(run(8))
    checkpoints.restore(model)
    before = files_in(checkpoints.folder)

    def full(state, path):
        path.write_bytes(b"half")
        raise checkpointing.safetensors.SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(checkpointing.safetensors.numpy, "save_file", full)
    checkpoints.step = 12
    with pytest.raises(OSError, match="Free some space") as caught:
        checkpoints.save(model)
    assert caught.value.errno == errno.ENOSPC and files_in(checkpoints.folder) == before


@pytest.mark.one_backend
def test_full_disk_is_known_before_training(tiny, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(checkpointing.shutil, "disk_usage", lambda folder: usage._replace(free=100))
    with pytest.raises(OSError, match="too little space for a checkpoint"):
        tiny.train(fresh(tiny), 0, 4, [Checkpoints(tmp_path)])


def test_state_that_is_not_finite_is_never_saved(tiny, run):
    model, checkpoints = fresh(tiny), Checkpoints(run(8))
    checkpoints.restore(model)
    before = files_in(checkpoints.folder)
    with pytest.raises(TrainingDiverged, match="After step 12.*not finite.*step_00000008") as caught:
        tiny.train(model, 8, 12, [checkpoints], broken=10)
    assert caught.value.checkpoint == checkpoints.folder / "step_00000008.safetensors"
    assert files_in(checkpoints.folder) == before


@pytest.mark.one_backend
def test_another_recipe(tiny, run):
    folder = run(4)
    same = Checkpoints(folder, recipe={"data": {"rate": 0.15, "seed": 0}, "old": 1, "layers": (1, 2)})
    assert same.restore(fresh(tiny)) == 4
    other = Checkpoints(folder, recipe={"data": {"seed": 7, "rate": 0.15}, "layers": [1, 2], "new": 2})
    with pytest.raises(ValueError, match="a different recipe") as caught:
        other.restore(fresh(tiny))
    lines = [line for line in str(caught.value).splitlines() if line.startswith("  ")]
    assert lines == [
        "  data.seed: 0 in the folder, 7 now",
        "  new: absent in the folder, 2 now",
        "  old: 1 in the folder, absent now",
    ]


@pytest.mark.one_backend
def test_recipe_must_be_json(tiny, tmp_path):
    with pytest.raises(ValueError, match="`recipe` must be a JSON-serializable dict"):
        tiny.train(fresh(tiny), 0, 4, [Checkpoints(tmp_path, recipe={"model": object()})])


def test_another_backend(tiny, run):
    folder = run(4)
    path = folder / "step_00000004.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "backend": "mxnet"}))
    with pytest.raises(ValueError, match="KERAS_BACKEND=mxnet"):
        Checkpoints(folder).restore(fresh(tiny))


@pytest.mark.one_backend
def test_another_model_or_optimizer(tiny, run):
    folder = run(4)
    wider = fresh(tiny, width=6)
    before = tiny.state(wider)[: len(wider.variables)]
    with pytest.raises(ValueError, match=r"embedding/embeddings: float32\[13, 8\] saved, float32\[13, 6\] now"):
        Checkpoints(folder).restore(wider)
    assert_equal(tiny.state(wider)[: len(before)], before)
    with pytest.raises(ValueError, match="belongs to another model or optimizer"):
        Checkpoints(folder).restore(tiny.build_model(keras.optimizers.SGD(0.1)))


@pytest.mark.one_backend
def test_refuses_to_start_over_in_a_used_folder(tiny, run):
    folder = run(8)
    before = files_in(folder)
    with pytest.raises(ValueError, match="up to step 8, but the model was not restored from them"):
        tiny.train(fresh(tiny), 0, 4, [Checkpoints(folder)])
    assert files_in(folder) == before


@pytest.mark.one_backend
def test_needs_a_compiled_model(tmp_path):
    with pytest.raises(ValueError, match="built and compiled"):
        Checkpoints(tmp_path).restore(keras.Sequential([keras.layers.Dense(2)]))
    with pytest.raises(ValueError, match="`keep` must be at least 1"):
        Checkpoints(tmp_path, keep=0)


@pytest.mark.one_backend
def test_the_mean_of_the_newest_checkpoints(tiny, tmp_path):
    model, checkpoints = tiny.build_model(), Checkpoints(tmp_path, keep=3)
    checkpoints.set_model(model)
    model.optimizer.build(model.trainable_variables)
    model.optimizer.iterations.assign(9)
    for step, value in enumerate((50.0, 1.0, 2.0, 6.0)):
        checkpoints.step = step
        for weight in model.trainable_variables:
            weight.assign(np.full(weight.shape, value))
        checkpoints.save(model)
    again = tiny.build_model()
    seeds = [np.copy(keras.ops.convert_to_numpy(v)) for v in again.variables if "seed" in v.path]
    assert Checkpoints(tmp_path, keep=3).average(again, last=3) == [1, 2, 3]
    for weight in again.trainable_variables:
        np.testing.assert_allclose(keras.ops.convert_to_numpy(weight), 3.0, rtol=1e-6)
    assert int(again.optimizer.iterations) == 0 and len(seeds) == 2
    np.testing.assert_array_equal([keras.ops.convert_to_numpy(v) for v in again.variables if "seed" in v.path], seeds)
    with pytest.raises(ValueError, match="holds 3"):
        Checkpoints(tmp_path).average(again, last=4)


@pytest.mark.one_backend
def test_a_fine_tuning_that_was_complete_is_restored(tmp_path):
    """The same call again trains no further, whether or not a batch is left to look at."""

    def trained():
        seed_everything(3)
        model = TextClassifier.from_preset("bert_mini_en", labels=["bad", "good"], max_length=8)
        texts = ["a good day", "a bad day", "all good", "all bad"] * 2
        history = model.fit(
            texts, ["good", "bad"] * 4, batch_size=4, epochs=2, verbose=0, callbacks=[Checkpoints(tmp_path)]
        )
        return model, history.epoch

    first, epochs = trained()
    again, none = trained()
    assert (epochs, none) == ([0, 1], [])
    np.testing.assert_array_equal(first.predict(["a day"]), again.predict(["a day"]))
