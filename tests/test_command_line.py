"""The command `kerasbert`: its help, the dispatch to the pipelines, and what it says about mistakes."""

import importlib
import re
import resource
import subprocess
import sys
import types

import pytest

from kerasbert import __version__, command_line
from pipelines.command_line.command import Command, Commands
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

HEAVY = {"keras", "numpy", "tyro", "torch", "jax", "tensorflow", "tokenizers", "yaml"}


@pytest.fixture
def run_here(monkeypatch, capsys):
    """Runs `kerasbert ARGUMENTS` in this process: (exit status, output, errors)."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["kerasbert", *arguments])
        code = 0
        try:
            command_line.main()
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    return run


def test_help_is_fast_and_imports_nothing_large():
    code = f"import sys; from kerasbert.command_line import main; main(); print(*{HEAVY!r} & sys.modules.keys())"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.run([sys.executable, "-c", code, "--help"], cwd=REPOSITORY, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert process.stdout.splitlines()[0] == "usage: kerasbert COMMAND [OPTIONS]" and process.stdout.endswith("\n\n")
    # Time of the processor, which does not depend on what else runs; 0.05 s on a machine with nothing else to do.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


def test_help_names_every_command(run_here):
    code, printed, _ = run_here("--help")
    assert code == 0
    for name in command_line.NAMES:
        assert re.search(rf"^    {name} +\w", printed, re.MULTILINE), name
    assert run_here() == (0, printed, "") == run_here("help")
    assert run_here("help", "completion") == run_here("completion", "--help")
    assert run_here("--version") == (0, f"kerasbert {__version__}\n", "")


@pytest.mark.parametrize(
    "name, suggested", [("pretran", "pretrain"), ("train_tokeniser", "train-tokenizer"), ("corpora", "corpus")]
)
def test_an_unknown_command_suggests_the_nearest(run_here, name, suggested):
    code, _, errors = run_here(name)
    assert code == 2
    said = f"There is no command {name.replace('_', '-')!r}. Did you mean {suggested}?"
    assert errors == f"{said} `kerasbert --help` lists the commands.\n"
    assert run_here("xyz")[2] == "There is no command 'xyz'. `kerasbert --help` lists the commands.\n"


@pytest.mark.parametrize(
    "typed, module",
    [("train-tokenizer", "train_tokenizer"), ("tokenizer", "train_tokenizer"), ("corpus", "prepare_corpus")],
)
def test_commands_run_the_main_of_their_module(run_here, monkeypatch, typed, module):
    seen = []
    pipeline = importlib.import_module(f"pipelines.{module}")
    monkeypatch.setattr(pipeline, "main", lambda: seen.append(list(sys.argv)))
    assert run_here(typed, "--output", "x")[0] == 0
    assert seen == [[f"kerasbert {module.replace('_', '-')}", "--output", "x"]]


def test_a_missing_package_is_one_line_with_the_command_that_installs_it(run_here, monkeypatch):
    monkeypatch.delitem(sys.modules, "pipelines.predict", raising=False)
    monkeypatch.setitem(sys.modules, "pipelines.reading.inputs", None)  # as if its import failed
    assert run_here("predict")[0].startswith("ModuleNotFoundError: import of pipelines.reading.inputs halted")
    monkeypatch.setattr(importlib, "import_module", _without("matplotlib", importlib.import_module))
    expected = 'This needs the package matplotlib. Install it with: pip install "kerasbert[plots]"'
    assert run_here("show") == (expected, "", "")


def _without(package, import_module):
    def imported(name):
        if name.endswith(".show"):
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return import_module(name)

    return imported


def test_the_pipelines_have_one_name(monkeypatch):
    """With `pipelines` of this clone imported, commands use it; a second name for the same folder is refused."""
    pipelines = importlib.import_module("pipelines")
    assert command_line.pipelines_name() == "pipelines"
    other = types.ModuleType("kerasbert.pipelines")
    other.__path__ = [str(REPOSITORY / "pipelines")]
    monkeypatch.setitem(sys.modules, "kerasbert.pipelines", other)
    with pytest.raises(ImportError, match="one name. Received: pipelines after kerasbert.pipelines. Use kerasbert"):
        importlib.reload(pipelines)
    other.__path__ = ["/elsewhere"]
    importlib.reload(pipelines)
    monkeypatch.setitem(sys.modules, "pipelines", types.ModuleType("pipelines"))  # of somebody else
    name = "kerasbert.pipelines"
    found = {"kerasbert/pipelines": name, "pipelines": name, "other/pipelines": "pipelines"}
    for folder, expected in found.items():
        spec = types.SimpleNamespace(submodule_search_locations=[str(REPOSITORY / folder)])
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, spec=spec: spec)
        assert command_line.pipelines_name() == expected
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert command_line.pipelines_name() == "pipelines"


def test_every_command_has_a_module_that_runs_it():
    for name in command_line.NAMES:
        assert isinstance(command_line.pipeline(name).main, Command | Commands), name


COMPLETE = """
source {path}
COMP_WORDS=({words}); COMP_CWORD={last}; COMPREPLY=()
_tyro_kerasbert
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def test_completions_of_bash(run_here, tmp_path):
    code, script, hint = run_here("completion", "bash")
    assert code == 0 and hint.splitlines()[-1].startswith("To install: mkdir -p ~/.local/share/bash-completion")
    path = tmp_path / "kerasbert"
    path.write_text(script)

    def completed(*words):
        shown = " ".join(f"'{word}'" for word in words)
        command = COMPLETE.format(path=path, words=shown, last=len(words) - 1)
        process = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
        return process.stdout.split()

    assert completed("kerasbert", "pre") == ["predict", "prepare-corpus", "pretrain"]
    assert {*command_line.NAMES, *command_line.ALIASES, "completion"} <= {*completed("kerasbert", "")}
    assert completed("kerasbert", "pretrain", "--rep") == ["--report-every"]
    assert completed("kerasbert", "show", "att") == ["attention"]
    assert completed("kerasbert", "show", "attention", "--bl") == ["--block"]
    assert completed("kerasbert", "tokenizer", "--kind", "") == ["wordpiece", "byte_bpe", "unigram", "bpe"]


def test_completions_of_other_shells(run_here):
    assert run_here("completion", "zsh")[1].startswith("#compdef kerasbert")
    assert "complete --no-files --command 'kerasbert'" in run_here("completion", "fish")[1]
    code, _, errors = run_here("completion", "fsh")
    assert code == 2 and errors.endswith("bash, zsh, fish. Received: fsh. Did you mean fish?\n")
    code, printed, _ = run_here("completion")
    assert code == 0 and all(f"kerasbert completion {shell} > " in printed for shell in command_line.SHELLS)
