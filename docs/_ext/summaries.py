"""Tables at the top of each page of the API: the public names of the module with the first sentence of each docstring.

Names that a page describes in sections are in a table for each section. The page of the models lists the pages of the
families.
"""

import importlib
import inspect
import re
from pathlib import Path

from commands import plain
from docstrings import docstring_of

FAMILIES = "% the families"
MODULE = re.compile(r"```\{eval-rst\}\n\.\. automodule:: (kerasbert\.\w+)\n")
SENTENCE = re.compile(r".*?(?<!\bal)\.(?=\s+[A-Z`]|$)")


def first_sentence(value):
    paragraph = " ".join(docstring_of(value).split("\n\n")[0].split())
    found = SENTENCE.match(paragraph)
    return plain(found[0] if found else paragraph.rstrip(":") + ".")


def sections(source):
    """The sections of a page with the names that they describe: [(title, names)]. The title of the page comes first."""
    parts = re.split(r"^##? +(.+)$", source, flags=re.MULTILINE)[1:]
    return [(title, re.findall(r"^\.\. auto(?:class|function):: (\w+)$", text, flags=re.MULTILINE))
            for title, text in zip(parts[::2], parts[1::2], strict=True)]  # fmt: skip


def described_names(source):
    return [each for _, names in sections(source) for each in names]


def pages_of_families(folder):
    """{name of the page: its source}, in the order of their names."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(Path(folder).glob("*.md"))}


def families_table(pages):
    """The pages of the families, as Markdown: their classes, the pages about their papers, and what they are."""
    models = importlib.import_module("kerasbert.models")
    lines = ["| classes | family | |", "|---|---|---|"]
    for page, source in pages.items():
        title, family = re.match("# (.*)", source)[1], re.search(r"\[([^]]+)\]\(../(../families/\w+\.md)\)", source)
        summary = first_sentence(getattr(models, described_names(source)[0]))
        lines.append(f"| [{title}](models/{page}.md) | [{family[1]}]({family[2]}) | {summary} |")
    return "\n".join(lines) + "\n"


def table_of(name, source, elsewhere=()):
    """The public classes and functions of a module, as Markdown: those of each section of its page, or by kind.

    Args:
        name: of the module.
        source: of the page.
        elsewhere: names that other pages describe.
    """
    module = importlib.import_module(name)
    groups = sections(source)
    described = {*elsewhere, *(each for _, names in groups for each in names)}
    rest = [public for public in getattr(module, "__all__", ()) if public not in described]
    kinds = [("class", inspect.isclass), ("function", inspect.isroutine)]
    groups = [(kind, [each for each in rest if is_kind(getattr(module, each))]) for kind, is_kind in kinds] + groups
    lines = []
    for title, names in groups:
        rows = [f"| {{py:obj}}`{each} <{name}.{each}>` | {first_sentence(getattr(module, each))} |" for each in names]
        lines += [f"| {title} | |", "|---|---|", *rows, ""] if rows else []
    return "\n".join(lines) + "\n"


def fill(app, name, source):
    if name.startswith("api/"):
        page, elsewhere = source[0], []
        if FAMILIES in page:
            pages = pages_of_families(Path(app.srcdir) / "api" / "models")
            elsewhere = [each for text in pages.values() for each in described_names(text)]
            page = page.replace(FAMILIES, families_table(pages))
            for other in pages:
                app.env.note_dependency(str(Path(app.srcdir) / "api" / "models" / f"{other}.md"), docname=name)
        source[0] = MODULE.sub(lambda found: f"{table_of(found[1], source[0], elsewhere)}\n{found[0]}", page)


def setup(app):
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
