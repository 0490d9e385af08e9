"""A classifier from a pretrained folder, its scores, and answers as JSON lines."""

import io
import json
import sys

import numpy as np
import pytest

import kerasbert
from kerasbert.tasks import TextClassifier
from pipelines.evaluate import evaluate
from pipelines.finetune import finetune
from pipelines.predict import predict
from pipelines.reading.examples import Examples, read_examples
from pipelines.reading.label_names import check_labels, label_names
from pipelines.runs.finetuning import summary
from pipelines.runs.scores import classification_scores, regression_scores
from pipelines.runs.task_options import Optimizer, Start, Training

pytestmark = pytest.mark.one_backend


@pytest.fixture(scope="module")
def fine_tuned(finished_run, labeled_file, tmp_path_factory):
    output = tmp_path_factory.mktemp("models") / "animals"
    metrics = finetune(
        str(finished_run[0] / "model"),
        labeled_file,
        output,
        held_out=labeled_file,
        training=Training(epochs=30, batch_size=8, seeds=(0, 1)),
        optimizer=Optimizer(learning_rate=0.01),
        start=Start(max_length=16),
    )
    return output, metrics


def test_finetuning_learns_and_reports(fine_tuned, labeled_file):
    output, metrics = fine_tuned
    assert metrics["accuracy"] == 1.0
    assert [run["seed"] for run in metrics["runs"]] == [0, 1]
    stored = json.loads((output / "metrics.json").read_text())
    assert stored["runs"] == metrics["runs"] and stored["recipe"]["learning_rate"] == 1e-2
    card = (output / "README.md").read_text()
    assert (
        "| accuracy | 1 |" in card and "# animals\n\nText classifier fine-tuned from model: a Bert model with" in card
    )
    assert f"{len(read_examples('classes', labeled_file))} of these examples are also in the training data." in card
    assert kerasbert.load(output).labels == ["cat", "dog"]


def test_evaluation_gives_the_same_scores(fine_tuned, labeled_file, tmp_path):
    scores = evaluate(str(fine_tuned[0]), data=labeled_file, output=tmp_path / "scores.json")
    assert scores["accuracy"] == 1.0
    assert json.loads((tmp_path / "scores.json").read_text()) == scores


def test_evaluation_of_a_language_model(finished_run, corpora):
    run, last = finished_run
    scores = evaluate(str(run / "model"), corpus=corpora[1])
    for name in ("loss", "perplexity", "sentence_pair_loss"):  # the rows, masks and length of the run's validation
        assert scores[name] == pytest.approx(last[f"val_{name}"], rel=1e-4)
    assert scores["token_loss"] == pytest.approx(np.log(last["val_perplexity"]), rel=1e-4)
    other = evaluate(str(run / "model"), corpus=[f"text={corpora[1]}"], batch_size=2, length=12, steps=1)
    assert other["loss"] != scores["loss"]
    assert scores["below_unigram"] == pytest.approx(scores["unigram_entropy"] - scores["token_loss"])
    with pytest.raises(ValueError, match="--task minimal-pairs --data FOLDER. Received: a MaskedLM with neither"):
        evaluate(str(run / "model"))


def test_predictions_of_a_classifier(fine_tuned, tmp_path):
    (tmp_path / "in.txt").write_text("the cat sat 3\n\nthe dog sat 4\nthe cat\tran\n")
    predict(str(fine_tuned[0]), tmp_path / "in.txt", tmp_path / "out.jsonl")
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [answer["input"] for answer in answers] == ["the cat sat 3", "the dog sat 4", ["the cat", "ran"]]
    assert [answer["label"] for answer in answers[:2]] == ["cat", "dog"]
    assert all(0.5 <= answer["score"] <= 1.0 for answer in answers)


def test_labels_without_names_are_numbers(finished_run, tmp_path):
    model = TextClassifier.from_preset(finished_run[0] / "model", labels=2, load_weights=False)
    model.save_to_preset(tmp_path / "model")
    (tmp_path / "a.csv").write_text("text,label\nthe cat,0\nthe dog,1\n")
    said = [["LABEL_0", "LABEL_1"].index(answer["label"]) for answer in model.classify(["the cat", "the dog"])]
    found = evaluate(str(tmp_path / "model"), data=str(tmp_path / "a.csv"))
    assert found["accuracy"] == np.mean(np.array(said) == [0, 1])
    (tmp_path / "a.csv").write_text("text,label\nthe cat,0\nthe dog,2\n")
    with pytest.raises(ValueError, match="Received: .*a.csv row 1: '0'"):
        evaluate(str(tmp_path / "model"), data=str(tmp_path / "a.csv"))


def test_tasks_by_name_from_files_with_other_columns(finished_run, tmp_path, capsys):
    """The columns of a data set's own files are guessed; tags come in columns without names."""
    (tmp_path / "a.tsv").write_text("sentence1\tsentence2\tgold_label\nthe cat\tsat\tneutral\nthe\tdog\tentailment\n")
    (tmp_path / "a.conll").write_text("the O\ncat B-PET\n")
    options = dict(training=Training(epochs=1, batch_size=2), start=Start(max_length=16))
    for task, name, labels in (
        ("mnli", "a.tsv", ["entailment", "neutral"]), ("conll2003", "a.conll", ["O", "B-PET"]),
    ):  # fmt: skip
        finetune(str(finished_run[0] / "model"), str(tmp_path / name), tmp_path / task, task=task, **options)
        assert kerasbert.load(tmp_path / task).labels == labels
        assert "Only 1 update. If scores are low, use more --epochs" in capsys.readouterr().out


def test_tags_of_another_set():
    """One unknown tag is a mistake as any other; a set that has none in common is a wrong file or column."""
    examples = Examples([["Ann", "ran"]], [["B-PER", "VBD"]])
    check_labels(["O", "B-PER"], examples, "a.conll")
    with pytest.raises(ValueError, match=r"Tags must be of the set.*Received: a.conll with \['B-PER', 'VBD'\]"):
        check_labels(["O", "B-LOC"], examples, "a.conll")


def test_one_class_is_told_with_its_file(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na,1\nb,1\n")
    with pytest.raises(ValueError, match=r"two or more labels. Received: \['1'\] in .*a.csv. Add examples"):
        finetune("model", str(tmp_path / "a.csv"), tmp_path)
    assert label_names("classes", Examples(["a", "b"], ["--1", "1"])) == ["--1", "1"]


def test_predictions_of_masks(finished_run, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("the [MASK] sat on the [MASK]\n"))
    predict(str(finished_run[0] / "model"), top=3)
    (answer,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(answer["masks"]) == 2
    assert all(len(candidates) == 3 for candidates in answer["masks"])
    assert answer["masks"][0][0]["score"] >= answer["masks"][0][1]["score"] > 0
    with pytest.raises(FileNotFoundError, match="must contain config.json. Received: .* without it. Use .*model"):
        predict(str(finished_run[0]))


def test_regression(finished_run, tmp_path):
    rows = "".join(f"the {'cat' if n % 2 else 'dog'} sat {n},{n % 2}.5\n" for n in range(16))
    (tmp_path / "scores.csv").write_text("text,score\n" + rows)
    metrics = finetune(
        str(finished_run[0] / "model"),
        tmp_path / "scores.csv",
        tmp_path / "model",
        held_out=tmp_path / "scores.csv",
        task="score",
        training=Training(epochs=30, batch_size=8),
        optimizer=Optimizer(learning_rate=0.01),
    )
    assert metrics["pearson"] > 0.9
    assert metrics["mean_squared_error"] < 0.25


def test_labels_are_ordered_and_checked():
    assert label_names("classes", Examples(["a", "b", "c"], ["10", "9", "9"])) == ["9", "10"]
    assert label_names("classes", Examples(["a", "b"], ["yes", "no"])) == ["no", "yes"]
    with pytest.raises(ValueError, match="two or more labels. Received: \\['yes'\\]"):
        label_names("classes", Examples(["a"], ["yes"]))
    with pytest.raises(ValueError, match="those of the training data.*Received: test.csv row 2: 'maybe'"):
        check_labels(["no", "yes"], Examples(["c", "d"], ["no", "maybe"]), "test.csv")


def test_scores_against_worked_examples():
    logits = np.array([[2.0, 1.0], [0.0, 1.0], [3.0, 1.0], [0.0, 2.0]])
    scores = classification_scores(logits, np.array([0, 1, 1, 1]))
    # right: 3 of 4; F1 of class 0: 2/3, of class 1: 4/5; Matthews: (1*2 - 1*0) / sqrt(2*1*3*2)
    assert scores == pytest.approx(
        {"accuracy": 0.75, "macro_f1": (2 / 3 + 4 / 5) / 2, "matthews": 2 / np.sqrt(12), "f1": 4 / 5}
    )
    scores = regression_scores(np.array([[1.0], [2.0], [3.0]]), np.array([[2.0], [3.0], [5.0]]))
    assert scores["mean_squared_error"] == pytest.approx(2.0)
    assert scores["spearman"] == pytest.approx(1.0)
    assert scores["pearson"] == pytest.approx(np.corrcoef([1, 2, 3], [2, 3, 5])[0, 1])
    assert summary([{"seed": 0, "accuracy": 0.5}, {"seed": 1, "accuracy": 1.0}]) == {
        "accuracy": 0.75,
        "accuracy_deviation": 0.25,
    }
