"""The README's Python runs as it stands, its commands exist, and its numbers are those that were measured."""

import json
import re
import shlex
import shutil
import subprocess

import pytest

import kerasbert
import pipelines.recipes
from kerasbert import __version__, command_line, retrieval
from kerasbert.backend import seed_everything
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")

# Classes of transformers, sentence-transformers, Keras and PyTorch that the changelog names.
OTHERS = {"AutoTokenizer", "CrossEncoder", "SparseEncoder", "PyDataset", "DataLoader"}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.filterwarnings("ignore:.*new head; expected when fine-tuning")
def test_python_blocks_run_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(REPOSITORY / "docs/data/hotel", tmp_path / "docs/data/hotel")
    *ours, theirs = blocks("python")
    names = {}
    seed_everything(0)
    for block in ours:
        exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "door 0.83\n" in printed and "How do I change my password?\n" in printed
    assert (tmp_path / "saved_models/example/model.safetensors").exists()
    assert "['room', 'meals']\n" in printed
    exec(compile(theirs, "README.md", "exec"), names)
    assert names["AutoTokenizer"] is not None


def commands():
    """(what is piped in, the command, its arguments) of every line that runs `kerasbert`."""
    found = []
    for line in "\n".join(blocks("bash")).replace("\\\n", " ").split("\n"):
        match = re.match(r'(?:echo "(.*)" \| )?kerasbert ([a-z-]+)(.*)', line)
        if match:
            found.append((match[1], match[2], shlex.split(match[3], comments=True)))
    return found


def test_commands_exist():
    names = {name for _, name, _ in commands()}
    assert names <= {*command_line.NAMES} and len(names) >= 9


def test_the_speeds_are_those_of_the_benchmarks():
    """The rows of the table are rows of benchmarks/speed/README.md, which may have further columns."""
    measured = (REPOSITORY / "benchmarks" / "speed" / "README.md").read_text(encoding="utf-8").splitlines()
    table = re.search(r"^\| comparison.*\n\|---.*\n((?:\|.*\n)+)", README, flags=re.MULTILINE)[1]
    rows = [row.rstrip().rstrip("|").rstrip() for row in table.splitlines()]
    assert len(rows) >= 6
    for row in rows:
        assert any(line.startswith(row) for line in measured), row


def test_the_counts_of_the_comparison():
    classes = [value for value in vars(retrieval).values() if isinstance(value, type)]
    losses = {cls for cls in classes if issubclass(cls, retrieval.Loss)} - {retrieval.Loss, retrieval.ScoreLoss}
    assert f"| [{len(losses)}](docs/losses.md) |" in README
    peers = json.loads((REPOSITORY / "docs/data/checkpoints.json").read_text(encoding="utf-8"))["peers"]
    equal = [list(peers[name]["found"].values()).count(["equal"] * 2) for name in ("KerasHub", "ZeroModels")]
    count = len(peers["KerasHub"]["found"])
    assert f"in the format of each of {count}\npublished encoders" in README
    assert f"| {count} | the reference | the reference | {equal[0]} | {equal[1]} |" in README
    assert f"KerasHub {peers['KerasHub']['version'][:4]} | ZeroModels {peers['ZeroModels']['version']}" in README


def test_the_version_is_the_same_everywhere():
    """`pip install` of a wheel in docs/scaling.md names it, too."""
    texts = {
        "README.md": f"| | kerasbert {__version__.rpartition('.')[0]} |",
        "CHANGELOG.md": f"\n\n## {__version__}\n",
        "CITATION.cff": f"\nversion: {__version__}\n",
        "docs/release_notes.md": f"\n\n## {__version__}\n",
        "docs/scaling.md": f"kerasbert-{__version__}-py3-none-any.whl",
    }
    for name, expected in texts.items():
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        assert expected in text, name
        assert "\n## " not in expected or text.index("\n## ") == text.index(expected) + 1, name  # the first version


def test_the_changelog_names_what_there_is():
    """Classes in the entries of the newest version exist; renamed and removed ones have a section of their own."""
    newest = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]
    entries, renamed = newest.split("\n### Renamed or moved since ")
    assert "Removed: " in renamed and len(re.findall(r"^### ", newest, flags=re.MULTILINE)) > 1
    named = set(re.findall(r"`(?:[a-z]+\.)*([A-Z]+[a-z]\w*)", entries))
    modules = [getattr(kerasbert, name) for name in kerasbert.__all__] + [pipelines.recipes]
    public = {name for module in modules for name in getattr(module, "__all__", ())}
    assert "Reranker" in named and not named - public - OTHERS


def test_make_targets_exist():
    targets = set(re.findall(r"`?make ([a-z-]+)", README))
    assert targets >= {"quickstart", "test", "test-all", "lint", "bench", "docs"}
    for target in targets:
        subprocess.run(["make", "-n", target], cwd=REPOSITORY, check=True, capture_output=True)
    assert re.search(r"^test-all:", (REPOSITORY / "Makefile").read_text(), flags=re.MULTILINE)
