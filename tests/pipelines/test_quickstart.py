"""The embedded text, and the quickstart on a small part of it."""

import random
import subprocess
import sys
from collections import Counter

import pytest

from pipelines import quickstart
from pipelines.reading import standard_library
from pipelines.reading.standard_library import (
    AREA_OF,
    AREAS,
    Docstring,
    docstrings,
    held_out_modules,
    paragraphs,
    topics,
)

pytestmark = pytest.mark.one_backend


def test_paragraphs_become_lines():
    assert paragraphs("Split text.\n\nReturns a list\nof words.") == "Split text.\nReturns a list of words."
    assert paragraphs("Title\n*****\n\n\n>>> f(1)\n1\n\n ") == "Title\n>>> f(1) 1"


def test_docstrings_are_read_without_an_import(tmp_path):
    (tmp_path / "pathlib").mkdir()
    (tmp_path / "pathlib" / "types.py").write_text('"""Types of paths, and nothing of them else."""')
    (tmp_path / "pathlib" / "__init__.py").write_text(
        'raise SystemExit\n"""no docstring"""\ndef f():\n    """Return one two three four five."""\n'
        'class C:\n    """Too short."""\n    async def g(self):\n        """Return one two three four five."""\n'
    )
    (tmp_path / "csv.py").write_text('"""Read and write files of\n   comma separated values."""\n')
    (tmp_path / "broken.py").write_text("def (:\n")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "ignored.py").write_text('"""This text belongs to a test and is left out."""')
    found = docstrings(tmp_path)
    assert found == [
        Docstring("csv", "Read and write files of\ncomma separated values."),
        Docstring("pathlib", "Return one two three four five."),
        Docstring("pathlib.types", "Types of paths, and nothing of them else."),
    ]
    assert [docstring.area for docstring in found] == [None, "files", "files"]


def test_topics_are_read_without_an_import(tmp_path):
    assert topics(tmp_path) == []
    (tmp_path / "pydoc_data").mkdir()
    (tmp_path / "pydoc_data" / "topics.py").write_text(
        "# made\ntopics = {'assert': 'The \"assert\" ' 'statement', 'if': 'x'}\n"
    )
    assert topics(tmp_path) == ['The "assert" statement', "x"]


def test_this_python_has_enough_text():
    found = docstrings()
    assert len(found) > 4_000
    assert sum(len(docstring.text) for docstring in found) + sum(map(len, topics())) > 1_500_000
    hidden = held_out_modules(found)
    areas = {docstring.area for docstring in found} - {None}
    assert areas >= set(AREAS) - {"graphics"}
    for area in areas:
        of_area = [docstring.module in hidden for docstring in found if docstring.area == area]
        assert 0.15 < sum(of_area) / len(of_area) <= 0.25 or area == "graphics", area
        assert len(of_area) - sum(of_area) >= 43, area


def test_whole_modules_are_held_out():
    sizes = {"asyncio.a": 30, "asyncio.b": 6, "queue": 3, "sched": 1, "re": 50}
    found = [Docstring(module, f"{module} {n}") for module, size in sizes.items() for n in range(size)]
    hidden = held_out_modules(found)
    assert hidden == {"asyncio.b", "queue", "sched"}, "10 of the 40 docstrings of the area, and none outside an area"
    assert held_out_modules(found[::-1]) == hidden


def test_no_module_is_in_two_areas():
    assert len(AREA_OF) == sum(len(modules.split()) for modules in AREAS.values())


def test_reading_imports_none_of_the_modules():
    code = "from pipelines.reading.standard_library import docstrings; docstrings()"
    code += "; import sys; print('turtle' in sys.modules)"
    root = standard_library.Path(quickstart.__file__).parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True).stdout == "False\n"


def test_draws_and_baselines():
    found = [
        Docstring(module, f"{module} {n} words") for module in ("random", "glob", "queue", "math") for n in range(9)
    ]
    chosen = quickstart.draw(found, 4, random.Random(0))
    assert Counter(docstring.area for docstring in chosen) == {"numbers": 4, "files": 4, "concurrency": 4}
    assert quickstart.draw(found, 4, random.Random(0)) == chosen != quickstart.draw(found, 4, random.Random(1))
    assert quickstart.majority([found[0]], found[:18]) == 0.5
    assert quickstart.bag_of_words(chosen, chosen) == 1.0
    assert quickstart.modules(found)[0].count("\n") == 8


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_whole_road(tmp_path, monkeypatch, capsys):
    found = [
        Docstring(module, f"Return the {word} of {area} number {n} in the list.")
        for area, word, modules in (
            ("concurrency", "lock", ("threading", "asyncio.locks", "queue", "sched")),
            ("files", "path", ("os", "glob", "gzip", "shutil")),
        )
        for module in modules
        for n in range(12)
    ]
    settings = ["steps=4", "warmup=1", "model.hidden_dim=16", "model.num_layers=1", "batch_size=4"]
    monkeypatch.setattr(quickstart, "RECIPE", quickstart.RECIPE.with_settings([*settings, "length=32"]))
    monkeypatch.setattr(quickstart, "docstrings", lambda: found)
    monkeypatch.setattr(quickstart, "topics", lambda: ["The statement\n" * 3])
    monkeypatch.setattr(quickstart, "VOCABULARY", 100)
    monkeypatch.setattr(quickstart, "AREAS", {"concurrency": "", "files": ""})
    monkeypatch.setattr(quickstart, "LABELED", 20)
    accuracies = quickstart.quickstart(tmp_path / "model", tmp_path / "work", seeds=1)
    assert list(accuracies) == [
        "majority class",
        "bag of words, logistic regression",
        "BERT from scratch",
        "BERT pretrained",
    ]
    assert accuracies["majority class"] == [0.5]
    assert accuracies["bag of words, logistic regression"] == [1.0]
    printed = capsys.readouterr().out
    assert "BERT pretrained" in printed and "below the unigram entropy" in printed
    assert (tmp_path / "model" / "model.safetensors").exists()
