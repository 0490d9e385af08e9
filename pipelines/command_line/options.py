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


class Options:
    """Base class of records of options: dataclasses whose fields are options of a command, without a prefix.

    A function takes records as arguments, whose names are headings in --help. Other dataclasses, such as `Columns`,
    become options with a prefix: --columns.text.
    """

    @property
    def given(self) -> list[str]:
        """The options with another value than their default, as on the command line: --top-k."""
        fields = dataclasses.fields(typing.cast(typing.Any, self))
        return [f"--{each.name.replace('_', '-')}" for each in fields if getattr(self, each.name) != each.default]


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of a command: an argument of its function, or a field of one of its records.

    Args:
        name: name of the argument or field.
        kind: its type.
        help: its description.
        default: its default, or `dataclasses.MISSING`.
        record: the argument whose field it is, or None.
    """

    name: str
    kind: typing.Any
    help: str
    default: typing.Any
    record: str | None = None


@functools.cache
def options_of(function: Callable) -> tuple[Option, ...]:
    """The options of a function, in order."""
    found, hints, helps = [], typing.get_type_hints(function), _helps(function)
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints.get(name, str)
        if inspect.isclass(kind) and issubclass(kind, Options):
            kinds, described = typing.get_type_hints(kind), _helps(kind)
            values = None if parameter.default is parameter.empty else parameter.default
            for field in dataclasses.fields(kind):
                default = field.default if values is None else getattr(values, field.name)
                found.append(Option(field.name, kinds[field.name], described.get(field.name, ""), default, name))
        else:
            default = dataclasses.MISSING if parameter.default is parameter.empty else parameter.default
            found.append(Option(name, kind, helps.get(name, ""), default))
    names = [option.name for option in found]
    assert len({*names, CONFIG}) == len(names) + 1, f"options of {function.__name__} with the same name: {names}"
    return tuple(found)


def option_types(function: Callable) -> dict[str, typing.Any]:
    """Returns {option: type} for a function, in order. A dataclass `columns` becomes the options `columns.text`, ..."""
    found = {}
    for option in options_of(function):
        if dataclasses.is_dataclass(option.kind):
            kinds = typing.get_type_hints(option.kind)
            found |= {f"{option.name}.{inner}": kind for inner, kind in kinds.items()}
        else:
            found[option.name] = option.kind
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
    """Creates a dataclass with a field per option of the function. The options of a group form an inner dataclass.

    Args:
        function: the function. Its docstring describes its arguments, and that of a record describes its fields.
        groups: {title: names of arguments}, besides the records, which are groups, too.
    """
    import tyro

    options = {option.name: option for option in options_of(function)}
    titles = {name: title for title, names in groups.items() for name in names}
    assert len(titles) == sum(map(len, groups.values())) and {*titles} <= {*options}, f"groups of {function.__name__}"
    titles |= {option.name: option.record for option in options.values() if option.record}

    def field(option: Option) -> tuple:
        if dataclasses.is_dataclass(option.kind):
            shown = tyro.conf.arg(help=option.help)
        else:
            shown = tyro.conf.arg(
                help=option.help, metavar=_metavar(option.kind), help_behavior_hint=_default_hint(option)
            )
        return option.name, typing.Annotated[option.kind, shown], dataclasses.field(default=option.default)

    fields = []
    for number, title in enumerate(dict.fromkeys([*groups, *titles.values()])):
        members = [options[name] for name in groups.get(title, ())]
        members += [option for option in options.values() if option.record == title]
        inner = dataclasses.make_dataclass(title, map(field, members), kw_only=True)
        named = tyro.conf.arg(name=title.replace("_", " "), help="")
        fields.append((f"group_{number}", typing.Annotated[inner, named, tyro.conf.OmitArgPrefixes]))
    fields += [field(option) for option in options.values() if option.name not in titles]
    shown = tyro.conf.arg(help=CONFIG_HELP, metavar="PATH", help_behavior_hint="(optional)")
    fields.append((CONFIG, typing.Annotated[Path | None, shown], dataclasses.field(default=None)))
    return dataclasses.make_dataclass(function.__name__, fields, kw_only=True)


def option_values(parsed: typing.Any) -> dict[str, typing.Any]:
    """Returns {option: value} of an instance of an `options_class`."""
    values = {field.name: getattr(parsed, field.name) for field in dataclasses.fields(parsed)}
    del values[CONFIG]
    for name in [name for name in values if re.fullmatch(r"group_\d+", name)]:
        inner = values.pop(name)
        values |= {field.name: getattr(inner, field.name) for field in dataclasses.fields(inner)}
    return values


def as_arguments(function: Callable, values: Mapping[str, typing.Any]) -> dict[str, typing.Any]:
    """Converts {option: value} to the arguments of a function, of which some are records."""
    arguments, fields = {}, {}
    for option in options_of(function):
        if option.record is None:
            arguments[option.name] = values[option.name]
        else:
            fields.setdefault(option.record, {})[option.name] = values[option.name]
    hints = typing.get_type_hints(function)
    return arguments | {name: hints[name](**inner) for name, inner in fields.items()}


def description(function: Callable, words: str) -> str:
    """Returns the --help text before the options: a summary, an example, and the rest of the description.

    The example is given for the installed package and for a clone of the repository.

    Args:
        function: the function. The docstring of its module contains the example, a line with `python -m
            pipelines.NAME`.
        words: name of the command, with spaces before a subcommand: "pretrain", "show attention".
    """
    first, *others = (" ".join(paragraph.split()) for paragraph in _before_arguments(function).split("\n\n"))
    module, _, subcommand = words.replace("-", "_").partition(" ")
    spelled = f"python -m pipelines.{module} {subcommand}".strip()
    lines = (inspect.getdoc(sys.modules[function.__module__]) or "").splitlines()
    example = next((line.strip() for line in lines if re.search(rf"{re.escape(spelled)}(\s|$)", line)), None)
    if example:
        installed = re.sub(r"python -m pipelines\.(\w+)", lambda m: f"kerasbert {m[1].replace('_', '-')}", example)
        others.insert(0, f"Example, and the same in a clone:\n    {installed}\n    {example}")
    return "\n\n".join(text for text in (first, *others) if text)


def _before_arguments(function: Callable) -> str:
    return re.split(r"\n\n(?:Args|Returns|Raises):", inspect.getdoc(function) or "")[0]


def _helps(described: typing.Any) -> dict[str, str]:
    """The descriptions of the arguments in the docstring of a function or a class."""
    import docstring_parser

    parsed = docstring_parser.parse(inspect.getdoc(described) or "", style=docstring_parser.DocstringStyle.GOOGLE)
    return {param.arg_name: " ".join((param.description or "").split()) for param in parsed.params}


def _default_hint(option: Option) -> str | None:
    """Returns the text after the help of an optional argument, or None for tyro's "(default: ...)"."""
    if option.default is None or option.default in ((), ""):
        return "" if "Default:" in option.help else "(optional)"
    return None


def _metavar(kind: typing.Any) -> str | None:
    """Returns the placeholder of a value that may be None, without None: "INT" for `int | None`."""
    if isinstance(kind, types.UnionType) and type(None) in typing.get_args(kind):
        return next((METAVARS[option] for option in typing.get_args(kind) if option in METAVARS), None)
    return None
