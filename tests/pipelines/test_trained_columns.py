"""`predict` and `evaluate` read the columns that `finetune` read, also in tables with other columns beside them."""

import csv
import json

import pytest

from pipelines.evaluate import evaluate
from pipelines.finetune import finetune
from pipelines.predict import predict
from pipelines.reading.inputs import read_inputs
from pipelines.reading.labeled import GUESSED, Columns, TrainedColumns
from pipelines.reading.tables import ColumnsRead
from pipelines.reading.tasks import task_of
from pipelines.runs.losses import Objective
from pipelines.runs.task_options import Start, Training
from pipelines.runs.trained_columns import columns_for, named_columns

pytestmark = pytest.mark.one_backend
ONCE = dict(training=Training(epochs=1, batch_size=8), start=Start(max_length=16))
TEXTS = ["the cat sat", "a dog ran", "cats sleep", "dogs bark"] * 4


def table(path, **columns):
    """Writes a CSV file with these columns."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return str(path)


def answers_to(model, path, output):
    """The inputs that `predict` reads from a table without being told its columns."""
    predict(str(model), path, output)
    return [json.loads(line)["input"] for line in output.read_text().splitlines()]


@pytest.fixture(scope="module")
def base(finished_run):
    return str(finished_run[0] / "model")


def test_classifier(base, tmp_path):
    data = table(tmp_path / "train.csv", id=range(16), remark=TEXTS, mood=["cat", "dog"] * 8)
    finetune(base, data, tmp_path / "model", columns=Columns(text="remark", label="mood"), **ONCE)
    later = table(tmp_path / "later.csv", id=range(16), day=["Monday"] * 16, remark=TEXTS)
    assert answers_to(tmp_path / "model", later, tmp_path / "answers.jsonl") == TEXTS
    assert evaluate(str(tmp_path / "model"), (data,))["accuracy"] >= 0
    other = table(tmp_path / "other.csv", text=TEXTS[::-1], day=["Monday"] * 16)  # guessed, as without training
    assert answers_to(tmp_path / "model", other, tmp_path / "answers.jsonl") == TEXTS[::-1]


def test_guessed_columns_of_pairs(base, tmp_path):
    data = table(tmp_path / "train.csv", premise=TEXTS, hypothesis=TEXTS[::-1], label=["yes", "no"] * 8)
    finetune(base, data, tmp_path / "model", **ONCE)
    later = table(tmp_path / "later.csv", text=["x"] * 16, premise=TEXTS, hypothesis=TEXTS[::-1])
    pairs = [list(pair) for pair in zip(TEXTS, TEXTS[::-1], strict=True)]
    assert answers_to(tmp_path / "model", later, tmp_path / "answers.jsonl") == pairs


def test_reranker(base, tmp_path):
    data = table(tmp_path / "train.csv", wanted=TEXTS, found=TEXTS[::-1], label=[0, 1] * 8)
    finetune(base, data, tmp_path / "model", task="rerank", **ONCE)
    later = table(tmp_path / "later.csv", found=TEXTS[::-1], wanted=TEXTS, source=["web"] * 16)
    pairs = [list(pair) for pair in zip(TEXTS, TEXTS[::-1], strict=True)]
    assert answers_to(tmp_path / "model", later, tmp_path / "answers.jsonl") == pairs
    judged = table(tmp_path / "judged.csv", found=TEXTS[::-1], wanted=TEXTS, source=["web"] * 16, label=[0, 1] * 8)
    scores = evaluate(str(tmp_path / "model"), (judged,))  # not with `source` as a third text
    assert scores == evaluate(str(tmp_path / "model"), (data,))


def test_tagger(base, tmp_path):
    words = [json.dumps(text.split()) for text in TEXTS]
    tags = [json.dumps(["O"] * (len(text.split()) - 1) + ["B-X"]) for text in TEXTS]
    data = table(tmp_path / "train.csv", mots=words, classes=tags)
    finetune(base, data, tmp_path / "model", task="ner", columns=Columns(text="mots", label="classes"), **ONCE)
    later = table(tmp_path / "later.csv", tokens=['["x"]'] * 16, mots=words)
    assert answers_to(tmp_path / "model", later, tmp_path / "answers.jsonl") == [text.split() for text in TEXTS]


def test_which_columns_are_kept():
    assert named_columns(ColumnsRead("a.csv", ("q", "d"), "y")) == {"text": "q", "pair": "d", "label": "y"}
    assert named_columns(ColumnsRead("a.csv", ("q",))) == {"text": "q"}
    assert named_columns(ColumnsRead("a.csv", ("0",), "1")) == named_columns(None) == {}  # no header, no table
    assert named_columns(ColumnsRead("a.csv", ("query", "positive", "negative"))) == {}
    assert str(ColumnsRead("a.conll", ("0",), "3", "tags")) == "a.conll: text in column 0, tags in column 3"


def test_named_columns_come_first(tmp_path):
    (tmp_path / "metrics.json").write_text(json.dumps({"columns": {"text": "remark", "label": "mood"}}))
    assert columns_for(str(tmp_path), GUESSED, GUESSED) == TrainedColumns("remark", None, "mood")
    assert columns_for(str(tmp_path), Columns(text="body"), GUESSED) == Columns(text="body")
    usual = task_of("snli").columns
    assert columns_for(str(tmp_path), GUESSED, usual) is usual
    (tmp_path / "metrics.json").unlink()
    assert columns_for(str(tmp_path), GUESSED, GUESSED) is GUESSED


def test_objective_with_named_texts(base, tmp_path):
    data = table(tmp_path / "train.csv", body=TEXTS, summary=TEXTS[::-1], source=["web"] * 16)
    objective = Objective(text_columns=("body", "summary"), loss="MultipleNegatives")
    finetune(base, data, tmp_path / "model", task="embed", objective=objective, **ONCE)
    kept = json.loads((tmp_path / "model" / "metrics.json").read_text())
    assert kept["columns"] == {"text": "body", "pair": "summary"}


def test_questions_and_sequences(tmp_path):
    path = table(tmp_path / "a.csv", source=["x"] * 2, ask=["who?"] * 2, passage=["p"] * 2, where=["he sat"] * 2)
    asked = [item.x for item in read_inputs(path, "questions", TrainedColumns("ask", "where", "answers"))]
    assert asked == [("who?", "he sat")] * 2
    assert [item.x for item in read_inputs(path, "sources", TrainedColumns("where", None, "to"))] == ["he sat"] * 2
