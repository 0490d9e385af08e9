"""Finds what is wrong with a command line: unknown, repeated and missing options, and values of another type."""

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path

from kerasbert.command_line import close_to, did_you_mean
from kerasbert.data.text.json_files import shortened

from .options import CONFIG, negated, option_types, options_of

# Options that count something of which there must be one.
COUNTS = {
    *("accumulation", "batch_size", "epochs", "length", "limit", "lora.rank", "max_length", "max_new_tokens"),
    *("num_beams", "shards", "steps", "top", "vocabulary_size", "workers"),
}
# Options of every command that are not arguments of its function.
GENERAL = ("help", "help-all", CONFIG, "tyro-print-completion", "tyro-write-completion")
NUMBERS = {int: "a whole number", float: "a number"}


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
            taken = math.inf if takes_several(kind) else 0 if kind is bool or has_value else 1
        elif taken:
            options.append(argument)
            taken -= 1
        else:
            values.append(argument)
    return values, options


def takes_several(kind: typing.Any) -> bool:
    """Whether an option of a type takes any number of values."""
    return any(typing.get_origin(one) in (tuple, list) for one in (kind, *typing.get_args(kind)))


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
            if name == "set":
                return "There is no option --set. It changes recipes; here, each setting is an option: --epochs 2."
            close = close_to(name, full)
            return f"There is no option --{name}." + (f" Did you mean --{full[close]}?" if close else "")
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


def wrong_value(function: Callable, arguments: list[str]) -> str | None:
    """Returns an error message for the first option with too many, too few or unsuitable values, or None."""
    kinds = option_types(function)
    kinds |= {f"{negated(name.replace('_', '-'))}": bool for name, kind in kinds.items() if kind is bool}
    kinds = {name.replace("_", "-"): kind for name, kind in kinds.items()} | {CONFIG: Path}
    may_be_empty = {option.name.replace("_", "-") for option in options_of(function) if option.default == ""}
    for flag, values in _given(arguments):
        if flag is None:
            return f"Values need the names of their options. Received: {' '.join(map(shortened, values))}."
        kind = kinds[flag]
        most = 0 if kind is bool else math.inf if takes_several(kind) else 1
        if len(values) > most:
            takes = "one value" if most else "no value"
            return f"--{flag} takes {takes}. Received: {', '.join(map(shortened, values))}."
        if len(values) < min(1, most) and not takes_several(kind):
            return f"--{flag} needs a value. Received: none."
        for value in values:
            if not value.strip() and flag not in may_be_empty:  # an empty path would be the current folder
                return f"--{flag} must not be empty. Received: {value!r}. Leave it out, or give a value."
            if wrong := _expected(kind, value, flag):
                return f"--{flag} must be {wrong}"
    return None


def missing_option(function: Callable, arguments: list[str], first: tuple[str, ...]) -> str | None:
    """Returns an error message that names the options which a command needs and does not have, or None.

    Args:
        function: function of the command.
        arguments: the arguments, with the names of all options.
        first: names of the arguments that may be given without option names.
    """
    given = {argument.partition("=")[0][2:].replace("-", "_") for argument in arguments if argument.startswith("--")}
    needed = [option.name for option in options_of(function) if option.default is dataclasses.MISSING]
    needed.sort(key=lambda name: first.index(name) if name in first else len(first))
    names = [name.upper() if name in first else f"--{name.replace('_', '-')}" for name in needed if name not in given]
    if not names:
        return None
    return f"{' and '.join([', '.join(names[:-1]), names[-1]] if len(names) > 1 else names)} must be given."


def _given(arguments: list[str]) -> Iterator[tuple[str | None, list[str]]]:
    """Yields the options and their values, with None for values before the first option."""
    flag, values = None, []
    for argument in arguments:
        if argument.startswith("--") and len(argument) > 2:
            if flag or values:
                yield flag, values
            name, equals, value = argument[2:].partition("=")
            flag, values = name.replace("_", "-"), [value] if equals else []
        else:
            values.append(argument)
    if flag or values:
        yield flag, values


def _expected(kind: typing.Any, value: str, flag: str) -> str | None:
    """Returns what a value of an option must be, and what was received instead, or None if the value is right."""
    if isinstance(kind, types.UnionType) or takes_several(kind):
        kinds = typing.get_args(kind)
        found = [_expected(one, value, flag) for one in kinds if one not in (type(None), ...)]
        return None if None in found or (value == "None" and type(None) in kinds) else found[0]
    if typing.get_origin(kind) is typing.Literal:
        choices = list(map(str, typing.get_args(kind)))
        close = did_you_mean(value, choices)
        return None if value in choices else f"one of {', '.join(choices)}. Received: {shortened(value)}.{close}"
    if kind in NUMBERS:
        try:
            number = kind(value)
        except ValueError:
            return f"{NUMBERS[kind]}. Received: {shortened(value)}."
        if flag.replace("-", "_") in COUNTS and number < 1:
            return f"at least 1. Received: {number}."
    return None
