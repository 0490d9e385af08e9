"""Curves of runs."""

import json
import math

import pytest

from pipelines.show.curves import TOKEN_LOSS, Curve, curves_figure, curves_of, run_names

pytestmark = pytest.mark.one_backend


@pytest.fixture
def write_run(tmp_path):
    def write(name, rows):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return folder

    return write


ROWS = [
    {
        "step": step,
        "epoch": step // 10,
        "tokens_per_second": 9.0,
        "learning_rate": 1e-3,
        "loss": math.log(train) + extra,
        "accuracy": 0.1 * step / 10,
        "perplexity": train,
        "val_loss": math.log(held_out) + extra,
        "val_perplexity": held_out,
        "below_unigram": 6.0 - math.log(held_out),
    }
    for step, train, held_out, extra in ((10, 300.0, 350.0, 0.0), (20, 200.0, 250.0, 0.0))
]


def test_the_loss_of_unigrams_follows_from_the_log(write_run):
    found = {(curve.panel, curve.kind): curve.points for curve in curves_of(write_run("a", ROWS))}
    assert found[TOKEN_LOSS, "training"] == ((10, math.log(300)), (20, math.log(200)))
    assert found[TOKEN_LOSS, "held-out"] == ((10, math.log(350)), (20, math.log(250)))
    assert [value for _, value in found[TOKEN_LOSS, "unigrams"]] == pytest.approx([6.0, 6.0])
    assert set(found) == {(TOKEN_LOSS, kind) for kind in ("training", "held-out", "unigrams")} | {
        ("accuracy", "training"),
        ("learning_rate", "training"),
    }  # `loss` is the same as the first


def test_without_held_out_text_the_difference_is_to_the_training_loss(write_run):
    rows = [{"step": 1, "loss": 1.0, "perplexity": math.e, "below_unigram": 2.5}]
    found = {(curve.panel, curve.kind): curve.points for curve in curves_of(write_run("a", rows))}
    assert found[TOKEN_LOSS, "unigrams"] == ((1, pytest.approx(3.5)),)


def test_a_loss_with_further_terms_has_a_panel(write_run):
    rows = [{**row, "loss": row["loss"] + 0.6, "sentence_pair_loss": 0.6} for row in ROWS]
    assert {"loss", "sentence_pair_loss"} <= {curve.panel for curve in curves_of(write_run("a", rows))}


def test_reports_without_a_value_are_left_out(write_run):
    rows = [{"step": 1, "loss": None}, {"step": 2, "loss": 3.0}]
    assert curves_of(write_run("a", rows)) == [Curve("loss", "training", ((2, 3.0),))]


def test_names_of_runs(tmp_path):
    assert run_names([tmp_path / "a", tmp_path / "b"]) == ["a", "b"]
    assert run_names([tmp_path / "a" / "run", tmp_path / "b" / "run"]) == ["a/run", "b/run"]
    with pytest.raises(ValueError, match="Every run must be given once"):
        run_names([tmp_path, tmp_path])


def test_figure_of_one_run(write_run):
    figure = curves_figure([write_run("tiny", ROWS)])
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "loss per predicted token (nats)",
        "accuracy",
        "learning rate",
    ]
    assert {axes.get_xlabel() for axes in figure.axes} == {"updates"}
    assert [line.get_linestyle() for line in figure.axes[0].lines] == ["-", "--", ":"]
    assert [text.get_text() for text in figure.legends[0].texts] == ["training", "held-out", "unigrams"]
    figure.canvas.draw()
    assert "%" in figure.axes[1].get_yticklabels()[0].get_text()


def test_figure_of_several_runs(write_run):
    figure = curves_figure([write_run("tiny", ROWS), write_run("small", ROWS)])
    colors = {line.get_color() for line in figure.axes[1].lines}
    assert len(colors) == 2
    assert [text.get_text() for text in figure.legends[0].texts] == [
        *("tiny", "small"),
        *("training", "held-out", "unigrams"),
    ]


def test_errors(write_run, tmp_path):
    with pytest.raises(ValueError, match="a log of at least one report. Received: .*nowhere, without rows"):
        curves_of(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="1 to 7 runs, one for each color. Received: 0"):
        curves_figure([])
