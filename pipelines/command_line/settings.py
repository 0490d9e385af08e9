"""Reads files of options: the option `--config FILE` of a command names a YAML file with its other options."""

import types
import typing
from collections.abc import Callable, Hashable
from pathlib import Path

from kerasbert.command_line import did_you_mean
from kerasbert.data.text.json_files import closest, shortened

from .options import CONFIG, negated, option_types

MOST_BYTES = 100_000  # of a file of options
ADDED = "set"  # values of this option on the command line are added to those in the file instead of replacing them


def with_settings_file(function: Callable, arguments: list[str]) -> list[str]:
    """Inserts the options of the file given by `--config` before the arguments of the command line.

    Options of the file that are also on the command line are left out. For `--set`, the values of the file come first.
    """
    path = _config_path(arguments)
    if path is None:
        return arguments
    kinds = option_types(function)
    given = {argument.partition("=")[0][2:].replace("-", "_") for argument in arguments if argument.startswith("--")}
    before, after = [], list(arguments)
    for name, value in read_settings(path, kinds).items():
        spelled = _spelled(name, value, kinds[name], path)
        if name == ADDED and name in given:
            place = next(n for n, argument in enumerate(after) if argument.partition("=")[0] == f"--{name}")
            first = after[place].partition("=")[2]
            after[place : place + 1] = [*spelled, *([first] if first else [])]
        elif not {name, f"no_{name}"} & given:
            before += spelled
    return before + after


def read_settings(path: Path, kinds: dict[str, typing.Any]) -> dict[str, typing.Any]:
    """Reads {option: value} from a YAML file. Names may have hyphens or underscores, and dataclasses may be nested.

    Raises:
        ValueError: the file is not a mapping, or has an option that is not in `kinds`.
    """
    stored = _read_yaml(path)
    if not isinstance(stored, dict):
        raise ValueError(f"{path} must have one `option: value` per line. Received: {shortened(stored)}.")
    outer = {name.partition(".")[0] for name in kinds if "." in name}
    found = {}
    for key, value in stored.items():
        name = str(key).replace("-", "_")
        nested = value if name in outer and isinstance(value, dict) else None
        named = {name: value} if nested is None else {f"{name}.{inner}": one for inner, one in nested.items()}
        for inner, one in named.items():
            if inner not in kinds:
                close = did_you_mean(inner, kinds)
                raise ValueError(
                    f"{path} must contain only options of the command: {closest(inner, kinds)}. Received: "
                    f"{shortened(inner)}.{close}"
                )
            if inner in found:
                raise ValueError(f"{path} must have each option once. Received: {shortened(inner)} twice.")
            found[inner] = one
    return found


def _config_path(arguments: list[str]) -> Path | None:
    paths = []
    for number, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == f"--{CONFIG}":
            value = value if equals else next(iter(arguments[number + 1 :]), "")
            if not value or value.startswith("--"):
                raise ValueError(f"--{CONFIG} needs a YAML file. Received: no name.")
            paths.append(Path(value))
    if len(paths) > 1:
        raise ValueError(f"--{CONFIG} must be given once. Received: {', '.join(map(str, paths))}.")
    return paths[0] if paths else None


def _read_yaml(path: Path) -> typing.Any:
    """Reads a YAML file of limited size and depth. Aliases are refused: few of them make very large values."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Raises a ValueError for aliases, and for a key that occurs twice, of which YAML would use only the last."""

        def compose_node(self, parent, index):
            if self.check_event(yaml.AliasEvent):
                raise ValueError(
                    f"{path} must not contain aliases. Received: *{self.peek_event().anchor}. Write it out."
                )
            return super().compose_node(parent, index)

        def construct_mapping(self, node, deep=False):
            keys = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node)
                if isinstance(key, Hashable) and key in keys:
                    raise ValueError(f"{path} must have each option once. Received: {shortened(key)} twice.")
                keys |= {key} if isinstance(key, Hashable) else set()
            return super().construct_mapping(node, deep)

    size = path.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"{path} must have at most {MOST_BYTES:,} bytes. Received: {size:,} bytes.")
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader)
    except RecursionError:
        raise ValueError(f"{path} must be YAML of reasonable depth. Received: a file nested too deeply.") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        if str(error).startswith(f"{path} must"):
            raise
        message = " ".join(str(error).split())[:300]
        raise ValueError(f"{path} must be YAML. It cannot be read: {message}.") from None


def _spelled(name: str, value: typing.Any, kind: typing.Any, path: Path) -> list[str]:
    """Writes an option as on the command line: ["--batch-size=32"], ["--no-lowercase"], ["--seeds", "0", "1"]."""
    flag, where = f"--{name.replace('_', '-')}", f"{path}: `{name}`"
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError(f"{where} must be true or false. Received: {shortened(value)}.")
        return [flag if value else f"--{negated(flag[2:])}"]
    if value is None and type(None) not in kinds:
        raise ValueError(f"{where} has no value. Write one, or remove the line.")
    if any(typing.get_origin(option) in (tuple, list) for option in kinds):
        if isinstance(value, dict):
            values = [f"{key}={one}" for key, one in _flat(value).items()]
        else:
            values = value if isinstance(value, list) else [value]
        return [flag, *(_text(one, where) for one in values)]
    if isinstance(value, list | dict):
        raise ValueError(f"{where} must be a single value. Received: {shortened(value)}.")
    return [f"{flag}={_text(value, where)}"]


def _text(value: typing.Any, where: str) -> str:
    if isinstance(value, bool):
        raise ValueError(
            f"{where} must be text or a number. Received: {shortened(value)}. YAML reads yes, no, on and off as true "
            "and false: put such texts in quotes."
        )
    return str(value)


def _flat(values: dict, prefix: str = "") -> dict[str, typing.Any]:
    """Flattens nested dicts: {"model": {"num_layers": 4}} -> {"model.num_layers": 4}"""
    found = {}
    for key, value in values.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
