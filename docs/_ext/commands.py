"""The commands of `kerasbert`, which the page api/commands lists by heading, with examples and tables of options."""

import dataclasses
import importlib
import inspect
import re
import types
import typing

PAGE, PLACE = "api/commands", "% the commands\n"


def programs_of(name):
    """{how a command is called: its program}; more than one for a command with subcommands."""
    main = importlib.import_module(f"pipelines.{name.replace('-', '_')}").main
    if hasattr(main, "function"):
        return {f"kerasbert {name}": main}
    return {f"kerasbert {name} {part}": command for part, command in main.commands.items()}


def functions_of(name):
    """{how a command is called: the function that it runs}."""
    return {call: program.function for call, program in programs_of(name).items()}


def as_markdown():
    """The headings of `kerasbert --help`, and below them the commands with their options."""
    from kerasbert.command_line import COMMANDS

    lines = []
    for heading, commands in COMMANDS.items():
        lines += [f"## {heading}", ""]
        for name, what in commands.items():
            lines += [f"### `kerasbert {name}`", "", f"{what[0].upper()}{what[1:]}.", ""]
            programs = programs_of(name)
            for call, program in programs.items():
                if len(programs) > 1:
                    lines += [f"#### `{call}`", ""]
                lines += [*described(program.function), *example_of(program.function, call), *tables_of(program)]
    return "\n".join(lines)


def described(function):
    """The paragraphs of a docstring before its arguments."""
    text = re.split(r"\n\n(?:Args|Returns|Raises):", inspect.getdoc(function))[0]
    return [line for paragraph in text.split("\n\n") for line in (plain(paragraph), "")]


def example_of(function, call):
    """The line of the module's docstring that runs the command, if there is one."""
    words = call.removeprefix("kerasbert ").replace("-", "_").split()
    spelled = " ".join([rf"python -m pipelines\.{words[0]}", *words[1:]])
    found = re.search(rf"^.*{spelled}(?: .*)?$", inspect.getdoc(inspect.getmodule(function)) or "", flags=re.MULTILINE)
    if not found:
        return []
    line = re.sub(spelled, call, found[0].strip().strip("`"))
    return ["```bash", line, "```", ""]


def tables_of(program):
    """A table for each group of options, with its name above it, and one for the others."""
    from pipelines.command_line.options import options_of

    titles = {name: title for title, names in program.groups.items() for name in names}
    groups = {title: [] for title in program.groups}
    for option in options_of(program.function):
        groups.setdefault(titles.get(option.name) or option.record or "others", []).append(option)
    groups["others"] = groups.pop("others", [])
    groups = {title: options for title, options in groups.items() if options}
    lines = []
    for title, options in groups.items():
        rows = [row for option in options for row in rows_of(option, option.name in program.first)]
        lines += [f"**{title.replace('_', ' ').capitalize()}**", ""] if len(groups) > 1 else []
        lines += ["| option | default | meaning |", "|---|---|---|", *rows, ""]
    return lines


def rows_of(option, first):
    """The row of an option, or the rows of the fields of one that is a record: `--columns.text`."""
    if dataclasses.is_dataclass(option.kind):
        kinds = typing.get_type_hints(option.kind)
        fields = [
            (f"{option.name}.{field.name}", kinds[field.name], field) for field in dataclasses.fields(option.kind)
        ]
        texts = [option.help] + [""] * (len(fields) - 1)
        return [row(name, kind, field.default, text) for (name, kind, field), text in zip(fields, texts, strict=True)]
    return [row(option.name, option.kind, option.default, option.help, first)]


def row(name, kind, default, text, first=False):
    flag, value = name.replace("_", "-"), metavar(kind)
    if kind is bool and default is True:
        inner, dot, last = flag.rpartition(".")
        flag = f"{inner}{dot}no-{last}"
    spelled = f"`{value}`, `--{flag}`" if first else f"`--{flag} {value}`" if value else f"`--{flag}`"
    shown = "required" if default is dataclasses.MISSING else ""
    if default not in (None, (), "", dataclasses.MISSING) and kind is not bool:
        parts = default if isinstance(default, tuple) else (default,)
        shown = f"`{' '.join(str(part) for part in parts)}`"
    return f"| {spelled} | {shown} | {plain(text)} |"


def metavar(kind):
    """How --help names the value of an option: INT, STR ... for several, {a,b} for choices."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return metavar(next(one for one in typing.get_args(kind) if one is not type(None)))
    if typing.get_origin(kind) is typing.Literal:
        return f"{{{','.join(map(str, typing.get_args(kind)))}}}"
    if typing.get_origin(kind) in (tuple, list):
        return f"{metavar(typing.get_args(kind)[0])} ..."
    return {bool: "", int: "INT", float: "FLOAT"}.get(kind, getattr(kind, "__name__", "STR").upper())


def plain(text):
    """A docstring's text as Markdown: its code stays, and everything else is meant as it stands."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    parts[::2] = [re.sub(r"([*_<>$\[\]{}\\])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts).replace("|", "\\|")


def fill(app, name, source):
    if name == PAGE:
        source[0] = source[0].replace(PLACE, as_markdown())


def setup(app):
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
