"""Runs that are stopped, by a signal or by the clock, and runs that get more steps."""

import json
import os
import shutil
import signal
import time

import numpy as np
import pytest

import kerasbert
from kerasbert.data import Corpus
from kerasbert.data.text.locks import locked
from kerasbert.training import RunStopped, read_log
from pipelines import pretrain as module
from pipelines.pretrain import pretrain
from pipelines.recipes.recipe import find_recipe
from pipelines.runs import training
from pipelines.runs.building import make_batches
from tests.pipelines.conftest import SETTINGS

TIMES = ("seconds", "tokens_per_second")


def weights_of(folder):
    return [np.array(v) for v in kerasbert.load(folder).get_weights()]


def rows_of(run):
    """The log without what a clock says."""
    return [{name: value for name, value in row.items() if name not in TIMES} for row in read_log(run)]


def assert_same(run, whole):
    assert rows_of(run) == rows_of(whole)
    for ours, theirs in zip(weights_of(run / "model"), weights_of(whole / "model"), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.fixture
def run(finished_run, tmp_path):
    """The folder of a run of four steps that has only its checkpoint of step 2."""
    run = tmp_path / "run"
    shutil.copytree(finished_run[0], run)
    for path in run.glob("checkpoints/step_00000004*"):
        path.unlink()
    return run


@pytest.fixture
def interrupt(monkeypatch):
    """A function that makes Ctrl-C come before a batch of the first epoch."""
    requests = []

    class Request(module.StopRequest):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            requests.append(self)

    def at(step):
        class Progress(training.Progress):
            def on_train_batch_begin(self, batch, logs=None):
                if batch == step - 1 and requests[-1].reason is None:
                    os.kill(os.getpid(), signal.SIGINT)
                    while requests[-1].reason is None:
                        time.sleep(0.001)

        monkeypatch.setattr(module, "StopRequest", Request)
        monkeypatch.setattr(training, "Progress", Progress)
        return monkeypatch.undo

    return at


@pytest.mark.backends("jax", "torch")
def test_ctrl_c_stops_the_run_and_the_same_command_continues_it(corpora, tmp_path, interrupt, capsys):
    """In the second of two reports: the log, the metrics of the interval and the weights are those of a whole run."""
    options = dict(report_every=3, set=(*SETTINGS, "steps=6", "accumulation=2", "average=2"))
    whole, run = tmp_path / "whole", tmp_path / "run"
    pretrain(corpora[0], whole, **options)
    for step in (4, 5):  # twice, within one interval
        undo = interrupt(step if step == 4 else 1)
        with pytest.raises(RunStopped):
            pretrain(corpora[0], run, **options)
        undo()
        assert not (run / ".lock").exists() and not (run / "model").exists()
        output = capsys.readouterr().out
        assert f"stopped after step {step} of 12" in output and "Run the same command again to continue." in output
        assert f"step_{step:08d}.safetensors" in output
    pretrain(corpora[0], run, **options)
    assert "continuing from step 5 of 12\n" in capsys.readouterr().out
    assert_same(run, whole)
    assert sorted(path.name for path in (run / "checkpoints").glob("*.json")) == [
        "step_00000006.json",
        "step_00000012.json",
    ]


@pytest.mark.one_backend
def test_another_interval_after_a_stop_is_said(corpora, tmp_path, interrupt):
    options = dict(set=(*SETTINGS, "steps=6"))
    undo = interrupt(5)
    with pytest.raises(RunStopped):
        pretrain(corpora[0], tmp_path, report_every=6, **options)
    undo()
    with pytest.warns(UserWarning, match="stopped in the middle of an epoch, at step 5, and resumes with a different"):
        pretrain(corpora[0], tmp_path, report_every=3, **options)
    assert [row["step"] for row in read_log(tmp_path)] == [6]


@pytest.mark.one_backend
def test_the_clock_stops_a_run_that_keeps_its_model_so_far(corpora, tmp_path, monkeypatch, capsys):
    class Clock(module.StopRequest):
        seen = 0
        reason = property(lambda self: "time" if (setattr(self, "seen", self.seen + 1) or self.seen) > 3 else None)

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(module, "StopRequest", Clock)
        assert pretrain(corpora[0], run, report_every=2, minutes=1.0, set=SETTINGS)["step"] == 2
    assert "stopped after step 3 of 4" in capsys.readouterr().out
    assert "3 of 4" in (run / "model" / "README.md").read_text()
    assert len(weights_of(run / "model")) > 9
    assert pretrain(corpora[0], run, report_every=2, set=SETTINGS)["step"] == 4
    with pytest.raises(ValueError, match="`minutes` must be above 0. Received: 0"):
        pretrain(corpora[0], run, minutes=0.0, set=SETTINGS)


@pytest.mark.one_backend
def test_a_finished_run_gets_more_steps(finished_run, corpora, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(finished_run[0], run)
    longer = dict(held_out=corpora[1], report_every=3, set=(*SETTINGS, "steps=6"))
    last = pretrain(corpora[0], run, **longer)
    output = capsys.readouterr().out
    assert "extending the run of 4 updates; the schedule is now that of 6" in output
    assert "continuing from step 4 of 6" in output
    assert last["step"] == 6 and [row["step"] for row in read_log(run)] == [2, 4, 6]
    for path in run.glob("checkpoints/step_00000006*"):  # the checkpoint that is left is of the run before
        path.unlink()
    assert pretrain(corpora[0], run, **longer)["loss"] == last["loss"]
    with pytest.raises(ValueError, match="recipe.phases.0.steps: 6 in the folder, 4 now"):
        pretrain(corpora[0], run, set=SETTINGS)
    record = json.loads((run / "recipe.json").read_text())
    records = [record, *record["earlier"]]
    assert [each["recipe"]["phases"][0]["steps"] for each in records] == [6, 4]


@pytest.mark.one_backend
def test_what_does_not_extend_a_run(run, corpora):
    with pytest.raises(ValueError, match="extend a finished run only: finish it with --set steps=4"):
        pretrain(corpora[0], run, set=(*SETTINGS, "steps=6"))
    with pytest.raises(ValueError, match="batch_size: 4 in the folder, 2 now(.|\n)*with --reschedule"):
        pretrain(corpora[0], run, set=(*SETTINGS, "steps=6", "batch_size=2"))


@pytest.mark.one_backend
def test_a_run_continues_with_another_schedule(run, corpora, capsys):
    decay = (*SETTINGS, "steps=3", "warmup=0", "optimizer.schedule.decay_from=2")
    with pytest.raises(ValueError, match="from step 2 on, with --reschedule and steps=2 or more"):
        pretrain(corpora[0], run, set=decay)
    with pytest.raises(ValueError, match="length: 16 in the folder, 8 now"):
        pretrain(corpora[0], run, set=(*decay, "length=8"), reschedule=True)
    with pytest.raises(ValueError, match="from step 2 on, with --reschedule and steps=2 or more"):
        pretrain(corpora[0], run, set=(*SETTINGS, "steps=1", "warmup=0"), reschedule=True)
    last = pretrain(corpora[0], run, report_every=1, set=decay, reschedule=True)
    output = capsys.readouterr().out
    assert "rescheduling the run of 4 updates; the schedule is now that of 3" in output
    assert "continuing from step 2 of 3" in output
    assert last["step"] == 3 and last["learning_rate"] < read_log(run)[-2]["learning_rate"]
    record = json.loads((run / "recipe.json").read_text())
    assert record["recipe"]["optimizer"]["schedule"]["decay_from"] == 2 and len(record["earlier"]) == 1


@pytest.mark.one_backend
def test_a_run_continues_with_another_batch_size(run, corpora, capsys):
    """Interrupted later on, it resumes exactly."""
    larger = (*SETTINGS, "batch_size=8")
    with pytest.raises(ValueError, match="batch_size: 4 in the folder, 8 now(.|\n)*with --reschedule"):
        pretrain(corpora[0], run, set=larger)
    last = pretrain(corpora[0], run, report_every=1, set=larger, reschedule=True)
    output = capsys.readouterr().out
    assert "from update 3 on, an update has 8 rows" in output and "continuing from step 2 of 4" in output
    rows = read_log(run)
    tokens = [row["tokens"] for row in rows]
    assert [row["step"] for row in rows] == [2, 3, 4] and tokens[2] - tokens[1] > 1.5 * tokens[0] / 2
    for path in run.glob("checkpoints/step_00000004*"):
        path.unlink()
    assert pretrain(corpora[0], run, report_every=1, set=larger)["loss"] == last["loss"]
    record = json.loads((run / "recipe.json").read_text())
    records = [record, *record["earlier"]]
    assert [each["recipe"]["phases"][0]["batch_size"] for each in records] == [8, 4]


@pytest.mark.one_backend
def test_a_run_of_an_earlier_version_is_refused(run, corpora):
    """Its recipe.json has the fields of the recipe side by side. Nothing is written."""
    older = {"recipe": {"name": "bert.tiny", "backbone": "bert_tiny", "steps": 4, "alternating": False}, "batches": {}}
    (run / "recipe.json").write_text(json.dumps(older))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=f"The run in {run} cannot continue: it is of an earlier version of kerasbert"):
        pretrain(corpora[0], run, report_every=2, set=SETTINGS)
    with pytest.raises(ValueError, match="recipe.json must be a recipe .*: it is of an earlier version of kerasbert"):
        find_recipe(str(run / "recipe.json"))
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.one_backend
def test_two_runs_in_one_folder(corpora, tmp_path):
    with locked(tmp_path / "run"), pytest.raises(ValueError, match="one process at a time"):
        pretrain(corpora[0], tmp_path / "run", set=SETTINGS)
    assert not (tmp_path / "run").exists()


@pytest.mark.one_backend
def test_the_log_counts_real_tokens(finished_run, corpora):
    recipe = find_recipe("bert.tiny").with_settings(list(SETTINGS))
    real = [int(np.sum(x["lengths"])) for x, _, _ in make_batches(recipe, Corpus.open(corpora[0]))]
    assert [row["tokens"] for row in read_log(finished_run[0])] == [sum(real[:2]), sum(real)]


@pytest.mark.one_backend
def test_a_misspelt_recipe_or_setting_names_the_nearest():
    for call, message in (
        (lambda: find_recipe("brt.tiny"), r"Received: 'brt.tiny'. Did you mean bert.tiny\?"),
        (lambda: find_recipe("electra_tny"), r"Did you mean electra.tiny\?"),
        (lambda: find_recipe("bert.tiny").with_settings(["stesp=9"]), r"Received: 'stesp=9'. Did you mean steps\?"),
        (lambda: find_recipe("bert.tiny").with_settings(["modl.num_layers=9"]), r"Did you mean model\?"),
        (lambda: find_recipe("bert.tiny").with_settings(["model.num_layer=9"]), r"Did you mean num_layers\?"),
        (lambda: find_recipe("xyzzy"), r"Received: 'xyzzy'.$"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
