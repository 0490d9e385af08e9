"""The text of `--help`: what a command does, an example, and its options in groups, on one screen."""

import dataclasses
import inspect
import re
import shutil
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path

from .mistakes import takes_several
from .options import CONFIG, Option, config_help, helps, negated, options_of

MOST_LINES = 60  # of the text of `--help`; `--help-all` prints the rest
INDENT = 24  # column of the descriptions
METAVARS = {int: "INT", float: "FLOAT", str: "STR", Path: "PATH"}


@dataclasses.dataclass(frozen=True)
class Entry:
    """An option in the help of a command.

    Args:
        flag: how it is given: "--batch-size INT".
        text: its description.
        notes: what follows the description in brackets: its choices, its default, or that it is required.
    """

    flag: str
    text: str
    notes: tuple[str, ...] = ()

    def lines(self, width: int, brief: bool) -> list[str]:
        """The lines of the help, with only the first sentence of the description if it is to be `brief`."""
        text, *others = re.split(r"\. (?=[A-Z-])", self.text.removesuffix("."))
        defaults = [one for one in others if one.startswith("Default: ")]
        notes = [*self.notes, *(f"default: {one.removeprefix('Default: ')}" for one in defaults)]
        text = text if brief else ". ".join([text, *(one for one in others if one not in defaults)])
        text = f"{text} ({'; '.join(notes)})" if notes else text
        flag = f"  {self.flag}"
        first = flag + " " * max(2, INDENT - len(flag))
        return _wrapped(text, width, first, " " * INDENT)


def help_text(
    function: Callable, groups: Mapping[str, tuple[str, ...]], first: tuple[str, ...], program: str, whole: bool = False
) -> str:
    """Returns the text of `--help`, which fits on a screen.

    If the descriptions of all options do not fit, their first sentences are shown, and of the last groups, as many as
    necessary, only the names of the options.

    Args:
        function, groups, first: see `Command`.
        program: how the command is called.
        whole: show the descriptions in any case, as `--help-all` does.
    """
    width = min(120, max(80, shutil.get_terminal_size().columns)) - 1
    start = [f"usage: {usage(function, first, program)}", *_introduction(function, program, width)]
    sections = _sections(function, groups)
    lines = [*start, *_listed(sections, width, brief=False)]
    more = ["", f"`{program} --help-all` describes the options in full."]
    for named in range(len(sections)):
        if whole or len(lines) <= MOST_LINES:
            break
        described = sections[: len(sections) - named]
        lines = [*start, *_listed(described, width, brief=True), *_names(sections[len(described) :], width), *more]
    return "\n".join(lines)


def usage(function: Callable, first: tuple[str, ...], program: str) -> str:
    """Returns how a command is called: "kerasbert embed MODEL INPUT --output PATH [OPTIONS]"."""
    found, options = [], {option.name: option for option in options_of(function)}
    for option in [*(options[name] for name in first), *(options[name] for name in options if name not in first)]:
        required, several = option.default is dataclasses.MISSING, takes_several(option.kind)
        if option.name in first:
            name = option.name.upper() + " ..." * several
            found.append(name if required else f"[{name}]")
        elif required:
            found.append(f"--{option.name.replace('_', '-')} {_metavar(option.kind)}")
    return " ".join([program, *found, "[OPTIONS]"])


def _introduction(function: Callable, program: str, width: int) -> list[str]:
    """The summary of a command, an example, and the rest of the description.

    The docstring of the module of the function has the example, a line with `python -m pipelines.NAME`.
    """
    summary, *others = re.split(r"\n\n(?:Args|Returns|Raises):", inspect.getdoc(function) or "")[0].split("\n\n")
    lines = ["", *_wrapped(summary, width)]
    words = re.sub(r"^(kerasbert |python -m [\w.]*pipelines\.)", "", program)
    module, _, subcommand = words.replace("-", "_").partition(" ")
    spelled = re.escape(f"python -m pipelines.{module} {subcommand}".strip())
    documented = (inspect.getdoc(sys.modules[function.__module__]) or "").splitlines()
    example = next((line.strip() for line in documented if re.search(rf"{spelled}(\s|$)", line)), None)
    if example:
        installed = re.sub(r"python -m pipelines\.(\w+)", lambda m: f"kerasbert {m[1].replace('_', '-')}", example)
        lines += ["", "Example:", f"    {installed}"]
    for paragraph in others:
        lines += ["", *_wrapped(paragraph, width)]
    return lines


def _sections(function: Callable, groups: Mapping[str, tuple[str, ...]]) -> list[tuple[str, list[Entry]]]:
    """The groups of options: those of the command, the options without a group, and the records."""
    options = {option.name: option for option in options_of(function)}
    grouped = {name for names in groups.values() for name in names}
    found = {title: [options[name] for name in names] for title, names in groups.items()}
    others: list[Option] = []
    for option in options.values():
        if option.record:
            found.setdefault(option.record, []).append(option)
        elif dataclasses.is_dataclass(option.kind):
            found.setdefault(option.name, []).append(option)
        elif option.name not in grouped:
            others.append(option)
    found["other"] = [*others, Option(CONFIG, Path, config_help(options), None)]
    return [(title, [entry for option in found[title] for entry in _entries(option)]) for title in found]


def _entries(option: Option) -> list[Entry]:
    """The entries of an option: one for each field of a dataclass, such as `Columns`."""
    if not dataclasses.is_dataclass(option.kind):
        return [_entry(option.name, option.kind, option.help, option.default)]
    kinds, described = typing.get_type_hints(option.kind), helps(option.kind)
    return [
        _entry(f"{option.name}.{name}", kinds[name], described.get(name, ""), getattr(option.default, name))
        for name in kinds
    ]


def _entry(name: str, kind: typing.Any, text: str, default: typing.Any) -> Entry:
    flag = name.replace("_", "-")
    if kind is bool:
        both = f"--{negated(flag).replace('no-', '[no-]', 1)}"
        return Entry(both, text, ("default: yes",)) if default is True else Entry(f"--{flag}", text)
    metavar, notes = _metavar(kind), []
    if metavar == "NAME":
        notes.append(f"one of {', '.join(_choices(kind))}")
    if default is dataclasses.MISSING:
        notes.append("required")
    elif default not in (None, (), "") and "Default:" not in text:
        notes.append(f"default: {_written(default)}")
    return Entry(f"--{flag} {metavar}", text, tuple(notes))


def _written(default: typing.Any) -> str:
    if isinstance(default, tuple):
        return " ".join(map(str, default))
    return f"{default:g}" if isinstance(default, float) else str(default)


def _metavar(kind: typing.Any) -> str:
    """The placeholder of a value: INT, "STR ..." for any number of them, "{a,b}" for a choice."""
    if isinstance(kind, types.UnionType):
        return _metavar(next(one for one in typing.get_args(kind) if one is not type(None)))
    if takes_several(kind):
        return f"{_metavar(typing.get_args(kind)[0])} ..."
    choices = _choices(kind)
    if choices:
        return f"{{{','.join(choices)}}}" if sum(map(len, choices)) < INDENT else "NAME"
    return METAVARS.get(kind, "VALUE")


def _choices(kind: typing.Any) -> list[str]:
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else [kind]
    return [str(one) for each in kinds if typing.get_origin(each) is typing.Literal for one in typing.get_args(each)]


def _listed(sections: list[tuple[str, list[Entry]]], width: int, brief: bool) -> list[str]:
    lines = []
    for title, entries in sections:
        lines += ["", f"{title.replace('_', ' ')}:"]
        lines += [line for entry in entries for line in entry.lines(width, brief)]
    return lines


def _names(sections: list[tuple[str, list[Entry]]], width: int) -> list[str]:
    """The names of the options of groups without their descriptions."""
    lines = []
    for title, entries in sections:
        start = f"{title.replace('_', ' ')}: ".ljust(14)
        names = " ".join(entry.flag.split()[0] for entry in entries)
        lines += _wrapped(names, width, start, " " * len(start))
    return ["", *lines] if lines else []


def _wrapped(text: str, width: int, first: str = "", others: str = "") -> list[str]:
    """The lines of a paragraph, in which names of options and files are not broken."""
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )
