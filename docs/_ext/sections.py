"""The pages of the sidebar's sections: the guides of a section, as a table and in the sidebar.

guides/index.md lists all guides; `{guides} TITLE` on a page in a folder beside it stands for its section of that title.
"""

import re
from pathlib import Path

PLACE = re.compile(r"```\{guides\} (.+)\n```\n")
LINK = re.compile(r"\]\(([\w/.]+)\.md\)")


def table_of(title, guides):
    """The table of a section of the text of guides/index.md, with links from a folder beside it."""
    found = re.search(rf"^## {re.escape(title)}\n\n((?:\|.*\n)+)", guides, flags=re.MULTILINE)
    if not found:
        raise ValueError(f"guides/index.md has no section {title!r} with a table.")
    return re.sub(r"\]\((?!\.\./)", "](../guides/", found[1])


def with_sidebar(table):
    pages = "\n".join(LINK.findall(table))
    return f"{table}\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def fill(app, name, source):
    if name.startswith("sections/"):
        guides = (Path(app.srcdir) / "guides" / "index.md").read_text(encoding="utf-8")
        source[0] = PLACE.sub(lambda found: with_sidebar(table_of(found[1], guides)), source[0])
        app.env.note_dependency(str(Path(app.srcdir) / "guides" / "index.md"), docname=name)


def setup(app):
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
