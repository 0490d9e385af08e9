"""The tables and pictures that the build writes into the pages of families, and its link check."""

import dataclasses
import importlib
import json
import sys
from types import SimpleNamespace

import pytest

from kerasbert.models import FAMILIES, Bert, Electra
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import Reranker, Task, TextClassifier
from tests.checkpoints.fleet import peers
from tests.conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "docs" / "_ext"))
checkpoint_rows = importlib.import_module("checkpoint_rows")
docstrings = importlib.import_module("docstrings")
links = importlib.import_module("links")
parameters = importlib.import_module("parameters")
source_links = importlib.import_module("source_links")
tables = importlib.import_module("family_tables")

pytestmark = pytest.mark.one_backend

OURS = [cls for cls in dict.fromkeys(FAMILIES.values()) if cls.__module__.startswith("kerasbert.")]


def test_every_size_has_been_counted():
    """After a change of a size: python docs/_ext/parameters.py"""
    wanted = {parameters.key_of(cls, size) for cls in OURS for size in cls.family.sizes}
    assert set(json.loads(parameters.FILE.read_text())) == wanted


@pytest.mark.parametrize("backbone, size", [(Bert, "bert_tiny"), (Electra, "electra_small_generator")])
def test_counts_are_those_of_built_models(backbone, size):
    stored = parameters.known()[parameters.key_of(backbone, size)]
    assert stored == backbone.from_preset(size, load_weights=False).count_params()


def test_tables():
    assert "| `bert_base` | 109,482,240 | 12 | 768 | 12 | 3,072 | 30,522 |" in tables.sizes_table("Bert")
    assert "| `vocabulary_size` | `30_522` | number of tokens |" in tables.config_table("Bert")
    assert "| `bert` | `MaskedLM with sentence_pair` | `BertForPreTraining` |" in tables.checkpoints_table("Bert")
    assert "| 256 × 128, 256 × 512 | 1,000,000 |" in tables.recipes_table(["bert"])
    assert "[MASK]" in tables.objective_picture(["bert.base"])
    assert "\n| `BertBlock` | `kerasbert/models/bert.py` | Attention and " in tables.layers_table("Bert")


def test_checkpoints():
    """After a change of a record: python -m tests.checkpoints.fleet.peers table FOLDER"""
    content = checkpoint_rows.read_content()
    assert content["rows"] == peers.rows()
    table = checkpoint_rows.checkpoints_table(content).splitlines()
    assert len(table) == len(content["rows"]) + 2
    assert "| `bert` | `TextEmbedder` |" in table[2] and "refused by name" in table[-1]


@pytest.mark.parametrize("backbone", OURS, ids=lambda cls: cls.__name__)
def test_every_field_of_a_config_has_a_meaning(backbone):
    rows = [line.strip("| \n").split(" | ") for line in tables.config_table(backbone.__name__).splitlines()[2:]]
    assert [row[0].strip("`") for row in rows] == [field.name for field in dataclasses.fields(backbone.family.config)]
    assert all(len(row) >= 3 and len(row[2]) > 3 for row in rows)


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("`fit` needs x*y and a|b.", r"``fit`` needs x\*y and a\|b."),
        ("Returns: float (b, s).\n    More of it.", "**Returns:** float (b, s). More of it."),
        ("Args:\n    x: float (b, s),\n        padded.", "**Args:**\n\n``x``\n    float (b, s), padded."),
        (
            "Args:\n    x: one of\n        - a: first,\n          long\n        - b",
            "**Args:**\n\n``x``\n    one of\n\n    - a: first, long\n\n    - b",
        ),
        ("A `Reranker` or an `x`.", "A :py:obj:`Reranker <kerasbert.tasks.Reranker>` or an ``x``."),
        ("See arXiv 1810.04805.", "See `arXiv 1810.04805 <https://arxiv.org/abs/1810.04805>`__."),
        ("Example:\n    >>> x * y\n    6", "**Example:**\n\n.. code-block:: pycon\n\n    >>> x * y\n    6"),
    ],
)
def test_docstrings_become_markup(text, wanted):
    assert "\n".join(docstrings.as_rst(text.split("\n"))).strip() == wanted


def test_pages_of_tasks_leave_out_what_only_their_bases_call():
    kept = [TextClassifier.classify, TextClassifier.fit, Reranker.predict, Task.head_to_renew]
    assert not any(docstrings.is_hook(method) for method in kept)
    assert docstrings.is_hook(TextClassifier.text_batches) and docstrings.is_hook(MaskedLM.arguments)


def test_links_that_lead_nowhere_are_listed(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="b.html#there">1</a><a href="b.html#nowhere">2</a><a href="#top">3</a>'
        '<a href="c.html">4</a><a href="https://arxiv.org/abs/1810.04805">5</a><a href="http://example.org">6</a>'
    )
    (tmp_path / "b.html").write_text('<p id="there"></p><a href="a.html">back</a>')
    assert links.broken_links(tmp_path) == ["a.html: b.html#nowhere", "a.html: c.html", "a.html: http://example.org"]


def test_links_from_the_source_lead_to_the_page_of_their_module():
    """A name that two pages describe, under the names of two modules."""
    described = {"kerasbert.backend.connect": SimpleNamespace(docname="api/backend")}
    pages = {"connect": "api/training"}
    env = SimpleNamespace(
        get_domain=lambda name: SimpleNamespace(objects=described),
        _viewcode_modules={"kerasbert.backend.hosts": ("", {}, pages, "kerasbert.backend"), "kerasbert.x": False},
    )
    source_links.consistent(None, env)
    assert pages == {"connect": "api/backend"}
