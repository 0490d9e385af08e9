"""Official files go through fine-tuning, evaluation and predictions with no option but the files and the task."""

import json

import pytest

from kerasbert.data import Tokenizer
from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import MaskedLM
from pipelines.evaluate import evaluate
from pipelines.finetune import finetune
from pipelines.predict import predict
from pipelines.runs.task_options import Start, Training

pytestmark = pytest.mark.one_backend

WORDS = [("the cat", "sat on the mat"), ('a "dog', "ran home"), ("it", "was caf\u00e9 red"), ("the house", "is 'big")]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = Tokenizer.train("wordpiece", [" ".join(pair) for pair in WORDS] * 3, 60, lowercase=True)
    sizes = dict(num_layers=1, hidden_dim=8, num_heads=2, feed_forward_dim=8, max_length=32)
    MaskedLM(Bert(BertConfig(vocabulary_size=60, **sizes)), tokenizer=tokenizer).save_to_preset(folder)
    return folder


def mrpc(rows):
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    return [header, *(f"{n % 2}\t{n}\t{n}\t{a}\t{b}" for n, (a, b) in rows)]


def cola(rows):
    return [f"gj04\t{n % 2}\t{'*' * (n % 2)}\t{a} {b}" for n, (a, b) in rows]


def sst2(rows):
    return [f"{n % 2} {a} {b}" for n, (a, b) in rows]


def trec(rows):
    return [f"{('DESC', 'ENTY')[n % 2]}:x {a} {b}" for n, (a, b) in rows]


def ag_news(rows):
    quoted = [(n % 4 + 1, a.replace('"', '""'), b) for n, (a, b) in rows]
    return ['"{}","{}","{}"'.format(*row) for row in quoted]


def race(rows):
    questions, options = [a for _, (a, _) in rows], [[b, "ran"] for _, (_, b) in rows]
    answers = ["AB"[n % 2] for n, _ in rows]
    return [json.dumps(dict(article="the cat", questions=questions, options=options, answers=answers))]


FILES = {
    "mrpc": ("msr_paraphrase_train.txt", "utf-8", "\r\n", mrpc),
    "cola": ("train.tsv", "utf-8", "\n", cola),
    "sst2": ("stsa.binary.train", "utf-8", "\n", sst2),
    "trec": ("train_5500.label", "latin-1", "\n", trec),
    "ag_news": ("train.csv", "utf-8", "\r\n", ag_news),
    "race": ("high/1.txt", "utf-8", "\n", race),
}


@pytest.mark.parametrize("task", FILES)
def test_files_and_task_are_enough(task, pretrained, tmp_path, capsys):
    name, encoding, newline, content = FILES[task]
    rows = [(number, WORDS[number % len(WORDS)]) for number in range(16)]
    files = []
    for side in ("a", "b"):  # two files of one name
        path = tmp_path / side / name
        path.parent.mkdir(parents=True)
        path.write_bytes((newline.join(content(rows)) + newline).encode(encoding))
        files.append(str(tmp_path / side if task == "race" else path))
    metrics = finetune(
        str(pretrained),
        files[0],
        tmp_path / "m",
        tuple(files),
        task,
        training=Training(epochs=1),
        start=Start(max_length=16),
    )
    stem = name.partition(".")[0]
    names = ("a", "b") if task == "race" else (f"a_{stem}", f"b_{stem}")
    found = evaluate(str(tmp_path / "m"), (files[0],), task=task)
    assert found["accuracy"] == pytest.approx(metrics[f"{names[0]}_accuracy"])
    predict(str(tmp_path / "m"), files[0], tmp_path / "answers.jsonl", task=task)
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    expected = [
        json.loads(line) for line in (tmp_path / "m" / f"predictions_{names[1]}.jsonl").read_text().splitlines()
    ]
    assert len(answers) == 16 and [answer["input"] for answer in answers] == [line["input"] for line in expected]
    assert [answer.get("label", answer.get("choice")) for answer in answers] == [line["answer"] for line in expected]
    assert "caf\u00e9" in json.dumps(answers, ensure_ascii=False) and all("score" in line for line in expected)
    assert "epoch 1 of 1" in capsys.readouterr().out
