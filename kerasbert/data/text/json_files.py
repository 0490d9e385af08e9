"""Reads JSON files from untrusted sources, and checks their size, their nesting, and the types of their values."""

import difflib
import json
import math
import types
import typing
from collections.abc import Iterable
from pathlib import Path

SETTINGS_LIMIT = 4_000_000  # bytes of a config or an index. Parsed JSON can take twenty times as much memory.
VOCABULARY_LIMIT = 64_000_000  # bytes of a vocabulary, ten times the size of the largest published one


def read_json(path: Path, kind: type = dict, limit: int = SETTINGS_LIMIT) -> typing.Any:
    """Reads a JSON file, and checks its size, its nesting, and the type of its outermost value.

    Args:
        path: path of the file.
        kind: type of the outermost value.
        limit: maximum size in bytes.

    Raises:
        FileNotFoundError: there is no file at `path`.
        ValueError: the file is too large, is not JSON, is nested too deeply, or its outermost value has another type.
    """
    path = Path(path)
    size = path.stat().st_size
    if size > limit:
        raise ValueError(f"{path} must have at most {limit:,} bytes. Received: {size:,} bytes.")
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except RecursionError:
        raise ValueError(f"{path} must be JSON of reasonable depth. Received: a file nested too deeply.") from None
    except ValueError as error:
        raise ValueError(f"{path} must be JSON. Received: invalid JSON ({error}).") from None
    if not isinstance(content, kind):
        raise ValueError(f"{path} must contain a JSON {_NAMES[kind]}. Received: {type(content).__name__}.")
    return content


_NAMES = {dict: "object", list: "list"}


def check_types(values: dict, annotations: dict, source: object) -> None:
    """Raises a ValueError for the first value that does not have the annotated type.

    Args:
        values: {name: value}; names without an annotation are not checked.
        annotations: {name: type}, as `typing.get_type_hints` returns for a dataclass. A list is accepted for a tuple
            and an int for a float; floats must be finite.
        source: where the values come from, for the message.
    """
    for name, value in values.items():
        if name in annotations and not _fits(value, annotations[name]):
            raise ValueError(
                f"`{name}` in {source} must be {_described(annotations[name])}. "
                f"Received: {shortened(value)} ({type(value).__name__})."
            )


def _fits(value, annotation):
    origin = typing.get_origin(annotation)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, option) for option in typing.get_args(annotation))
    if origin is typing.Literal:
        return any(value is option or (isinstance(value, str) and value == option) for option in annotation.__args__)
    if origin is dict:
        keys, items = typing.get_args(annotation)
        return isinstance(value, dict) and all(_fits(k, keys) and _fits(v, items) for k, v in value.items())
    if origin in (list, tuple):
        items = typing.get_args(annotation)
        if not isinstance(value, (list, tuple)):
            return False
        if origin is list or items[-1] is Ellipsis:
            return all(_fits(item, items[0]) for item in value)
        return len(value) == len(items) and all(map(_fits, value, items))
    if annotation is typing.Any:
        return True
    if annotation is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and _is_finite(value)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if annotation is tuple:
        return isinstance(value, (list, tuple))
    if annotation is str:
        return isinstance(value, str) and is_text(value)
    return value is None if annotation is type(None) else isinstance(value, annotation)


def is_text(value: str) -> bool:
    """Whether a str can be encoded as UTF-8; JSON may contain unpaired surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_finite(number):
    try:
        return math.isfinite(number)
    except OverflowError:  # an int of hundreds of digits
        return False


def _described(annotation):
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return {"NoneType": "null", "tuple": "list"}.get(annotation.__name__, annotation.__name__)
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return " or ".join(map(_described, typing.get_args(annotation)))
    if typing.get_origin(annotation) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(annotation)))
    return str(annotation).replace("typing.", "").replace("tuple[", "list[").replace(", ...", "")


def shortened(value: object, length: int = 60) -> str:
    """A short description of a value of any size and depth, for error messages."""
    if isinstance(value, (dict, list, tuple, set)) and len(value) > 5:
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, int) and abs(value) >= 10**20:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str):
        value = value[: length + 1]
    try:
        text = ascii(value)
    except RecursionError:
        text = f"a deeply nested {type(value).__name__}"
    return text if len(text) <= length else f"{text[:length]}..."


def closest(name: str, known: Iterable[str], most: int = 12) -> str:
    """Lists the known names for a message about an unknown one: all of them, or the closest six of more than `most`."""
    known = list(known)
    if len(known) <= most:
        return ", ".join(known)
    close = difflib.get_close_matches(str(name).lower(), known, n=6, cutoff=0.5)
    chosen = {*close, *[other for other in known if other not in close][: 6 - len(close)]}
    return f"{', '.join(one for one in known if one in chosen)}, ... ({len(known)} in all)"


def inside(folder: Path, name: object, source: object) -> Path:
    """Returns the path of a file or folder that is named in `source`, a file in `folder`. It must be inside `folder`.

    Symbolic links must not lead out of the folder either, except those that the cache of the Hugging Face hub uses to
    share `blobs` between snapshots.

    Raises: ValueError if the path is outside the folder.
    """
    folder = Path(folder)
    if not isinstance(name, str) or "\0" in name or not is_text(name):
        raise ValueError(f"{source} must give names of files as strings. Received: {shortened(name)}.")
    if len(name) > 255:
        raise ValueError(f"{source} must name files in its folder. Received: a name of {len(name)} characters.")
    path, root = folder / name, folder.resolve()
    homes = [root]
    if root.parent.name == "snapshots":
        homes.append(root.parent.parent / "blobs")
    relative = not Path(name).is_absolute() and ".." not in Path(name).parts
    if not relative or not any(path.resolve().is_relative_to(home) for home in homes):
        raise ValueError(
            f"{source} must name files inside its folder. Received: {shortened(name)}, which leads out of {folder}. "
            "Copy the file into the folder."
        )
    return path
