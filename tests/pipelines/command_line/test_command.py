"""Command lines: typed options, and errors in one line."""

import ast
import functools
import importlib
import json
import re
import runpy
import subprocess
import sys
import warnings

import pytest
import tyro

from kerasbert.command_line import fail, printable
from kerasbert.data import Tokenizer
from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TextClassifier
from pipelines.command_line.command import EXTRAS, Command, command, one_line_errors
from pipelines.info import main as info
from pipelines.predict import main as predict
from pipelines.reading.labeled import Columns
from pipelines.show import main as show
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend


def run(*arguments):
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)


@pytest.fixture
def run_here(monkeypatch, capsys):
    """Runs a command in this process, as another takes seconds to import: (what it ended with, its output)."""

    def run_module(module, *arguments):
        monkeypatch.setattr(sys, "argv", [module, *arguments])
        monkeypatch.delitem(sys.modules, module, raising=False)
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(module, run_name="__main__")
        return ended.value.code, capsys.readouterr().out

    return run_module


def test_help_names_every_option(run_here):
    code, printed = run_here("pipelines.prepare_corpus", "--help")
    assert code == 0
    for option in (
        "--source",
        "--tokenizer",
        "--output",
        "--held-out",
        "--column",
        "--errors",
        "--encoding",
        "--split",
    ):
        assert option in printed


def test_pretrain_takes_a_recipe_first(run_here, tmp_path):
    _, printed = run_here("pipelines.pretrain", "--help")
    assert "--recipe" in printed and "--held-out" in printed and len(printed.splitlines()) < 80
    line, _ = run_here("pipelines.pretrain", "electra_huge", "--corpus", str(tmp_path), "--run", str(tmp_path / "run"))
    assert re.match(r"The recipes are .*electra.base.*in all\). Received: 'electra_huge'. Did you mean", line)
    assert len(line) < 250


def test_errors_are_one_line(tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"fine\nna\xefve\n")
    process = run("pipelines.train_tokenizer", "--source", str(tmp_path / "bad.txt"), "--output", str(tmp_path / "out"))
    assert process.returncode == 1
    error = process.stderr.strip().splitlines()[-1]  # TensorFlow has lines of its own before it
    assert not error.startswith("ValueError") and "byte 7" in error and "line 2" in error
    assert "Traceback" not in process.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("package, extra", [("tyro", "pipelines"), ("sacrebleu", "metrics"), ("pyarrow", "data")])
def test_a_missing_extra_is_one_line_with_the_command(monkeypatch, package, extra):
    """For --help as well, which needs the package that reads command lines."""
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(sys, "argv", ["needs", "--help"] if package == "tyro" else ["needs"])

    def needs():
        importlib.import_module(package)

    line = f'This needs the package {package}. Install it with: pip install "kerasbert[{extra}]"'
    with pytest.raises(SystemExit) as found:
        command(needs)
    assert found.value.code == line


def imports_at_the_top(path):
    return [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]


FOLDERS = ("", "command_line", "corpora", "info", "reading", "runs", "serve")
FILES = sorted(path for folder in FOLDERS for path in (REPOSITORY / "pipelines" / folder).glob("*.py"))
PAGE = REPOSITORY / "pipelines" / "serve" / "page.py"  # needs Gradio; `serve` imports it in a function


def test_the_page_is_imported_in_functions_only():
    assert not [path for path in FILES for node in imports_at_the_top(path) if getattr(node, "module", "") == PAGE.stem]


@pytest.mark.parametrize(
    "path", [path for path in FILES if path != PAGE], ids=lambda path: f"{path.parent.name}.{path.stem}"
)
def test_no_command_needs_an_extra_to_start(path):
    """What is imported at the top of a file would end in a traceback."""
    tops = imports_at_the_top(path)
    names = {alias.name for node in tops if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in tops if isinstance(node, ast.ImportFrom) and not node.level}
    assert not {name.partition(".")[0] for name in names} & set(EXTRAS)


def test_long_errors_keep_their_beginning_and_their_end(capsys):
    def wrong():
        raise ValueError("Every weight must be in the file.\n" + "  block_0/kernel\n" * 99 + "Use another file.")

    with pytest.raises(SystemExit) as ended:
        Command(wrong)([], "kerasbert wrong")
    message = ended.value.code
    assert message.startswith("Every weight must be in the file. ") and len(message.splitlines()) == 1
    assert message.endswith(" Use another file.") and " ... " in message and len(message) <= 600


def test_mistakes_of_ours_keep_their_traceback(monkeypatch):
    def broken():
        return {}["missing"]

    monkeypatch.setattr(sys, "argv", ["broken"])
    with pytest.raises(KeyError, match="missing"):
        command(broken)


@pytest.mark.parametrize("name", ["finetune", "evaluate", "predict"])
def test_columns_are_options(name):
    """`--columns.text NAME`, as the README has it, and no command of its own."""
    function = getattr(importlib.import_module(f"pipelines.{name}"), name)
    seen = {}

    @functools.wraps(function)
    def parsed(**arguments):
        seen.update(arguments)

    tyro.cli(parsed, args=["--model", "m", "--columns.text", "a", "--columns.pair", "b", "--columns.label", "c"])
    assert seen["columns"] == Columns("a", "b", "c")
    tyro.cli(parsed, args=["--model", "m"])
    assert seen["columns"] == Columns()


def test_a_reader_may_stop_early(monkeypatch, tmp_path):
    """As in `kerasbert show masks | head -1`: what is still to be printed is dropped without a message."""
    with open(tmp_path / "output", "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(SystemExit) as stopped, one_line_errors():
            print("not read any more")
            raise BrokenPipeError
    assert stopped.value.code == 1 and (tmp_path / "output").read_text() == ""


# === Control characters ===

EVIL = "good\x1b[2J\x1b]0;owned\x07\x9b31m\rno"
SHOWN = r"good\u001b[2J\u001b]0;owned\u0007\u009b31m\u000dno"


def test_control_characters_are_escaped():
    assert printable(EVIL) == SHOWN
    assert printable("a\tb\né中🙂") == "a\tb\né中🙂"


def test_output_of_commands_has_no_control_characters(capsys):
    """Of prints, warnings, and errors in both forms."""

    def say(name: str) -> None:
        """Prints a name.

        Args:
            name: a name.
        """
        print(name)
        sys.stdout.write(name + "\n")
        print(name, file=sys.stderr)
        warnings.warn(name, stacklevel=1)
        raise ValueError(name)

    with pytest.raises(SystemExit) as ended, pytest.warns(UserWarning):
        Command(say, first=("name",))([EVIL], "kerasbert say")
    assert str(ended.value.code) == SHOWN
    printed = capsys.readouterr()
    assert printed.out == f"{SHOWN}\n{SHOWN}\n" and printed.err.startswith(f"{SHOWN}\n")
    with pytest.raises(SystemExit):
        fail(EVIL)
    assert capsys.readouterr().err == f"{SHOWN}\n"


@pytest.mark.parametrize("terminal", [False, True])
def test_labels_and_tokens_in_a_terminal(terminal, monkeypatch, capsys, tmp_path, tokenizer_folder):
    """Labels of a model and words of a text in predict, info and show, whose own colors stay."""
    tokenizer = Tokenizer.load(tokenizer_folder)
    backbone = Bert(
        BertConfig(
            vocabulary_size=tokenizer.vocabulary_size, num_layers=1, num_heads=2, hidden_dim=16, feed_forward_dim=24
        )
    )
    TextClassifier(backbone, labels=["\x1b[31mbad", "good\x9b"], tokenizer=tokenizer).save_to_preset(tmp_path / "model")
    MaskedLM(backbone, tokenizer=tokenizer).save_to_preset(tmp_path / "filler")
    if terminal:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("TERM", "xterm-256color")
    predict([str(tmp_path / "model"), "the cat\x1b[5A"], "kerasbert predict")
    printed = capsys.readouterr().out
    if terminal:
        assert r"the cat\u001b[5A" in printed and "\x1b[5A" not in printed and "\x1b[31m" not in printed
        assert r"label  \u001b[31mbad" in re.sub(r"\x1b\[[\d;]*m", "", printed)
        predict([str(tmp_path / "model"), "the cat\x1b[5A", "--json"], "kerasbert predict")
        printed = capsys.readouterr().out
    assert "\x1b" not in printed and "\x9b" not in printed
    answer = json.loads(printed)
    assert answer["input"] == "the cat\x1b[5A" and set(answer["scores"]) == {"\x1b[31mbad", "good\x9b"}
    info([str(tmp_path / "model")], "kerasbert info")
    printed = capsys.readouterr().out
    assert r"\u001b[31mbad" in printed and "\x1b" not in printed and "\x9b" not in printed
    show.commands["predictions"]([str(tmp_path / "filler"), "the [MASK] sat\x1b[5A"], "kerasbert show predictions")
    printed = capsys.readouterr().out
    assert r"\u001b[5A" in printed and "\x1b[5A" not in printed
    assert ("\x1b[1m" in printed) == terminal
