"""Answers of models on a terminal: tables and short lines in place of JSON."""

from collections.abc import Iterator, Sequence
from numbers import Number
from typing import Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kerasbert.command_line import printable

from .console import PrintableConsole, terminal_console

SHOWN = 8  # a longer list of numbers, such as a vector, is cut


def print_answer(answer: dict[str, Any], console: PrintableConsole | None = None) -> None:
    """Prints an answer: the field `input` as a heading, and the others below it.

    Lists of the same length, such as the words and labels of a tagger, are the columns of one table, and lists of dicts
    are tables. Numbers have four significant digits.
    """
    console = console or terminal_console()
    asked = answer.get("input", "")
    asked = " ".join(asked) if isinstance(asked, list) else asked  # words, or a text
    console.print(Text(_shown(asked), style="bold"))
    fields = {name: value for name, value in answer.items() if name != "input"}
    lengths = [len(value) for value in fields.values() if _is_column(value)]
    columns = {name: value for name, value in fields.items() if _is_column(value) and lengths.count(len(value)) > 1}
    if columns:
        _print(_table({name: map(_shown, column) for name, column in columns.items()}), console)
    for name, value in fields.items():
        for part in () if name in columns else _parts(name, value):
            _print(part, console)


def _print(part: Text | Table, console: PrintableConsole) -> None:
    console.print(Padding(part, (0, 0, 0, 2), expand=False))


def _is_column(value: Any) -> bool:
    """Whether a value is a list of texts or numbers."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, str | Number) for one in value)


def _is_table(value: Any) -> bool:
    """Whether a value is a list of dicts."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def _parts(name: str, value: Any) -> Iterator[Text | Table]:
    """What is printed for a field: a line, or a table for a list of dicts."""
    if _is_table(value):
        yield _table({key: [_shown(one.get(key, "")) for one in value] for key in value[0]})
    elif isinstance(value, list) and value and all(map(_is_table, value)):
        for number, rows in enumerate(value, start=1):
            if len(value) > 1:
                yield Text(f"{name.removesuffix('s')} {number} of {len(value)}", style="dim")
            yield from _parts(name, rows)
    else:
        yield Text.assemble((f"{name}  ", "dim"), _shown(value))


def _table(columns: dict[str, Any]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, row))
    return table


def _shown(value: Any) -> str:
    """A value as text: numbers with four digits, long lists of them cut, texts of a pair on lines of their own."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{_shown(name)} {_shown(one)}" for name, one in value.items())
    if isinstance(value, str) or not isinstance(value, Sequence):
        return printable(str(value))  # before lines are broken
    if len(value) > SHOWN and all(isinstance(one, Number) for one in value):
        return f"{' '.join(map(_shown, value[: SHOWN // 2]))} ... ({len(value):,} numbers)"
    if value and isinstance(value[0], list) and value[0] and isinstance(value[0][0], Number):
        return f"{len(value):,} of {len(value[0]):,} numbers"
    return ("\n" if isinstance(value, tuple) else ", ").join(map(_shown, value)) or "none"
