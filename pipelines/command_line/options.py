"""Converts the arguments of a command's function to a dataclass of options, from which tyro creates a parser."""

import dataclasses
import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

CONFIG = "config"  # the option that names a file of options


def config_help(options: Iterable[str]) -> str:
    """Describes the option CONFIG of a command with these options."""
    added = ", but --set adds to them" if "set" in options else ""
    return (
        "YAML file with options of this command, such as `batch_size: 32`. Options on the command line replace those "
        f"of the file{added}."
    )


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
    found, hints, described = [], typing.get_type_hints(function), helps(function)
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints.get(name, str)
        if inspect.isclass(kind) and issubclass(kind, Options):
            kinds, inner = typing.get_type_hints(kind), helps(kind)
            values = None if parameter.default is parameter.empty else parameter.default
            for field in dataclasses.fields(kind):
                default = field.default if values is None else getattr(values, field.name)
                found.append(Option(field.name, kinds[field.name], inner.get(field.name, ""), default, name))
        else:
            default = dataclasses.MISSING if parameter.default is parameter.empty else parameter.default
            found.append(Option(name, kind, described.get(name, ""), default))
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


def negated(flag: str) -> str:
    """The option that turns a bool off: `no-lowercase` for `lowercase`, `lora.no-merge` for `lora.merge`."""
    outer, dot, inner = flag.rpartition(".")
    return f"{outer}{dot}no-{inner}"


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
        shown = tyro.conf.arg(help=option.help)
        return option.name, typing.Annotated[option.kind, shown], dataclasses.field(default=option.default)

    fields = []
    for number, title in enumerate(dict.fromkeys([*groups, *titles.values()])):
        members = [options[name] for name in groups.get(title, ())]
        members += [option for option in options.values() if option.record == title]
        inner = dataclasses.make_dataclass(title, map(field, members), kw_only=True)
        named = tyro.conf.arg(name=title.replace("_", " "), help="")
        fields.append((f"group_{number}", typing.Annotated[inner, named, tyro.conf.OmitArgPrefixes]))
    fields += [field(option) for option in options.values() if option.name not in titles]
    shown = tyro.conf.arg(help=config_help(options))
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


def helps(described: typing.Any) -> dict[str, str]:
    """The descriptions of the arguments in the docstring of a function or a class."""
    import docstring_parser

    parsed = docstring_parser.parse(inspect.getdoc(described) or "", style=docstring_parser.DocstringStyle.GOOGLE)
    return {param.arg_name: " ".join((param.description or "").split()) for param in parsed.params}
