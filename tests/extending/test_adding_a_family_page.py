"""The code on the page about adding a family is that of the family in this folder."""

import re

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend


def test_the_snippets_are_in_the_file():
    page = (REPOSITORY / "docs" / "adding_a_family.md").read_text(encoding="utf-8")
    source = (REPOSITORY / "tests" / "extending" / "roformer.py").read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(snippets) == 7
    for snippet in snippets:
        assert snippet in source, snippet
    lines = len(source.splitlines())
    assert lines < 250 and f"it has {lines} lines" in page
