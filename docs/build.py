"""Builds the documentation without warnings, checks its links, and says how long pages took.

python docs/build.py                   everything: `make docs`
python docs/build.py guides/pretrain   executes only this page, while writing it; outputs of others come from the cache

Code cells run on PyTorch, or on the backend in KERAS_BACKEND. A page whose code and package have not changed since the
last build is not executed again; remove build/docs for a build from nothing.
"""

import os
import re
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

DOCS = Path(__file__).resolve().parent
BUILD = DOCS.parent / "build" / "docs"
OUTPUT = BUILD / "html"


class _Page(HTMLParser):
    """The ids and links of a page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def broken_links(folder):
    """Lists links of built pages that lead nowhere: missing files, missing anchors, and addresses that are not https.

    Args:
        folder: of the HTML files.

    Returns: "page: link" for each.
    """
    pages = {path.resolve(): _Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    broken = []
    for path, page in pages.items():
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme in ("data", "mailto"):
                continue
            if parts.scheme or parts.netloc:
                if parts.scheme != "https" or not re.fullmatch(r"[\w.-]+\.\w+", parts.netloc):
                    broken.append(f"{path.relative_to(folder)}: {link}")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            is_page = target in pages
            if not target.exists() or (is_page and parts.fragment and unquote(parts.fragment) not in pages[target].ids):
                broken.append(f"{path.relative_to(folder)}: {link}")
    return broken


def external_links(folder):
    """The addresses outside the documentation that its pages link to."""
    links = {link for path in folder.rglob("*.html") for link in _Page(path.read_text(encoding="utf-8")).links}
    return sorted(link for link in links if urlsplit(link).netloc)


def build(pages=()):
    """Builds the site; returns the number of problems."""
    start = time.perf_counter()
    if pages:
        os.environ["DOCS_ONLY"] = " ".join(page.removesuffix(".md").removeprefix("docs/") for page in pages)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with patch_docutils(str(DOCS)), docutils_namespace():
        app = Sphinx(DOCS, DOCS, OUTPUT, BUILD / "doctrees", "html", freshenv=False, warningiserror=False)
        app.build()
    problems = app._warncount
    durations = _durations(app)
    for name, seconds in durations[:15]:
        print(f"{seconds:7.1f} s  {name}")
    if not pages:
        broken = broken_links(OUTPUT)
        for line in broken:
            print(f"broken link: {line}")
        problems += len(broken)
        print(f"{len(external_links(OUTPUT))} addresses outside the site were not visited")
    print(
        f"{len(app.env.found_docs)} pages, {len(durations)} with code that ran in "
        f"{sum(s for _, s in durations):.0f} s; "
        f"{problems} problems; {time.perf_counter() - start:.0f} s"
    )
    return problems


def _durations(app):
    """(page, seconds of its code cells), the slowest first."""
    found = []
    for name, metadata in app.env.nb_metadata.items():
        executed = metadata.get("exec_data") or {}
        if executed.get("runtime"):
            found.append((name, executed["runtime"]))
    return sorted(found, key=lambda item: -item[1])


if __name__ == "__main__":
    sys.exit(1 if build(sys.argv[1:]) else 0)
