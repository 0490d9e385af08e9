"""Command lines: typed options, and errors in one line."""

import ast
import functools
import importlib
import runpy
import subprocess
import sys

import pytest
import tyro

from pipelines.command import EXTRAS, command, one_line_errors
from pipelines.labelled import Columns
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


def test_pretrain_lists_its_recipes_and_takes_one_first(run_here, tmp_path):
    _, printed = run_here("pipelines.pretrain", "--help")
    lines = [line.split() for line in printed.splitlines()]
    assert ["-", "gpt2.medium", "GPT-2,", "355M", "parameters."] in lines
    assert "--recipe" in printed and "--held-out" in printed
    line, _ = run_here("pipelines.pretrain", "electra_huge", "--corpus", str(tmp_path), "--run", str(tmp_path / "run"))
    assert line.startswith("ValueError: The recipes are albert.base") and "'electra_huge'" in line


def test_errors_are_one_line(tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"fine\nna\xefve\n")
    process = run("pipelines.train_tokenizer", "--source", str(tmp_path / "bad.txt"), "--output", str(tmp_path / "out"))
    assert process.returncode == 1
    error = process.stderr.strip().splitlines()[-1]  # TensorFlow has lines of its own before it
    assert error.startswith("ValueError:") and "byte 7" in error and "line 2" in error
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


FILES = sorted((REPOSITORY / "pipelines").glob("*.py"))
PAGE = REPOSITORY / "pipelines" / "demo_page.py"  # needs Gradio; `serve` imports it in a function


def test_the_page_is_imported_in_functions_only():
    assert not [path for path in FILES for node in imports_at_the_top(path) if getattr(node, "module", "") == PAGE.stem]


@pytest.mark.parametrize("path", [path for path in FILES if path != PAGE], ids=lambda path: path.stem)
def test_no_command_needs_an_extra_to_start(path):
    """What is imported at the top of a file would end in a traceback."""
    tops = imports_at_the_top(path)
    names = {alias.name for node in tops if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in tops if isinstance(node, ast.ImportFrom) and not node.level}
    assert not {name.partition(".")[0] for name in names} & set(EXTRAS)


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
