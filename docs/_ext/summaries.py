"""Tables at the top of each page of the API: the public names of the module with the first sentence of each docstring.

Names that a page describes in sections are in a table for each section.
"""

import importlib
import inspect
import re

from commands import plain
from docstrings import docstring_of

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


def table_of(name, source):
    """The public classes and functions of a module, as Markdown: those of each section of its page, or by kind."""
    module = importlib.import_module(name)
    groups = sections(source)
    described = {each for _, names in groups for each in names}
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
        page = source[0]
        source[0] = MODULE.sub(lambda found: f"{table_of(found[1], page)}\n{found[0]}", page)


def setup(app):
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
