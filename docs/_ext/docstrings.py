"""Docstrings of this package as reStructuredText.

They are plain text: code in single backticks, paragraphs, and sections such as "Args:" whose entries are
"name: description". "Example:" is Python code with prompts and outputs. Everything else, a star or a bar, is meant as
it stands, so it is escaped.
"""

import dataclasses
import functools
import inspect
import re
import sys
import textwrap
from pathlib import Path

_SECTION = re.compile(r"^([A-Z][a-z]+):(?: +(\S.*))?$")
SECTIONS = ("Args", "Attributes", "Call", "Example", "Raises", "Returns", "Yields")
_ENTRY = re.compile(r"^(\*{0,2}\w[\w.]*(?:, \*{0,2}\w[\w.]*)*): *(.*)$")
_PAPER = re.compile(r"arXiv (\d{4}\.\d{4,5})\b")
_SPECIAL = re.compile(r"([*|\\]|_(?!\w)|(?<!\w)_)")


def plain(text):
    """Text with its code as literals and without markup. Names that a page of the API describes are links to it.

    "`fit` needs x*y" -> "``fit`` needs x\\*y"
    """
    parts = re.split(r"`{1,2}([^`]+)`{1,2}", " ".join(text.split()))
    escaped = [_PAPER.sub(r"`\g<0> <https://arxiv.org/abs/\1>`__", _SPECIAL.sub(r"\\\1", part)) for part in parts[::2]]
    found = escaped[0]
    for code, following in zip(parts[1::2], escaped[1:], strict=True):
        found += literal(code.strip()) + ("\\" if following[:1].isalnum() else "") + following
    return found


def literal(code):
    """Code as a link to the page that describes it, or as a literal. Single words in small letters may be arguments."""
    is_name = code[:1].isupper() or "_" in code
    full = documented().get(code) if is_name else None
    return f":py:obj:`{code} <{full}>`" if full else f"``{code}``"


@functools.cache
def documented():
    """{name: name with its module} of the classes and functions on the pages of the API."""
    found = {}
    for page in sorted((Path(__file__).parent.parent / "api").rglob("*.md")):
        module = ""
        for line in page.read_text(encoding="utf-8").splitlines():
            directive = re.match(r"\.\. (currentmodule|autoclass|autofunction|autoexception):: (\S+)", line)
            if directive and directive[1] == "currentmodule":
                module = f"{directive[2]}."
            elif directive:
                full = directive[2] if directive[2].startswith("kerasbert.") else module + directive[2]
                found[full.rpartition(".")[2]] = full
    return found


def entries(lines):
    """Groups the lines of a section: each line at its left edge begins an entry."""
    groups = []
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        if not line.strip():
            continue
        if groups and line.startswith(" "):
            groups[-1].append(line.strip())
        else:
            groups.append([line.strip()])
    return groups


def bulleted(lines):
    """The lines of an entry as its text and the items of the list at its end: [first, ...], each on one line."""
    parts = [[]]
    for line in lines:
        if line.startswith("- "):
            parts.append([])
        parts[-1].append(line)
    return [" ".join(part).removeprefix("- ") for part in parts]


def definitions(lines):
    """A section as a definition list; entries without a name are paragraphs."""
    written = []
    for entry in entries(lines):
        text, *items = bulleted(entry)
        named = _ENTRY.match(text)
        if named:
            names = ", ".join(f"``{name}``" for name in named[1].split(", "))
            written += [names, f"    {plain(named[2]) or '…'}", ""]
            written += [line for item in items for line in (f"    - {plain(item)}", "")]
        else:
            written += [plain(text), "", *(line for item in items for line in (f"- {plain(item)}", ""))]
    return written


def code_block(lines, language=""):
    """Lines as a block of code, without their common indentation."""
    code = textwrap.dedent("\n".join(lines)).strip("\n").splitlines()
    return [f".. code-block:: {language}" if language else "::", "", *(f"    {line}".rstrip() for line in code), ""]


def as_rst(lines):
    """The lines of a docstring, converted."""
    lines, written, i = [line.rstrip() for line in lines], [], 0
    while i < len(lines):
        if not lines[i]:
            i += 1
            continue
        section = _SECTION.match(lines[i])
        stop = i + 1
        if section and section[1] in SECTIONS:
            while stop < len(lines) and (not lines[stop] or lines[stop].startswith(" ")):
                stop += 1
            body = lines[i + 1 : stop]
            if section[1] == "Example":
                written += ["**Example:**", "", *code_block(body, "pycon")]
            elif section[2]:
                written += [f"**{section[1]}:** {plain(' '.join([section[2], *body]))}", ""]
            else:
                written += [f"**{section[1]}:**", "", *definitions(body)]
        elif lines[i].startswith(" "):
            while stop < len(lines) and (not lines[stop] or lines[stop].startswith(" ")):
                stop += 1
            written += code_block(lines[i:stop])
        elif lines[i].startswith("- "):
            while stop < len(lines) and lines[stop].startswith("  "):
                stop += 1
            written += [f"- {plain(' '.join(lines[i:stop])[2:])}", ""]
        else:
            while stop < len(lines) and lines[stop] and not lines[stop].startswith(("- ", " ")):
                if _SECTION.match(lines[stop]) and _SECTION.match(lines[stop])[1] in SECTIONS:
                    break
                stop += 1
            written += [plain(" ".join(lines[i:stop])), ""]
        i = stop
    return written


def docstring_of(obj):
    """The docstring of an object; that of a config lists its fields, whose comments are in the source."""
    found = inspect.getdoc(obj) or ""
    is_config = inspect.isclass(obj) and dataclasses.is_dataclass(obj) and obj.__name__.endswith("Config")
    if not is_config or not (found == "" or found.startswith(f"{obj.__name__}(")):  # as dataclasses write it
        return found
    from family_tables import MEANINGS, field_comments  # imports Keras

    comments = field_comments(obj)
    entries = [f"    {each.name}: {comments[each.name] or MEANINGS[each.name]}." for each in dataclasses.fields(obj)]
    return "\n".join([f"The sizes and settings of `{obj.__name__.removesuffix('Config')}`.", "", "Args:", *entries])


def convert(app, what, name, obj, options, lines):
    lines[:] = as_rst(docstring_of(obj).splitlines() if what == "class" else lines)


def short_signature(app, what, name, obj, options, signature, returned):
    """Writes names without their modules, and the defaults of dataclasses that are made anew as "...".

    Sphinx finds the signature of Keras's `__new__`, which takes anything; that of `__init__` is shown instead.
    """
    if what in ("class", "exception") and "*args, **kwargs" in (signature or ""):
        from sphinx.util.inspect import stringify_signature  # the tests import this module without Sphinx

        found = inspect.signature(obj.__init__)
        found = found.replace(parameters=list(found.parameters.values())[1:])
        signature = stringify_signature(found, show_return_annotation=False, unqualified_typehints=True)
    if signature:
        signature = re.sub(r"~(?:\w+\.)+(\w+)", r"\1", signature.replace("<factory>", "..."))
    return signature, returned


# What users call. The other methods that tasks and objectives override are described with their base classes.
CALLED = ("compile", "evaluate", "fit", "from_preset", "predict", "push_to_hub", "save_to_preset")
BASES = ("kerasbert.checkpoints.", "kerasbert.objectives.objective", "kerasbert.tasks.task", "kerasbert.training.")


def is_hook(obj):
    """Whether a method of a task or an objective fills in one of its base classes, and is not meant to be called."""
    obj = getattr(obj, "fget", obj)
    owner, _, name = getattr(obj, "__qualname__", "").rpartition(".")
    module = getattr(obj, "__module__", None) or ""
    cls = getattr(sys.modules.get(module), owner, None)
    is_ours = module.startswith(("kerasbert.tasks.", "kerasbert.objectives.")) and not module.startswith(BASES)
    if not is_ours or not inspect.isclass(cls) or name in CALLED:
        return False
    return any(name in vars(base) and base.__module__.startswith(BASES) for base in cls.__mro__[1:])


def skip(app, what, name, obj, skipped, options):
    """Leaves out hooks, and attributes: the docstrings that Sphinx finds for them are those of their types."""
    if what in ("class", "exception") and is_hook(obj):
        return True
    if (
        what in ("class", "exception")
        and not callable(obj)
        and not isinstance(obj, (property, classmethod, staticmethod))
    ):
        return True
    return None


def setup(app):
    app.connect("autodoc-process-docstring", convert)
    app.connect("autodoc-process-signature", short_signature)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
