"""The README's Python runs as it stands, and its commands name what exists."""

import importlib
import inspect
import re
import subprocess

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.filterwarnings("ignore:.*newly initialised, train before use")
def test_python_blocks_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    *blocks_of_ours, theirs = blocks("python")
    names = {}
    for block in blocks_of_ours:
        exec(compile(block, "README.md", "exec"), names)
    assert (tmp_path / "saved_models/example/model.safetensors").exists()
    assert names["classifier"].classify("the cat was hungry.")["label"] in ("cats", "dogs")
    exec(compile(theirs, "README.md", "exec"), names)
    assert names["AutoTokenizer"] is not None


def test_commands_name_scripts_and_options():
    commands = " ".join(blocks("bash")).replace("\\\n", " ").split("\n")
    ran = 0
    for command in commands:
        found = re.search(r"-m pipelines\.(\w+)(.*)", command)
        if not found:
            continue
        ran += 1
        function = getattr(importlib.import_module(f"pipelines.{found[1]}"), found[1])
        options = {name.replace("-", "_") for name in re.findall(r"--([a-z-]+)", found[2])}
        assert options <= set(inspect.signature(function).parameters), command
    assert ran >= 8


def test_make_targets_exist():
    targets = set(re.findall(r"`?make ([a-z-]+)", README))
    assert targets >= {"quickstart", "test", "test-all", "lint", "bench"}
    for target in targets:
        subprocess.run(["make", "-n", target], cwd=REPOSITORY, check=True, capture_output=True)
    assert re.search(r"^test-all:", (REPOSITORY / "Makefile").read_text(), flags=re.MULTILINE)
