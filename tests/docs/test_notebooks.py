"""The guides in docs/notebooks run with a few steps, use public names only, and label their pictures.

`make docs` runs them whole, with the assertions in their last cells.
"""

import ast
import importlib
import re

import matplotlib
import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

NOTEBOOKS = sorted((REPOSITORY / "docs" / "notebooks").glob("[0-9]*.md"))
IDS = [path.stem for path in NOTEBOOKS]
PUBLIC = {f"kerasbert.{name}" for name in ("backend", "data", "models", "objectives", "tasks", "training")}
STEPS = "3"


def code_cells(text):
    """The code of the cells of a notebook in MyST's format, in order; options such as `:tags:` are no code."""
    return re.findall(r"^```\{code-cell\}[^\n]*\n(?::\w+:.*?\n\n)?(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def parsed_cells(path):
    return [ast.parse(code) for code in code_cells(path.read_text(encoding="utf-8"))]


def unlabeled(figure):
    """Descriptions of the axes of a figure without any label, and of a figure without axes that have both."""
    labels = [(axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes]
    found = [f"axes {number}" for number, pair in enumerate(labels) if not any(pair)]
    return found + ([] if any(all(pair) for pair in labels) else ["both labels of all axes"])


def test_cells_are_found():
    text = "---\nkernel: x\n---\n\n```{code-cell} python\na = 1\n```\n\n"
    text += "```python\nb\n```\n\n```{code-cell} python\n:tags: [hide-input]\n\nc\n```\n"
    assert code_cells(text) == ["a = 1\n", "c\n"]


def test_there_are_ten():
    assert [stem[:2] for stem in IDS] == [f"{number:02}" for number in range(1, 11)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=IDS)
def test_runs_with_a_few_steps(path, monkeypatch):
    monkeypatch.setenv("KERASBERT_DOCS_STEPS", STEPS)
    matplotlib.use("Agg")
    plt = importlib.import_module("matplotlib.pyplot")
    plt.close("all")
    monkeypatch.setattr(plt, "show", lambda: None)
    names = {"__name__": "__main__"}
    try:
        for number, code in enumerate(code_cells(path.read_text(encoding="utf-8"))):
            exec(compile(code, f"{path.name}, cell {number}", "exec"), names)
        problems = [problem for number in plt.get_fignums() for problem in unlabeled(plt.figure(number))]
        assert plt.get_fignums() and not problems
    finally:
        plt.close("all")
    assert names["LIMIT"] == names["STEPS"] == int(STEPS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=IDS)
def test_only_public_names_are_imported(path):
    imports = [node for tree in parsed_cells(path) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = {node.module: {alias.name for alias in node.names} for node in imports if "kerasbert" in node.module}
    assert ours and set(ours) <= PUBLIC
    for module, names in ours.items():
        assert names <= set(importlib.import_module(module).__all__), module


@pytest.mark.parametrize("path", NOTEBOOKS, ids=IDS)
def test_conclusions_are_checked_in_whole_runs(path):
    """In the last cell, which the pages hide, as the first one with the numbers of steps."""
    text = path.read_text(encoding="utf-8")
    hidden = [code for code in code_cells(text) if f":tags: [hide-input]\n\n{code}" in text]
    assert hidden == [code_cells(text)[0], code_cells(text)[-1]]
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE)[-1] == "What the numbers say"
    (check,) = parsed_cells(path)[-1].body
    assert isinstance(check, ast.If) and ast.unparse(check.test) == "not LIMIT"
    assert any(isinstance(node, ast.Assert) for node in ast.walk(check))
    assert all(len(line) <= 120 for line in text.splitlines())
    assert all(len(line) <= 100 for code in code_cells(text) for line in code.splitlines())
