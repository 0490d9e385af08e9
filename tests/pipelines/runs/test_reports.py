"""What fine-tuning reports, and when."""

import csv
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from kerasbert.data import ExampleBatches
from kerasbert.data.batches.bucketing import BucketedBatches
from pipelines.finetune import finetune
from pipelines.reading.examples import Examples
from pipelines.runs.reports import (
    BestWeights,
    EpochProgress,
    HeldOut,
    few_enough,
    in_reports,
    plan_reports,
    spread,
    validation_rows,
)
from pipelines.runs.task_options import Optimizer, Start, Training

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
    for step, expected in ((9, "epoch 1 of 2  step   9/100"), (50, "epoch 1 of 2"), (51, "epoch 2 of 2")):
        progress.step = step
        assert progress._line({}).startswith(expected)


def test_scores_are_added_to_the_report():
    logs = {"loss": 1.0, "val_accuracy": 0.5}
    callback = HeldOut(lambda model: {"accuracy": 0.4, "f1": 0.3}, reports=[2])
    callback.set_model(SimpleNamespace())
    callback.on_epoch_end(0, logs)
    assert logs == {"loss": 1.0, "val_accuracy": 0.5}
    callback.on_epoch_end(1, logs)
    assert logs == {"loss": 1.0, "val_accuracy": 0.5, "val_f1": 0.3}


def test_validation_takes_a_tenth_of_the_time_by_default():
    """An example is read twice in a validation, each for a third of its cost in training."""
    for trained, epochs, choosing in [(1_500, 2, False), (1_344, 2, True), (896, 1, True), (60_000, 3, False)]:
        rows = validation_rows(trained * epochs, epochs, choosing)
        batches = ExampleBatches(np.ones((trained, 4), "int32"), batch_size=32, epochs=epochs)
        _, interval, validated = plan_reports(batches, epochs, Examples([""] * rows, [0] * rows))
        share = len(validated) * rows * 2 / 3 / (trained * epochs)
        assert (0.04 < share or rows == 1_000) and share < 0.11 and len(validated) >= (4 if choosing else epochs)
        ends = [len(batches) // interval // epochs * (epoch + 1) for epoch in range(epochs)]
        assert set(ends) <= set(validated)
    assert validation_rows(3_000, 2, False) == 225
    assert validation_rows(100, 2, False) == 32 and validation_rows(10**6, 1, True) == 1_000


def test_all_examples_are_validated_on_if_they_are_at_most_twice_as_many_as_wanted():
    examples = Examples(list("abcdefghi"), list(range(9)))
    assert few_enough(examples, 5) is examples
    assert few_enough(examples, 4).x == ["a", "d", "f", "i"]


@pytest.mark.parametrize("every, expected", [(10, [10, 20, 30, 40, 50, 60]), (25, [30, 60]), (60, [60]), (999, [60])])
def test_the_user_chooses_when_to_validate(every, expected):
    batches = ExampleBatches(np.ones((60, 4), "int32"), batch_size=2, epochs=2)
    _, interval, validated = plan_reports(batches, 2, Examples([], []), every)
    assert [interval * report for report in validated] == expected


def test_reports_without_a_validation_do_not_stop_a_run(capsys):
    callback = BestWeights(patience=2, reports_per_epoch=2)
    callback.set_model(SimpleNamespace(stop_training=False, get_weights=lambda: [], set_weights=lambda weights: None))
    callback.on_train_begin()
    for epoch, loss in enumerate([1.0, None, None, None, 2.0, None]):
        callback.on_epoch_end(epoch, {} if loss is None else {"val_loss": loss})
        assert not callback.model.stop_training
    callback.on_epoch_end(6, {"val_loss": 2.0})
    assert callback.model.stop_training and callback.best == 1.0
    callback.on_train_end()
    assert capsys.readouterr().out == (
        "stopped after epoch 3.5 (--patience); the weights of epoch 0.5 are kept, whose validation loss is the lowest: "
        "1\n"
    )


def test_a_run_of_one_epoch_has_a_curve_and_keeps_its_best_weights(finished_run, labeled_file, tmp_path, capsys):
    rows = [json.loads(line) for line in labeled_file.read_text().splitlines()]
    data = tmp_path / "a.jsonl"
    data.write_text("\n".join(json.dumps(row) for row in rows * 4))
    options = dict(
        training=Training(epochs=1, batch_size=4, keep_best=True),
        start=Start(max_length=16),
        optimizer=Optimizer(learning_rate=0.01),
    )
    metrics = finetune(str(finished_run[0] / "model"), str(data), tmp_path / "m", str(data), **options)
    shown = capsys.readouterr().out
    assert metrics["epochs"] == 1 and "epoch 1 of 1  step " in shown
    said = (
        r"a\.jsonl: text in sentence, label in label\n\d+ examples, \d+ of them only for validation, labels \w+ \d+, "
    )
    assert re.search(said, shown)
    assert re.search(r"the weights of epoch [\d.]+ are kept, whose validation loss is the lowest: [\d.]+\n", shown)
    with open(tmp_path / "m" / "logs" / "seed_0" / "log.csv", newline="") as file:
        log = list(csv.DictReader(file))
    assert len(log) > 5 and {"loss", "val_loss", "val_accuracy", "val_macro_f1", "val_matthews"} < set(log[0])
    assert len([row for row in log if row["val_loss"]]) == len([row for row in log if row["val_macro_f1"]]) < len(log)
    assert [float(row["tokens_per_second"] or 1) > 0 for row in log]
    assert float(log[-1]["epoch"]) == 1 and all(0 < float(row["epoch"]) <= 1 for row in log)
