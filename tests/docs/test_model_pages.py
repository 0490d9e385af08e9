"""The pages of the API about families: each class of `kerasbert.models` is described on one of them."""

import importlib
import re
import sys

import pytest

import kerasbert.models
from kerasbert.models import FAMILIES
from tests.conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "docs" / "_ext"))
summaries = importlib.import_module("summaries")
tables = importlib.import_module("family_tables")

pytestmark = pytest.mark.one_backend

DOCS = REPOSITORY / "docs"
OVERVIEW = (DOCS / "api" / "models.md").read_text("utf-8")
PAGES = summaries.pages_of_families(DOCS / "api" / "models")
OURS = [cls for cls in dict.fromkeys(FAMILIES.values()) if cls.__module__.startswith("kerasbert.")]


def test_every_class_is_described_once():
    described = [name for page in (OVERVIEW, *PAGES.values()) for name in summaries.described_names(page)]
    public = [name for name in kerasbert.models.__all__ if callable(getattr(kerasbert.models, name))]
    assert sorted(described) == sorted(public)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_parts_of_its_classes(page):
    text = PAGES[page]
    backbones = re.findall(r"```\{family\} (\w+)\n:show: facts\n", text)
    assert text.startswith(f"# {' and '.join(f'`{name}`' for name in backbones)}\n")
    assert summaries.described_names(text) == [name for each in backbones for name in (each, f"{each}Config")]
    assert f"```{{family}} {backbones[0]}\n:show: layers\n" in text
    for link in re.findall(r"\]\(([\w./]+)\)", text):
        assert (DOCS / "api" / "models" / link).is_file(), link


def test_the_overview_lists_all_pages():
    assert summaries.FAMILIES in OVERVIEW
    assert re.findall(r"^models/(\w+)$", OVERVIEW, flags=re.MULTILINE) == list(PAGES)
    rows = summaries.families_table(PAGES).splitlines()[2:]
    assert len(rows) == len(PAGES)
    assert "| [`Bert`](models/bert.md) | [BERT](../families/bert.md) | The encoder of BERT. |" in rows
    assert summaries.table_of("kerasbert.models", OVERVIEW, ["Bert"]).startswith("| class | |\n")


@pytest.mark.parametrize("backbone", OURS, ids=lambda cls: cls.__name__)
def test_every_family_has_layers_with_a_summary(backbone):
    rows = tables.layers_table(backbone.__name__).splitlines()[2:]
    assert rows and all(re.fullmatch(r"\| \S.* \| `kerasbert/[\w/]+\.py` \| \S.*\. \|", row) for row in rows)
