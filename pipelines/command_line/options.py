"""Converts the arguments of a command's function to a dataclass of options, from which tyro creates a parser."""

import dataclasses
import difflib
import functools
import inspect
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path

METAVARS = {int: "INT", float: "FLOAT", str: "STR", Path: "PATH"}
CONFIG = "config"  # the option that names a file of options
CONFIG_HELP = (
    "YAML file with options of this command, such as `batch_size: 32`. Options on the command line replace those of "
    "the file, but --set adds to them."
)
# Options that count something of which there must be one.
COUNTS = {
    *("accumulation", "batch_size", "epochs", "length", "limit", "max_length", "max_new_tokens", "num_beams", "shards"),
    *("steps", "top", "vocabulary_size", "workers"),
}
# Options of every command that are not arguments of its function.
GENERAL = ("help", CONFIG, "tyro-print-completion", "tyro-write-completion")


def option_types(function: Callable) -> dict[str, typing.Any]:
    """Returns {option: type} for a function, in order. A dataclass `columns` becomes the options `columns.text`, ..."""
    found = {}
    for name, kind in _hints(function).items():
        if dataclasses.is_dataclass(kind):
            found |= {f"{name}.{inner}": inner_kind for inner, inner_kind in typing.get_type_hints(kind).items()}
        else:
            found[name] = kind
    return found


def check_counts(values: dict[str, typing.Any]) -> None:
    """Raises a ValueError for an option that counts something and is below 1."""
    for name in COUNTS & values.keys():
        if isinstance(values[name], int) and values[name] < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1. Received: {values[name]}.")


def positional(function: Callable, arguments: list[str]) -> tuple[list[str], list[str]]:
    """Separates the arguments without option names from the others: (values, options with their values).

    ["model", "--top", "3", "a text", "--json"] -> ["model", "a text"], ["--top", "3", "--json"]
    """
    kinds, values, options = option_types(function) | {CONFIG: Path}, [], []
    taken = 0.0  # number of the next arguments that belong to an option
    for argument in arguments:
        if argument == "-h" or argument.startswith("--"):
            options.append(argument)
            name, has_value, _ = argument[2:].partition("=")
            kind = kinds.get(name.replace("-", "_"), bool)
            several = any(typing.get_origin(one) in (tuple, list) for one in (kind, *typing.get_args(kind)))
            taken = math.inf if several else 0 if kind is bool or has_value else 1
        elif taken:
            options.append(argument)
            taken -= 1
        else:
            values.append(argument)
    return values, options


def negated(flag: str) -> str:
    """The option that turns a bool off: `no-lowercase` for `lowercase`, `lora.no-merge` for `lora.merge`."""
    outer, dot, inner = flag.rpartition(".")
    return f"{outer}{dot}no-{inner}"


def unknown_option(function: Callable, arguments: list[str]) -> str | None:
    """Returns an error message for the first argument that is an unknown option, or None if there is none."""
    known = set()
    for name, kind in option_types(function).items():
        flag = name.replace("_", "-")
        known |= {flag, negated(flag)} if kind is bool else {flag}
    full = {flag.rpartition(".")[2]: flag for flag in known} | {flag: flag for flag in known}
    for argument in arguments:
        name = argument.partition("=")[0][2:].replace("_", "-")
        if argument.startswith("--") and name and name not in known and name not in GENERAL:
            close = difflib.get_close_matches(name.lower(), full, n=1)
            return f"There is no option --{name}." + (f" Did you mean --{full[close[0]]}?" if close else "")
    return None


def repeated_option(arguments: list[str]) -> str | None:
    """Returns an error message for the first option that is given twice, or None. Only its last values would be used.

    ["--corpus", "a", "--corpus", "b"] -> "--corpus can be given only once. ..."
    """
    given = set()
    for argument in arguments:
        name = argument.partition("=")[0].replace("_", "-")
        if argument.startswith("--") and name in given and name != f"--{CONFIG}":  # which `settings` checks
            return f"{name} can be given only once. If it takes several values, put them after it: {name} A B."
        given.add(name)
    return None


def options_class(function: Callable, groups: Mapping[str, tuple[str, ...]]) -> type:
    """Creates a dataclass with a field per argument of the function. The arguments of a group form an inner dataclass.

    Args:
        function: the function. Its docstring describes the arguments.
        groups: {title: names of arguments}.
    """
    import tyro

    hints, helps, defaults = _hints(function), _helps(function), _defaults(function)
    assert CONFIG not in hints, f"{function.__name__} must not have an argument `{CONFIG}`"
    grouped = [name for names in groups.values() for name in names]
    assert len({*grouped}) == len(grouped) and {*grouped} <= {*hints}, f"groups of {function.__name__}: {groups}"

    def field(name: str) -> tuple:
        kind = hints[name]
        if dataclasses.is_dataclass(kind):
            shown = tyro.conf.arg(help=helps.get(name, ""))
        else:
            hint = _default_hint(helps.get(name, ""), defaults[name]) if name in defaults else None
            shown = tyro.conf.arg(help=helps.get(name, ""), metavar=_metavar(kind), help_behavior_hint=hint)
        of_field = dataclasses.field(default=defaults[name]) if name in defaults else dataclasses.field()
        return name, typing.Annotated[kind, shown], of_field

    fields = []
    for number, (title, names) in enumerate(groups.items()):
        inner = dataclasses.make_dataclass(title, map(field, names), kw_only=True)
        named = tyro.conf.arg(name=title, help="")
        fields.append((f"group_{number}", typing.Annotated[inner, named, tyro.conf.OmitArgPrefixes]))
    fields += [field(name) for name in hints if name not in grouped]
    shown = tyro.conf.arg(help=CONFIG_HELP, metavar="PATH", help_behavior_hint="(optional)")
    fields.append((CONFIG, typing.Annotated[Path | None, shown], dataclasses.field(default=None)))
    return dataclasses.make_dataclass(function.__name__, fields, kw_only=True)


def as_arguments(options: typing.Any) -> dict[str, typing.Any]:
    """Converts an instance of an `options_class` to the arguments of its function, by name."""
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    del values[CONFIG]
    for name in [name for name in values if re.fullmatch(r"group_\d+", name)]:
        inner = values.pop(name)
        values |= {field.name: getattr(inner, field.name) for field in dataclasses.fields(inner)}
    return values


def description(function: Callable, words: str, details: str = "") -> str:
    """Returns the --help text before the options: a summary, an example, and further details.

    The example is given for the installed package and for a clone of the repository.

    Args:
        function: the function. The docstring of its module contains the example, a line with `python -m
            pipelines.NAME`.
        words: name of the command, with spaces before a subcommand: "pretrain", "show attention".
        details: text for the end.
    """
    first, *others = (" ".join(paragraph.split()) for paragraph in _before_arguments(function).split("\n\n"))
    module, _, subcommand = words.replace("-", "_").partition(" ")
    spelled = f"python -m pipelines.{module} {subcommand}".strip()
    lines = (inspect.getdoc(sys.modules[function.__module__]) or "").splitlines()
    example = next((line.strip() for line in lines if re.search(rf"{re.escape(spelled)}(\s|$)", line)), None)
    if example:
        installed = re.sub(r"python -m pipelines\.(\w+)", lambda m: f"kerasbert {m[1].replace('_', '-')}", example)
        others.insert(0, f"Example, and the same in a clone:\n    {installed}\n    {example}")
    return "\n\n".join(text for text in (first, *others, details) if text)


def _before_arguments(function: Callable) -> str:
    return re.split(r"\n\n(?:Args|Returns|Raises):", inspect.getdoc(function) or "")[0]


@functools.cache
def _hints(function: Callable) -> dict[str, typing.Any]:
    hints = typing.get_type_hints(function)
    return {name: hints.get(name, str) for name in inspect.signature(function).parameters}


def _defaults(function: Callable) -> dict[str, typing.Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _helps(function: Callable) -> dict[str, str]:
    import docstring_parser

    parsed = docstring_parser.parse(inspect.getdoc(function) or "", style=docstring_parser.DocstringStyle.GOOGLE)
    return {param.arg_name: " ".join((param.description or "").split()) for param in parsed.params}


def _default_hint(text: str, default: typing.Any) -> str | None:
    """Returns the text after the help of an optional argument, or None for tyro's "(default: ...)"."""
    if default is None or default in ((), ""):
        return "" if "Default:" in text else "(optional)"
    return None


def _metavar(kind: typing.Any) -> str | None:
    """Returns the placeholder of a value that may be None, without None: "INT" for `int | None`."""
    if isinstance(kind, types.UnionType) and type(None) in typing.get_args(kind):
        return next((METAVARS[option] for option in typing.get_args(kind) if option in METAVARS), None)
    return None
