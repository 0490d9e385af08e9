"""The study of retrieval: its cells, the clock of its trainings, and its table."""

import types

import pytest

from benchmarks.studies.retrieval import report, run, training

pytestmark = pytest.mark.one_backend


def test_untrained_methods_have_one_seed():
    cells = run.cells()
    assert cells[:3] == ["bm25, seed 0", "untuned, seed 0", "tuned, seed 0"] and len(set(cells)) == len(cells)
    assert cells.count("tuned, seed 2") == 1 and "untuned, seed 1" not in cells


def test_the_rate_falls_with_the_time(monkeypatch):
    now = types.SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(training.time, "process_time", lambda: now.seconds)
    clock = training.Clock(60.0, 0.4)
    model = types.SimpleNamespace(optimizer=types.SimpleNamespace(learning_rate=None), stop_training=False)
    clock.set_model(model)
    for updates, passed, rate in ((0, 0, 0.4 / training.WARMUP), (19, 0, 0.4), (500, 30, 0.2), (999, 59.4, 0.004)):
        clock.updates, now.seconds = updates, 100 + passed
        clock.on_train_batch_begin(0)
        assert model.optimizer.learning_rate == pytest.approx(rate)
        clock.on_train_batch_end(0)
        assert not model.stop_training
    now.seconds = 160.5
    clock.on_train_batch_end(1)
    assert model.stop_training and clock.numbers(8) == {"updates": 1001, "examples": 8008, "processor_seconds": 60}


def test_the_table_has_means_and_deviations(tmp_path, capsys):
    def row(method, seed, value, **more):
        scores = {name: {"ndcg@10": value} for name in run.COLLECTIONS}
        return {"cell": f"{method}, seed {seed}", "method": method, "seed": seed, "scores": scores, **more}

    rows = [row("bm25", 0, 0.1), row("bm25", 0, 0.5), row("tuned", 0, 0.6, updates=10, examples=320)]
    rows.append(row("tuned", 1, 0.8, updates=30, examples=960))
    report.write(rows, tmp_path / "report.md")
    lines = (tmp_path / "report.md").read_text().splitlines()[-2:]
    assert lines[0] == "| bm25 | 0.500 | 0.500 | 0.500 | 1 |  |  |"
    assert lines[1] == "| tuned | 0.700 ± 0.141 | 0.700 ± 0.141 | 0.700 ± 0.141 | 2 | 20 | 640 |"
