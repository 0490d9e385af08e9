"""The embedded text, and the quickstart on a small part of it."""

import random
import subprocess
import sys
from collections import Counter

import pytest

from pipelines import quickstart, standard_library
from pipelines.standard_library import AREA_OF, AREAS, HELD_OUT, Docstring, docstrings, paragraphs, topics


def test_paragraphs_become_lines():
    assert paragraphs("Split text.\n\nReturns a list\nof words.") == "Split text.\nReturns a list of words."
    assert paragraphs("Title\n*****\n\n\n>>> f(1)\n1\n\n ") == "Title\n>>> f(1) 1"


def test_docstrings_are_read_without_an_import(tmp_path):
    (tmp_path / "pathlib").mkdir()
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
    ]
    assert (found[0].area, found[0].held_out) == ("files", False)
    assert (found[1].area, found[1].held_out) == ("files", True)
    assert Docstring("antigravity", "").area is None


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
    for held_out in (False, True):
        counts = Counter(docstring.area for docstring in found if docstring.held_out == held_out)
        assert min(counts[area] for area in AREAS) >= 38, counts


def test_no_module_is_in_two_areas():
    assert len(AREA_OF) == sum(len(modules.split()) for modules in AREAS.values())
    assert set(AREA_OF) >= HELD_OUT


def test_reading_imports_none_of_the_modules():
    code = "from pipelines.standard_library import docstrings; docstrings(); import sys; print('turtle' in sys.modules)"
    root = standard_library.Path(quickstart.__file__).parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True).stdout == "False\n"


def test_draws_and_baselines():
    found = [Docstring(module, f"{module} {n} words") for module in ("re", "glob", "queue", "math") for n in range(9)]
    chosen = quickstart.draw(found, 4, random.Random(0))
    assert Counter(docstring.area for docstring in chosen) == {"text": 4, "files": 4, "concurrency": 4}
    assert quickstart.draw(found, 4, random.Random(0)) == chosen != quickstart.draw(found, 4, random.Random(1))
    assert quickstart.majority([found[0]], found[:18]) == 0.5
    assert quickstart.bag_of_words(chosen, chosen) == 1.0
    assert quickstart.modules(found)[0].count("\n") == 8


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_whole_road(tmp_path, monkeypatch, capsys):
    held_out = {"queue": True, "gzip": True}
    found = [
        Docstring(module, f"Return the {word} of {area} number {n} in the list.")
        for module, area, word in (("threading", "concurrency", "lock"), ("os", "files", "path"))
        for n in range(40)
    ]
    found += [
        Docstring(module, f"Return the {word} of {area} thing {n} in the list.")
        for module, area, word in (("queue", "concurrency", "lock"), ("gzip", "files", "path"))
        for n in range(10)
    ]
    assert [d.held_out for d in found].count(True) == 20 == 10 * len(held_out)
    settings = ["steps=4", "schedule.warmup=1", "config.hidden_dim=16", "config.num_layers=1", "batch_size=4"]
    monkeypatch.setattr(quickstart, "RECIPE", quickstart.RECIPE.with_settings([*settings, "length=32"]))
    monkeypatch.setattr(quickstart, "docstrings", lambda: found)
    monkeypatch.setattr(quickstart, "topics", lambda: ["The statement\n" * 3])
    monkeypatch.setattr(quickstart, "VOCABULARY", 120)
    monkeypatch.setattr(quickstart, "AREAS", {"concurrency": "", "files": ""})
    monkeypatch.setattr(quickstart, "LABELLED", 20)
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
