"""A table at the top of each page of the API: the public names of the module with the first sentence of each docstring.

Names that a page excludes, because it describes them below in a section of their own, are in the table, too.
"""

import importlib
import inspect
import re

from commands import plain

MODULE = re.compile(r"```\{eval-rst\}\n\.\. automodule:: (kerasbert\.\w+)\n")
SENTENCE = re.compile(r".*?(?<!\bal)\.(?=\s+[A-Z`]|$)")


def first_sentence(value):
    paragraph = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    found = SENTENCE.match(paragraph)
    return plain(found[0] if found else paragraph.rstrip(":") + ".")


def table_of(name):
    """The public classes and functions of a module, as Markdown."""
    module = importlib.import_module(name)
    lines = []
    for title, wanted in (("class", inspect.isclass), ("function", inspect.isroutine)):
        names = [public for public in getattr(module, "__all__", ()) if wanted(getattr(module, public))]
        rows = [f"| {{py:obj}}`{each} <{name}.{each}>` | {first_sentence(getattr(module, each))} |" for each in names]
        lines += [f"| {title} | |", "|---|---|", *rows, ""] if rows else []
    return "\n".join(lines) + "\n"


def fill(app, name, source):
    if name.startswith("api/"):
        source[0] = MODULE.sub(lambda found: f"{table_of(found[1])}\n{found[0]}", source[0])


def setup(app):
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
