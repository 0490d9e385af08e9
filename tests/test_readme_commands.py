"""The README's commands run as they stand, but for sizes and steps, on small files of the names that they use."""

import io
import json
import random
import shutil
import sys

import pytest

import pipelines  # noqa: F401  the name under which other tests of this process import them
from kerasbert import command_line
from tests.conftest import REPOSITORY
from tests.test_readme import commands

pytestmark = pytest.mark.one_backend

WORDS = "the cat dog sat ran big small house tree red on mat ann bob rome bonn [MASK] .".split()
# What a command has -> what it runs with: a smaller model, fewer steps.
SMALLER = {
    "--vocabulary-size": ["60"],
    "--set": [
        "steps=4", "batch_size=4", "length=16", "warmup=1", "model.num_layers=1", "model.hidden_dim=16",
        "model.num_heads=2", "model.feed_forward_dim=24", "model.max_length=128", "data.rows.passes=2",
        "data.noise=WholeWords",
    ],
    "--epochs": ["1"],
}  # fmt: skip


def smaller(arguments):
    """Arguments with the values of some options replaced."""
    kept, option = [], None
    for argument in arguments:
        if argument.startswith("--"):
            option = argument
            kept += [option, *SMALLER.get(option, [])]
        elif option not in SMALLER:
            kept.append(argument)
    return kept


@pytest.fixture
def files(tmp_path):
    """A folder with whatever the README's commands read."""
    draw = random.Random(0)
    sentences = [" ".join(draw.choices(WORDS[:-2], k=8)) + " ." for _ in range(1_600)]
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("\n\n".join("\n".join(sentences[i : i + 4]) for i in range(0, 1_600, 4)))
    table = "text,label\n" + "".join(
        f"the {animal} sat {place},{animal}\n" for animal in ("cat", "dog") for place in "abcde"
    )
    tagged = "Ann B-PER\nsat O\n\nin O\nRome B-LOC\n"
    for side in ("train", "test"):
        (tmp_path / f"{side}.csv").write_text(table)
        (tmp_path / f"{side}.conll").write_text(tagged)
        for language in ("en", "de"):
            (tmp_path / f"{side}.{language}.csv").write_text(table)
    shutil.copytree(REPOSITORY / "docs/data/hotel", tmp_path / "docs/data/hotel")
    (tmp_path / "texts.txt").write_text("the cat sat\nthe dog ran\n")
    return tmp_path


def test_commands_run_in_order(files, monkeypatch):
    monkeypatch.chdir(files)
    ran = set()
    for piped, name, arguments in commands():
        if name == "serve":
            continue  # it does not end
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{piped}\n"))
        command_line.run(name, smaller(arguments))
        ran.add(name)
    expected = {"train-tokenizer", "prepare-corpus", "pretrain", "finetune", "evaluate", "predict", "show", "info"}
    assert ran == expected
    assert (files / "runs/tiny/model/model.safetensors").exists()
    metrics = json.loads((files / "saved_models/mine/metrics.json").read_text())
    assert metrics["recipe"]["learning_rate"] == 3e-4  # the default for a model of width 256
    assert (files / "attention.html").exists()
    answers = (files / "answers.jsonl").read_text().splitlines()
    assert [json.loads(line)["input"] for line in answers] == ["the cat sat", "the dog ran"]
