"""Filters that drop documents, and a report of what each filter dropped.

C4's pipeline (see `cleaning`) consists of the page cleaner, deduplication, a language filter and a bad-word filter.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from .cleaning import DEDUPLICATIONS, C4Rules, Detector, deduplicate_lines, in_language, langdetect_detector
from .files import write_text

SAMPLES = 3  # dropped documents of each kind that a report shows
_SAMPLE_CHARACTERS = 200


class PageCleaner:
    """C4's page cleaner, which cleans a document or drops it."""

    name = "page cleaner"

    def __init__(self, rules: C4Rules):
        self.rules = rules

    def __call__(self, document: str) -> tuple[str | None, str]:
        """Returns the cleaned document and "", or None and the reason for dropping it."""
        page = self.rules.without_deduplication(document)
        return page, "" if page is not None else self._reason(document)

    def _reason(self, document: str) -> str:
        if len(document) > self.rules.max_page_characters:
            return "too long"
        line = next((line for line in document.split("\n") if self.rules.clean_line(line) is None), None)
        if line is None:
            return "too few sentences"
        return "lorem ipsum" if "lorem ipsum" in line.lower() else "curly bracket" if "{" in line else "bad word"


class LanguageFilter:
    """Keeps documents in a language."""

    name = "language filter"

    def __init__(self, language: str, detect: Detector | None = None):
        self.language, self._detect = language, detect

    def __call__(self, document: str) -> tuple[str | None, str]:
        if self._detect is None:  # made in the process that uses it
            self._detect = langdetect_detector()
        kept = list(in_language([document], self._detect, self.language))
        return (kept[0], "") if kept else (None, f"not {self.language} with 99% certainty")


class BadWordFilter:
    """Drops documents that contain a bad word, by C4's rules."""

    name = "bad-word filter"

    def __init__(self, rules: C4Rules):
        self.rules = rules

    def __call__(self, document: str) -> tuple[str | None, str]:
        return (None, "bad word") if self.rules.has_bad_words(document) else (document, "")


Filter = Callable[[str], tuple[str | None, str]]


class DropReport:
    """A report of how many documents each filter dropped, and why, with samples.

    Attributes:
        entries: {(filter, reason): {"documents": number, "characters": number, "samples": beginnings of documents}}
    """

    def __init__(self, entries: Iterable[dict] = ()):
        self.entries: dict = {}
        self.add(entries)

    def drop(self, name: str, reason: str, document: str) -> None:
        sample = document[:_SAMPLE_CHARACTERS]
        counts = {"documents": 1, "characters": len(document), "samples": [sample]}
        self.add([{"filter": name, "reason": reason, **counts}])

    def add(self, entries: Iterable[dict]) -> None:
        """Adds the entries of another report, as `to_list` returns them."""
        for entry in entries:
            key = entry["filter"], entry["reason"]
            found = self.entries.setdefault(key, {"documents": 0, "characters": 0, "samples": []})
            found["documents"] += entry["documents"]
            found["characters"] += entry["characters"]
            found["samples"] = (found["samples"] + entry["samples"])[:SAMPLES]

    def to_list(self) -> list[dict]:
        return [{"filter": name, "reason": reason, **entry} for (name, reason), entry in sorted(self.entries.items())]

    def write(self, path: Path) -> None:
        """Writes the report as JSON, if anything was dropped."""
        if self.entries:
            write_text(path, json.dumps(self.to_list(), indent=1, ensure_ascii=False))

    def show(self) -> None:
        """Prints what was dropped, one line for each filter and reason."""
        for (name, reason), entry in sorted(self.entries.items()):
            print(f"{name}: {entry['documents']:,} documents dropped ({reason}), {entry['characters']:,} characters")


def filtered(documents: Iterable[str], filters: Iterable[Filter], report: DropReport) -> Iterator[str]:
    """Applies filters one after another, and yields the documents that they keep."""
    for document in documents:
        kept = document
        for keep in filters:
            before = kept
            kept, reason = keep(before)
            if kept is None:
                report.drop(keep.name, reason, before)
                break
        else:
            yield kept


def deduplicated(documents: Iterable[str], kind: str, rules: C4Rules | None, report: DropReport) -> Iterator[str]:
    """Yields documents without the text that has occurred before; see `cleaning.DEDUPLICATIONS`.

    The result depends on all previous documents, so the work cannot be divided among processes.
    """
    waiting: list[str] = []

    def noted() -> Iterator[str]:
        for document in documents:
            waiting.append(document)
            yield document

    def drop(gone: list[str]) -> None:
        for document in gone:
            report.drop("deduplication", f"repeated {kind}", document)

    if kind == "lines":
        kept = deduplicate_lines(noted(), *((rules.min_sentences, rules.sentences) if rules else (0,)))
    else:
        kept = DEDUPLICATIONS[kind](noted())
    for document in kept:
        drop(waiting[:-1])  # those that were read since the last one that was kept
        waiting.clear()
        yield document
    drop(waiting)
