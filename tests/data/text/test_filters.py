"""Filters of documents, and the reports of what they drop."""

import json

import pytest

from kerasbert.data.text.cleaning import C4Rules, clean_documents
from kerasbert.data.text.filters import (
    BadWordFilter,
    DropReport,
    LanguageFilter,
    PageCleaner,
    deduplicated,
    filtered,
)

pytestmark = pytest.mark.one_backend

LINES = [f"This is line number {number} of the page." for number in range(9)]
RULES = C4Rules(bad_words=("darn",))
PAGES = {
    "\n".join(LINES[:3]): "",
    "\n".join(LINES[:2]): "too few sentences",
    "Menu": "too few sentences",
    "\n".join([*LINES, "if (x) { return 1; } is not text at all."]): "curly bracket",
    "\n".join([*LINES, "Here is Lorem ipsum and nothing else."]): "lorem ipsum",
    "\n".join(LINES) * 10_000: "too long",
}


def test_reasons_of_the_page_cleaner():
    cleaner = PageCleaner(RULES)
    assert {page: cleaner(page)[1] for page in PAGES} == PAGES
    by_line = PageCleaner(C4Rules(bad_words=("darn",), bad_words_by_line=True))
    assert by_line("\n".join([*LINES, "What a darn thing this is."])) == (None, "bad word")


def test_filters_are_the_pipeline_of_c4():
    """With the report, the same documents are kept as by `clean_documents`."""
    pages = [*PAGES, "\n".join([*LINES[:5], "What a darn thing this is."]), "\n".join(LINES[2:7])]
    for kind in (None, "lines", "documents", "spans"):
        report = DropReport()
        kept = filtered(pages, [PageCleaner(RULES)], report)
        kept = deduplicated(kept, kind, RULES, report) if kind else kept
        kept = list(filtered(kept, [BadWordFilter(RULES)], report))
        assert kept == list(clean_documents(pages, RULES, kind)), kind
        assert len(kept) + sum(entry["documents"] for entry in report.entries.values()) == len(pages)


def test_what_deduplication_drops_is_reported():
    report = DropReport()
    assert list(deduplicated(["a b", "A  b", "c", "c", "c", "d"], "documents", None, report)) == ["a b", "c", "d"]
    assert report.to_list() == [
        {
            "filter": "deduplication",
            "reason": "repeated documents",
            "documents": 3,
            "characters": 6,
            "samples": ["A  b", "c", "c"],
        }
    ]


def test_language():
    keep = LanguageFilter("de", detect=lambda text: ("de", 0.995) if "ü" in text else ("de", 0.5))
    assert keep("über") == ("über", "") and keep("oder") == (None, "not de with 99% certainty")


def test_reports_are_added(tmp_path, capsys):
    whole = DropReport()
    for first in (0, 10):
        part = DropReport()
        for number in range(first, first + 2):
            part.drop("page cleaner", "too long", f"{number} " + "x" * 1_000)
        whole.add(json.loads(json.dumps(part.to_list())))
    (entry,) = whole.to_list()
    assert (entry["documents"], entry["characters"]) == (4, 2 * 1_002 + 2 * 1_003)
    assert [sample[:3].strip() for sample in entry["samples"]] == ["0 x", "1 x", "10"]
    assert {len(sample) for sample in entry["samples"]} == {200}
    whole.write(tmp_path / "dropped.json")
    assert json.loads((tmp_path / "dropped.json").read_text()) == whole.to_list()
    whole.show()
    assert capsys.readouterr().out == "page cleaner: 4 documents dropped (too long), 4,010 characters\n"
    DropReport().write(tmp_path / "nothing.json")
    assert not (tmp_path / "nothing.json").exists()
