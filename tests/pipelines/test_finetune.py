"""A classifier from a pretrained folder, its scores, and answers as JSON lines."""

import io
import json
import sys

import numpy as np
import pytest

import kerasbert
from kerasbert.tasks import TextClassifier
from kerasbert.training import read_log
from pipelines.evaluate import evaluate
from pipelines.finetune import finetune
from pipelines.predict import predict
from pipelines.reading.examples import Examples, read_examples
from pipelines.reading.label_names import check_labels, label_names
from pipelines.runs.devices import described_device
from pipelines.runs.facts import OPTIMIZER
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
    assert "| accuracy | 1 |" in card and "# animals\n\nThis is a text classifier, fine-tuned from `model`: a" in card
    assert f"{len(read_examples('classes', labeled_file))} of these examples are also in the training data, so" in card
    assert "model-index" not in card
    assert kerasbert.load(output).labels == ["cat", "dog"]


def test_the_card_says_how_to_repeat_the_training(fine_tuned):
    """Of 24 examples in batches of 8, in 30 epochs."""
    card = (fine_tuned[0] / "README.md").read_text()
    data, training = card.partition("## Data\n")[2].split("## Training\n")
    for row in ("examples | 24", "columns | text in sentence, label in label", "labels | cat 12, dog 12"):
        assert f"| {row} |\n" in data
    rows = ("seeds | 0, 1; this is the model of seed 0", "updates | 90", "learning_rate | 0.01", "max_length | 16")
    for row in (*rows, "dtype | float32", f"optimizer | {OPTIMIZER}"):
        assert f"| {row} |\n" in training
    last = read_log(fine_tuned[0] / "logs" / "seed_0")[-1]
    assert f"| minutes | {round(last['seconds'] / 60, 2):g} |\n" in training
    assert f"| device | {described_device()} |\n" in training


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


def test_inputs_without_a_text(fine_tuned, tmp_path, monkeypatch):
    """An answer for each text, or an error: an earlier file of answers stays."""
    for texts, found in ((("the cat sat", ""), "'', as text 2"), ((" ",), "' ', as text 1")):
        with pytest.raises(ValueError, match=f"Texts must not be empty. Received: {found}. Leave it out."):
            predict(str(fine_tuned[0]), texts=texts)
    (tmp_path / "out.jsonl").write_text("earlier")
    for name, content in (("a.txt", ""), ("b.txt", "\n \n"), ("c.csv", "text\n"), ("d.jsonl", "")):
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match=f"a line or a row to answer. Received: .*{name} without any."):
            predict(str(fine_tuned[0]), str(tmp_path / name), tmp_path / "out.jsonl")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with pytest.raises(ValueError, match="a line or a row to answer. Received: standard input without any."):
        predict(str(fine_tuned[0]))
    assert (tmp_path / "out.jsonl").read_text() == "earlier"
    with pytest.raises(ValueError, match="Inputs are texts, or a file. Received: 1 text and --input a.txt."):
        predict(str(fine_tuned[0]), "a.txt", texts=("a",))


def test_predictions_of_a_classifier(fine_tuned, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("the cat sat 3\n\nthe dog sat 4\nthe cat\tran\n")
    predict(str(fine_tuned[0]), tmp_path / "in.txt", tmp_path / "out.jsonl")
    assert capsys.readouterr().err == "1 empty line has no answer: 2\n"
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


def test_scores_are_no_classes(tmp_path):
    """A number to predict would else become a class for each of its values."""

    def written(labels):
        rows = "".join(f"text {n},{label}\n" for n, label in enumerate(labels))
        (tmp_path / "score.csv").write_text(f"text,label\n{rows}")
        return str(tmp_path / "score.csv")

    for labels, message in (
        (
            [n / 4 for n in range(12)] * 2,
            r"names or whole numbers. Received: 0.25 in .*score.csv. Did you mean --task score\?",
        ),
        (["-1", "1e-3"], r"Received: 1e-3 in .*score.csv. Did you mean --task score\? .* with a letter, such as v1.5."),
        (
            range(10),
            r"the same label. Received: 10 examples with 10 labels in .*, such as '0'. Did you mean --task score",
        ),
        ("abcdefghij", r"Received: 10 examples with 10 labels in .*, such as 'a'. Name the column .* --columns.label."),
    ):
        with pytest.raises(ValueError, match=message):
            finetune("model", written(labels), tmp_path / "out")

    def of(labels, **options):
        return label_names("classes", Examples(labels, labels), **options)

    assert of(["1", "2", "v1.5"]) == ["1", "2", "v1.5"] and of(["3", "2", "2"]) == ["2", "3"]
    assert of(list("012345678")) == list("012345678")  # of few examples, each may well have a label of its own
    assert of(["0.5", "1"], order=("1", "0.5")) == ["1", "0.5"]  # the labels of a known task
    assert label_names("labels", Examples(["a"] * 2, [["0.5"], ["1"]])) == ["0.5", "1"]


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
