"""What a command writes is whole or not there, and never what it reads."""

import io
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from kerasbert.data.text.files import text_written_whole
from pipelines import predict as module
from pipelines.evaluate import evaluate
from pipelines.finetune import finetune
from pipelines.reading.examples import Examples
from pipelines.runs.answers import Answers
from pipelines.runs.outputs import (
    check_model_folder,
    check_outputs,
    counted,
    score_table,
    write_answers,
    write_results,
)
from pipelines.runs.run_folders import claim_folder

pytestmark = pytest.mark.one_backend


@pytest.fixture
def lengths(monkeypatch):
    """In the place of a model, one that answers with the lengths of texts and knows no text of 13 characters."""

    def answer(texts):
        if any(len(text) == 13 for text in texts):
            raise ValueError("It is unlucky.")
        return [{"length": len(text)} for text in texts]

    monkeypatch.setattr(module, "answers_with", lambda *arguments: Answers("texts", answer, chunk=256))


def test_texts_on_the_command_line(lengths, tmp_path, monkeypatch, capsys):
    """`kerasbert predict MODEL TEXT...` answers the texts; a file, or nothing at a terminal, is a likely mistake."""
    module.main(["m", "one", "three"], "kerasbert predict")
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert said == [{"input": "one", "length": 3}, {"input": "three", "length": 5}]
    (tmp_path / "in.txt").write_text("one\n")
    with pytest.raises(SystemExit, match="Texts must not be names of files. Received: .*in.txt'. Use --input /"):
        module.main(["m", str(tmp_path / "in.txt")], "kerasbert predict")
    with pytest.raises(SystemExit, match="Received: 1 text and --input in.txt"):
        module.main(["m", "one", "--input", "in.txt"], "kerasbert predict")
    terminal = io.StringIO("one\n")
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", terminal)
    module.main(["m", "--output", str(tmp_path / "a.jsonl")], "kerasbert predict")
    assert capsys.readouterr() == (
        f"wrote {tmp_path / 'a.jsonl'}\n",
        "Type one input per line. Ctrl-D ends the input.\n",
    )


def test_answers_replace_those_before_when_all_are_there(lengths, tmp_path):
    source, output = tmp_path / "in.txt", tmp_path / "out.jsonl"
    output.write_text("old\n")
    output.chmod(0o640)
    for bad in (b"fine\n" + b"unlucky input", b"fine\ncaf\xe9\n", b'fine\n{"text"\n'):
        source.write_bytes(bad)
        with pytest.raises(ValueError, match="in.txt|It is unlucky"):
            module.predict("m", str(source), output, batch_size=1)
        assert output.read_text() == "old\n" and sorted(os.listdir(tmp_path)) == ["in.txt", "out.jsonl"]
    source.write_text("one\nthree\n")
    module.predict("m", str(source), output)
    assert [json.loads(line)["length"] for line in output.read_text().splitlines()] == [3, 5]
    assert output.stat().st_mode & 0o777 == 0o640 and len(os.listdir(tmp_path)) == 2


def test_the_input_is_no_output(lengths, tmp_path):
    source, link = tmp_path / "in.txt", tmp_path / "link.txt"
    source.write_text("one\n")
    link.symlink_to(source)
    os.link(source, tmp_path / "hard.txt")
    for output in (source, link, tmp_path / "hard.txt", tmp_path / "." / "in.txt"):
        with pytest.raises(ValueError, match="read must not be written. Received: .* for --output, and .* --input"):
            module.predict("m", str(source), output)
    with pytest.raises(ValueError, match="for --answers, and .* for --data"):
        evaluate("m", str(source), answers=source)
    with pytest.raises(ValueError, match="for --output, and .* for --data b"):
        evaluate("m", (f"a={tmp_path / 'no.csv'}", f"b={source}"), output=source)
    (tmp_path / "predictions.jsonl").write_text('{"text": "a", "label": "b"}\n')
    with pytest.raises(ValueError, match="predictions.jsonl for --output .* for --data"):
        finetune("m", str(tmp_path / "predictions.jsonl"), tmp_path, str(tmp_path / "predictions.jsonl"))
    assert source.read_text() == "one\n"


def test_outputs_that_cannot_be_written_are_told_before_anything_is_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="`--output` must be in a folder that exists. Received: .*no/a.jsonl"):
        module.predict("m", "in.txt", tmp_path / "no" / "a.jsonl")
    with pytest.raises(IsADirectoryError, match="`--output` must be a file"):
        evaluate("m", "in.csv", output=tmp_path)
    check_outputs({"--output": tmp_path / "a", "--answers": None}, {"--data": "hf://a", "b": None, "c": "x.de,x.en"})


def test_links_and_streams(tmp_path):
    """A link stays one; what is no file is written as it comes."""
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with text_written_whole(tmp_path / "link") as file:
        file.write("caf\u00e9\n")
        assert (tmp_path / "file").read_text() == "old"
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text(encoding="utf-8") == "caf\u00e9\n"
    with text_written_whole("/dev/null") as file:
        file.write("x")
    assert not os.path.isfile("/dev/null")
    with pytest.raises(FileNotFoundError, match="There is no folder .*none for a. Create it first"):
        text_written_whole(tmp_path / "none" / "a").__enter__()


def test_answers_with_confidences(tmp_path):
    examples = Examples(["a", "b"], ["x", "y"])
    write_answers(tmp_path / "a.jsonl", examples, [{"answer": "x", "score": 0.5}, "y"])
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert lines == [
        {"input": "a", "expected": "x", "answer": "x", "score": 0.5},
        {"input": "b", "expected": "y", "answer": "y"},
    ]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_leaves_the_earlier_answers(lengths, tmp_path, monkeypatch, name):
    """And no partial file, which a process that is killed would leave. The next command removes that one, too."""
    number, output = getattr(signal, name), tmp_path / "out.jsonl"
    output.write_text("old\n")
    (tmp_path / "in.txt").write_text("one\n")
    before = signal.signal(number, signal.SIG_DFL)
    monkeypatch.setattr(module, "answers_of", lambda *arguments: signal.raise_signal(number))
    try:
        with pytest.raises(SystemExit) as ended:
            module.predict("m", str(tmp_path / "in.txt"), output)
        assert ended.value.code == 128 + number and signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert output.read_text() == "old\n" and sorted(os.listdir(tmp_path)) == ["in.txt", "out.jsonl"]


def test_partial_files_of_processes_that_have_ended_are_removed(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    host = socket.gethostname()
    for process in (ended.pid, os.getppid()):
        (tmp_path / f".a.txt.{host}.{process}.partial").write_text("half")
    (tmp_path / f".b.txt.{host}.{ended.pid}.partial").write_text("half")
    (tmp_path / f".a.txt.other{host}.{ended.pid}.partial").write_text("half")
    with text_written_whole(tmp_path / "a.txt") as file:
        file.write("whole")
    left = sorted(os.listdir(tmp_path))
    names = [f".a.txt.{host}.{os.getppid()}.partial", f".a.txt.other{host}.{ended.pid}.partial"]
    assert left == sorted([*names, f".b.txt.{host}.{ended.pid}.partial", "a.txt"])


def test_scores_are_a_table():
    scores = {"accuracy": 0.912345, "loss": 1e-7, "train_loss": 12345.6, "seed": 0, "examples": 2000, "f1": None}
    expected = ["accuracy     0.9123", "loss         1e-07", "train_loss   12,346", "seed         0"]
    assert score_table(scores).splitlines() == [
        f"  {line}" for line in [*expected, "examples     2,000", "f1           None"]
    ]
    assert [counted(number, "text") for number in (0, 1, 2000)] == ["0 texts", "1 text", "2,000 texts"]


def test_scores_are_never_beside_answers_of_another_evaluation(tmp_path, monkeypatch):
    scores, answers = tmp_path / "scores.json", tmp_path / "answers.jsonl"
    examples = Examples(["a"], ["x"])
    write_results(scores, {"accuracy": 1.0}, {answers: (examples, ["x"])})
    scores.chmod(0o640)
    replace, states = os.replace, []

    def watched(source, target):
        states.append({path.name: path.read_text() for path in (scores, answers) if path.exists()})
        replace(source, target)

    before = {path.name: path.read_text() for path in (scores, answers)}
    monkeypatch.setattr(os, "replace", watched)
    write_results(scores, {"accuracy": 0.0}, {answers: (examples, ["y"])})
    after = {path.name: path.read_text() for path in (scores, answers)}
    assert states == [{"answers.jsonl": before["answers.jsonl"]}, {"answers.jsonl": after["answers.jsonl"]}]
    assert before["answers.jsonl"] != after["answers.jsonl"] and json.loads(after["scores.json"]) == {"accuracy": 0.0}
    assert scores.stat().st_mode & 0o777 == 0o640


def test_a_model_is_not_saved_among_other_things(tmp_path):
    for name in ("new", "new/deeper", "."):
        check_model_folder(tmp_path / name)
    (tmp_path / "file").write_text("text")
    for name in ("file", "file/model"):
        with pytest.raises(NotADirectoryError, match="`--output` must be a folder. Received: .*, but .*file is a file"):
            check_model_folder(tmp_path / name)
    (tmp_path / "README.md").write_text("notes")
    with pytest.raises(
        ValueError, match="must be a new folder, or that of a model. Received: .*, which has a README.md, but no"
    ):
        check_model_folder(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    check_model_folder(tmp_path)
    (tmp_path / "corpus.json").write_text("{}")
    with pytest.raises(ValueError, match="which is a corpus"):
        check_model_folder(tmp_path)


def test_a_run_folder_is_claimed_by_training(tmp_path):
    """A start that failed before the first step leaves no run behind."""
    record = {"recipe": {"class": "Recipe", "phases": [{"steps": 4}]}, "batches": {}}
    other = {**record, "batches": {"length": 8}}
    assert claim_folder(tmp_path, record) == claim_folder(tmp_path, other) == claim_folder(tmp_path, record) == []
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n')
    assert claim_folder(tmp_path, record) == []
    with pytest.raises(ValueError, match="holds a run of another recipe"):
        claim_folder(tmp_path, other)
