"""The table of families is made from the code."""

from pathlib import Path

import pytest

from kerasbert.models import FAMILIES
from pipelines.info.families import COLUMNS, table

pytestmark = pytest.mark.one_backend


def test_every_family_has_a_row_with_its_layout_and_heads():
    header, rule, *rows = [line.strip("| ").split(" | ") for line in table().splitlines()]
    assert tuple(header) == COLUMNS and set(rule) == {"---"}
    assert {row[0] for row in rows} == {cls.__name__ for cls in FAMILIES.values()}
    bert = dict(zip(COLUMNS, next(row for row in rows if row[0] == "Bert"), strict=True))
    assert bert["layout of files"] == "transformers, KerasHub (read)"
    assert bert["heads"] == "SpanBoundary, MaskedLM, TextClassifier, TokenClassifier, QuestionAnswerer, MultipleChoice"
    assert bert["model types"] == "`bert`"


def test_the_table_of_the_pages_is_the_one_of_the_code():
    assert table() in (Path(__file__).parents[3] / "docs" / "families" / "index.md").read_text(encoding="utf-8")
