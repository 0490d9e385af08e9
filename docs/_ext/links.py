"""Checks the links of built pages, without visiting other sites."""

import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit


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
