"""The commands of `kerasbert`, which the page api/commands lists by heading, with the functions that they run."""

import importlib
import inspect
import typing

PAGE, PLACE = "api/commands", "% the commands\n"


def functions_of(name):
    """{how a command is called: the function that it runs}; more than one for a command with subcommands."""
    main = importlib.import_module(f"pipelines.{name.replace('-', '_')}").main
    if hasattr(main, "function"):
        return {f"kerasbert {name}": main.function}
    return {f"kerasbert {name} {part}": command.function for part, command in main.commands.items()}


def records_of(function):
    """The records of options that a function takes."""
    from pipelines.command_line.options import Options

    kinds = typing.get_type_hints(function).values()
    return [kind for kind in kinds if inspect.isclass(kind) and issubclass(kind, Options)]


def as_markdown():
    """The headings of `kerasbert --help`, and below them the commands with their options."""
    from kerasbert.command_line import COMMANDS

    lines, shown = [], set()  # a record of several commands is described once
    for heading, commands in COMMANDS.items():
        lines += [f"## {heading}", ""]
        for name, what in commands.items():
            lines += [f"### `kerasbert {name}`", "", f"{what[0].upper()}{what[1:]}.", ""]
            functions = functions_of(name)
            for call, function in functions.items():
                if len(functions) > 1:
                    lines += [f"#### `{call}`", ""]
                lines += ["```{eval-rst}", f".. autofunction:: {function.__module__}.{function.__name__}", ""]
                records = [record for record in records_of(function) if record not in shown]
                lines += [f".. autoclass:: {record.__module__}.{record.__name__}\n" for record in records]
                shown |= {*records}
                lines += ["```", ""]
    return "\n".join(lines)


def fill(app, name, source):
    if name == PAGE:
        source[0] = source[0].replace(PLACE, as_markdown())


def setup(app):
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
