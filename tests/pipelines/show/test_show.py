"""The command `show`: its subcommands, their arguments and the files that they write."""

import json
import sys

import pytest

from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import MaskedLM
from pipelines.show import command as show
from pipelines.show.neighbors import SENTENCES
from pipelines.show.words import word_tokenizer

pytestmark = pytest.mark.one_backend


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Runs `show` in an empty folder: (what it ended with, what it printed)."""
    monkeypatch.chdir(tmp_path)

    def run_show(*arguments):
        monkeypatch.setattr(sys, "argv", ["kerasbert show", *map(str, arguments)])
        code = None
        try:
            show.main()
        except SystemExit as ended:
            code = ended.code
        return code, capsys.readouterr().out

    return run_show


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = word_tokenizer(SENTENCES, "bert", further=())
    config = BertConfig(vocabulary_size=tokenizer.vocabulary_size, num_layers=2, num_heads=2, hidden_dim=8)
    MaskedLM(Bert(config), tokenizer=tokenizer).save_to_preset(folder)
    return folder


def test_first_arguments_need_no_names():
    def parsed(name, *arguments):
        return show.main.commands[name].parse(list(arguments), f"kerasbert show {name}")

    given = parsed("corruption", "bert.base", "A text.", "--seed", "1")
    assert (given["recipe"], given["sentence"], given["seed"]) == ("bert.base", "A text.", 1)
    assert parsed("corruption", "--recipe", "t5.base")["recipe"] == "t5.base"
    given = parsed("neighbors", "m", "bank", "A.", "B.")
    assert (given["model"], given["word"], given["sentences"]) == ("m", "bank", ("A.", "B."))


def test_help_lists_the_pictures(run):
    code, printed = run("--help")
    names = ("corruption", "attention", "masks", "curves", "predictions", "neighbors")
    assert code is None and [line.split()[0] for line in printed.splitlines()[-6:]] == list(names)
    code, printed = run("corruption", "--help")
    assert code == 0 and 'kerasbert show corruption t5.base "Thank you' in printed


def test_corruption(run, tmp_path):
    code, printed = run("corruption", "t5.base", "Thank you for inviting me.", "--output", "a.html")
    assert code is None
    lines = printed.splitlines()
    assert lines[0] == "t5.base" and "inputs   Thank you for inviting me <X> </s> " in lines
    assert "targets  <X> . </s> " in lines and lines[-1] == "wrote a.html"
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "Corruption by t5.base" in page and '<span class="token sentinel"' in page


def test_all_objectives_and_the_papers(run):
    code, printed = run(
        "corruption", "all", "Thank you for inviting me to your party last week.", "--translation", "Le chat dort."
    )
    assert code is None and "Not drawn" not in printed
    _, printed = run("corruption", "papers")
    assert "Thank you <X> to <Y> week ." in printed and "Super Bowl 50 was [MASK]" in printed


def test_attention(run, model, tmp_path):
    code, printed = run("attention", model, "They sat on the bank", "--output", "a.html", "a.png", "a.svg")
    assert code is None and printed.splitlines() == ["wrote a.html", "wrote a.png", "wrote a.svg"]
    assert "Attention of tiny" in (tmp_path / "a.html").read_text(encoding="utf-8")
    first = (tmp_path / "a.png").read_bytes()
    run("attention", model, "They sat on the bank", "--output", "a.png", "--view", "head", "--head", "1")
    assert first.startswith(b"\x89PNG") and (tmp_path / "a.png").read_bytes() != first
    code, _ = run("attention", model, "They sat", "--block", "2")
    assert code == "--block must be below 2, and --head below 2. Received: block=2, head=0."


def test_masks(run, tmp_path):
    code, printed = run("masks", "--words", "a", "b", "c", "d", "--output", "m.html", "m.png")
    assert code is None and "a  ■ · · ·" in printed
    assert (tmp_path / "m.html").exists() and (tmp_path / "m.png").exists()


def test_curves(run, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        rows = [{"step": step, "loss": 3.0 - step, "learning_rate": 0.1} for step in (1, 2)]
        (tmp_path / name / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    code, printed = run("curves", "one", "two")
    assert code is None and printed == "wrote curves.png\n" and (tmp_path / "curves.png").exists()
    (tmp_path / "tuned" / "logs").mkdir(parents=True)
    (tmp_path / "one").rename(tmp_path / "tuned" / "logs" / "seed_0")
    code, printed = run("curves", "tuned", "two", "--output", "tuned.png")
    assert code is None and printed == "wrote tuned.png\n"
    code, _ = run("curves", "two", "--output", "a.gif")
    assert code == "`--output` must end with .png or .svg or .pdf. Received: a.gif."


def test_predictions_and_neighbors(run, model, tmp_path):
    code, printed = run("predictions", model, "They sat on the [MASK]", "--top", 3, "--output", "p.html", "p.png")
    assert code is None and sum("%" in line for line in printed.splitlines()) == 3
    code, printed = run("neighbors", model, "bank", "--top", 2, "--output", "n.html", "n.svg")
    assert code is None and "bank in sentence 5" in printed
    assert all((tmp_path / name).stat().st_size > 1_000 for name in ("p.html", "p.png", "n.html", "n.svg"))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["corruption", "t5.huge"], "The recipes are .*Received: 't5.huge'"),
        (["corruption", "t5.base", "A text.", "--pieces", "-1"], "--pieces must be at least 0.*-1"),
        (["corruption", "t5.base", "--output", "a.png"], "`--output` must end with .html. Received: a.png"),
        (["corruption", "t5.base", "--output", "no/a.html"], "`--output` must be in a folder that"),
        (["curves", "nowhere"], "There is no folder nowhere$"),
    ],
)
def test_errors_are_one_line(run, arguments, message):
    code, _ = run(*arguments)
    import re

    assert re.match(message, code) and "\n" not in code


def test_a_generator_must_fill_masks(run, model):
    code, printed = run("corruption", "electra.base", SENTENCES[0], "--generator", model)
    assert code is None and "no generator" not in printed
