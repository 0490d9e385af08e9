"""What fine-tuning reports, and when."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest

from kerasbert.data import ExampleBatches
from kerasbert.data.batches.bucketing import BucketedBatches
from pipelines.examples import Examples
from pipelines.finetune import finetune
from pipelines.reports import EpochProgress, HeldOut, in_reports, spread

pytestmark = pytest.mark.one_backend


def bucketed(steps, epochs):
    x = {"token_ids": np.ones((2 * steps, 4), "int32"), "lengths": np.full(2 * steps, 4, "int32")}
    return BucketedBatches(x, batch_size=2, epochs=epochs)


@pytest.mark.parametrize("epochs", [1, 3, 30])
@pytest.mark.parametrize("steps", [1, 2, 7, 16, 61, 63, 97, 1_009])
def test_reports_come_at_equal_distances_and_at_the_end_of_every_epoch(steps, epochs):
    """A number of steps that cannot be divided becomes a few more."""
    batches, interval = in_reports(bucketed(steps, epochs), epochs)
    found = len(batches) // epochs
    assert found % interval == 0 and steps <= found <= steps * 17 / 16
    assert found // interval <= 12 and (epochs > 1 or steps < 16 or found // interval >= 4)


def test_other_batches_keep_their_steps():
    batches = ExampleBatches(np.ones((61, 4), "int32"), batch_size=1)
    assert in_reports(batches, 1) == (batches, 61)
    assert in_reports(ExampleBatches(np.ones((60, 4), "int32"), batch_size=1), 1)[1] == 5


def test_examples_that_are_measured_are_spread_with_their_questions():
    articles = [{"paragraphs": [{"context": "c", "qas": [{"id": str(n)} for n in range(5)]}]}] * 2
    found = spread(Examples(list(range(10)), list("abcdefghij"), articles), 3)
    assert found.x == [0, 4, 9] and found.y == ["a", "e", "j"] and len(found.dataset) == 3
    assert [entry["paragraphs"][0]["qas"][0]["id"] for entry in found.dataset] == ["0", "4", "4"]


def test_the_line_of_a_report_names_the_epoch(monkeypatch):
    progress = EpochProgress(steps=100, steps_per_epoch=50, epochs=2)
    monkeypatch.setattr(EpochProgress, "steps_per_second", None)
    progress._total, progress.tokens_per_step, progress._epoch_start = 100, None, 0
    progress.set_params({"steps": 100})
    for step, expected in ((9, "epoch 1 of 2  step 9/100"), (50, "epoch 1 of 2"), (51, "epoch 2 of 2")):
        progress.step = step
        assert progress._line({}).startswith(expected)


def test_scores_are_added_to_the_report():
    logs = {"loss": 1.0, "val_accuracy": 0.5}
    callback = HeldOut(lambda model: {"accuracy": 0.4, "f1": 0.3})
    callback.set_model(SimpleNamespace())
    callback.on_epoch_end(0, logs)
    assert logs == {"loss": 1.0, "val_accuracy": 0.5, "val_f1": 0.3}


def test_a_run_of_one_epoch_has_a_curve_and_keeps_its_best_weights(finished_run, labelled_file, tmp_path, capsys):
    rows = [json.loads(line) for line in labelled_file.read_text().splitlines()]
    data = tmp_path / "a.jsonl"
    data.write_text("\n".join(json.dumps(row) for row in rows * 4))
    options = dict(epochs=1, batch_size=4, max_length=16, learning_rate=1e-2, keep_best=True)
    metrics = finetune(str(finished_run[0] / "model"), str(data), tmp_path / "m", str(data), **options)
    assert metrics["epochs"] == 1 and "epoch 1 of 1  step " in capsys.readouterr().out
    with open(tmp_path / "m" / "logs" / "seed_0" / "log.csv", newline="") as file:
        log = list(csv.DictReader(file))
    assert len(log) > 5 and {"loss", "val_loss", "val_accuracy", "val_macro_f1", "val_matthews"} < set(log[0])
    assert [float(row["tokens_per_second"] or 1) > 0 for row in log]
