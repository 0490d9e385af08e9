"""Trees of records, which recipes consist of: written as JSON, read again, and changed by `path=value`.

A record is a frozen dataclass whose fields are numbers, texts, tuples, dicts and other records. The annotation of a
field says which values it takes. Where it names a base class, the value may be any record derived from it, so a user's
own records are written, read and changed like those of this package.
"""

import ast
import dataclasses
import types
import typing
from collections.abc import Callable

from kerasbert.command_line import did_you_mean
from kerasbert.data.text.json_files import closest


def written(value: typing.Any) -> typing.Any:
    """Converts a tree to JSON values. A record becomes a dict of its fields and the name of its class, "class"."""
    if dataclasses.is_dataclass(value):
        return {"class": type(value).__name__} | {
            name: written(getattr(value, name)) for name in fields_of(type(value))
        }
    if isinstance(value, dict):
        return {name: written(inner) for name, inner in value.items()}
    return [written(inner) for inner in value] if isinstance(value, tuple | list) else value


def read(kind: typing.Any, stored: typing.Any, path: str = "") -> typing.Any:
    """Converts the result of `written` back to a tree.

    Args:
        kind: the type of the tree.
        stored: the JSON value.
        path: where it is, for messages.

    Raises:
        ValueError: a class or a field is not known, or a value has another type.
    """
    if isinstance(stored, dict):
        if "class" not in stored:
            return {name: read(typing.Any, inner, _joined(path, name)) for name, inner in stored.items()}
        cls = _class_named(stored["class"], kind, path)
        kinds = fields_of(cls)
        inner = {name: value for name, value in stored.items() if name != "class"}
        _check_names(inner, kinds, path)
        missing = [name for name in _required(cls) if name not in inner]
        if missing:
            raise ValueError(
                f"`{path or 'recipe'}` is a {cls.__name__}, which needs {' and '.join(missing)}. Set them, too."
            )
        return cls(**{name: read(kinds[name], value, _joined(path, name)) for name, value in inner.items()})
    if isinstance(stored, list | tuple):
        return tuple(read(_item(kind), value, _joined(path, number)) for number, value in enumerate(stored))
    return checked(kind, stored, path)


def changed(stored: typing.Any, kind: typing.Any, path: str, value: typing.Any, convert: Callable, done: str = ""):
    """Returns a written tree with another value at a path.

    Args:
        stored: the tree, as `written` returns it.
        kind: its type.
        path: where the value is, such as "data.noise.rate" or "phases.0.steps".
        value: the new value. The name of a class stands for a record of this class, with the values of the former
            record in fields that both have.
        convert: function of (type, value, path), `parsed` for the text of a command line or `checked` for a value.
        done: the path of the tree itself.
    """
    name, _, rest = path.partition(".")
    here = _joined(done, name)
    if isinstance(stored, list):
        if name not in map(str, range(len(stored))):
            raise ValueError(f"`{done}` has the entries 0 to {len(stored) - 1}. Received: {here}.")
        inner, kind, group, key = stored[int(name)], _item(kind), list(stored), int(name)
    elif not isinstance(stored, dict):
        raise ValueError(f"`{done}` is {stored!r}, which has no fields. Received: {here}.")
    elif "class" not in stored:  # a dict, whose keys may be paths
        return {**stored, path: convert(typing.Any, value, _joined(done, path))}
    else:
        cls = _class_named(stored["class"], kind, done)
        kinds = fields_of(cls, stored)
        _check_names([name], kinds, done)
        is_own = name in fields_of(cls)
        group, key, kind = dict(stored if is_own else stored["config"]), name, kinds[name]
        inner = group.get(name)
    if rest:
        group[key] = changed(inner, kind, rest, value, convert, here)
    elif isinstance(value, str) and value in _classes(kind):
        group[key] = _with_class(inner, kind, value, here)
    else:
        group[key] = _as_records(kind, convert(kind, value, here))
    if isinstance(group, dict) and name == "size":  # perhaps of another family, whose config has other fields
        known = fields_of(cls, group)
        group["config"] = {field: inner for field, inner in group["config"].items() if field in known}
    return group if isinstance(stored, list) or is_own else {**stored, "config": group}


def flat(stored: typing.Any, path: str = "") -> dict[str, typing.Any]:
    """Returns {path: value} for all values of a written tree. The value of a record is the name of its class."""
    if isinstance(stored, list) and any(isinstance(value, dict) for value in stored):
        stored = dict(enumerate(stored))
    if not isinstance(stored, dict) or not stored:
        return {path: stored}
    found = {path: stored["class"]} if "class" in stored and path else {}
    for name, value in stored.items():
        found |= flat(value, _joined(path, name)) if name != "class" else {}
    return found


def shown(value: typing.Any) -> str:
    """Writes a tree as Python does, without the fields that have their defaults: Tokens(rate=0.3)."""
    if not dataclasses.is_dataclass(value):
        return f"({', '.join(map(shown, value))})" if isinstance(value, tuple) else repr(value)
    defaults, fields = _defaults(type(value)), {}
    for name in fields_of(type(value)):
        if name not in defaults or written(getattr(value, name)) != defaults[name]:
            fields[name] = shown(getattr(value, name))
    inside = ", ".join(f"{name}={text}" for name, text in fields.items())
    return f"{type(value).__name__}({inside})" if fields else type(value).__name__


def fields_of(cls: type, stored: dict | None = None) -> dict[str, typing.Any]:
    """Returns {field: type} of a record, and of the config of a written `Size`, whose fields are set like its own."""
    kinds = typing.get_type_hints(cls)
    found = {field.name: kinds[field.name] for field in dataclasses.fields(cls) if field.init}
    return {**cls.config_fields(stored["size"]), **found} if stored and hasattr(cls, "config_fields") else found


def parsed(kind: typing.Any, text: str, path: str) -> typing.Any:
    """Converts the text of a command line to a value of a type."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = {"true": True, "false": False, "none": None}.get(text.lower(), text)
    options = _options(kind)
    if str in options and not isinstance(value, str) and not (value is None and type(None) in options):
        value = value if {int, tuple} & {typing.get_origin(option) or option for option in options} else text
    return checked(kind, value, path, text)


def checked(kind: typing.Any, value: typing.Any, path: str, received: typing.Any = None) -> typing.Any:
    """Returns a value as a type wants it: an int as a float, a list as a tuple.

    Raises:
        ValueError: the value has another type.
    """
    options = _options(kind)
    kinds = tuple(typing.get_origin(option) or option for option in options)
    if float in kinds and type(value) is int:
        value = float(value)
    if int in kinds and isinstance(value, float) and value.is_integer():
        value = int(value)
    if tuple in kinds and isinstance(value, list):
        value = tuple(value)
    literals = [text for option in options if typing.get_origin(option) is typing.Literal for text in option.__args__]
    if typing.Any in kinds or value in literals or type(value) in kinds or isinstance(value, _records(kind)):
        return value
    classes = _classes(kind)
    names = [*map(repr, literals), *classes]
    plain = [
        one for one in kinds if isinstance(one, type) and one.__name__ not in classes and one not in _records(kind)
    ]
    names += ["None" if one is type(None) else one.__name__ for one in plain]
    of = "" if literals or classes else "of type "
    raise ValueError(
        f"`{path}` must be {of}{' or '.join(names)}. Received: {value if received is None else received!r}."
    )


def _required(cls: type) -> list[str]:
    return [field.name for field in dataclasses.fields(cls) if field.init and field.name not in _defaults(cls)]


def _defaults(cls: type) -> dict[str, typing.Any]:
    """Returns {field: default} of a record, as JSON values."""
    missing, found = dataclasses.MISSING, {}
    for field in dataclasses.fields(cls):
        if field.default is not missing or field.default_factory is not missing:
            found[field.name] = written(field.default_factory() if field.default is missing else field.default)
    return found


def _with_class(before: typing.Any, kind: typing.Any, name: str, path: str) -> dict:
    """Returns a written record of another class, with the values of the former record that are not its defaults."""
    cls, shared = _class_named(name, kind, path), {}
    if isinstance(before, dict):
        defaults = _defaults(_class_named(before["class"], kind, path))
        shared = {field: value for field, value in before.items() if field not in defaults or defaults[field] != value}
    kinds = typing.get_type_hints(cls)
    names = [field for field in fields_of(cls) if field in shared and _can_hold(kinds[field], shared[field])]
    return {"class": name, **_defaults(cls), **{field: shared[field] for field in names}}


def _can_hold(kind: typing.Any, value: typing.Any) -> bool:
    """Whether a field of a type can hold a written record. Other values are checked when they are read."""
    return not isinstance(value, dict) or value.get("class") is None or value["class"] in _classes(kind)


def _as_records(kind: typing.Any, value: typing.Any) -> typing.Any:
    """Converts tuples of the fields of records, such as ((900, 16, 64), (100, 16, 128)) for phases."""
    classes = [cls for cls in _records(_item(kind)) if dataclasses.is_dataclass(cls)]
    if not classes or not isinstance(value, tuple) or not all(isinstance(fields, tuple | list) for fields in value):
        return value
    cls = classes[0]
    return [{"class": cls.__name__, **dict(zip(fields_of(cls), fields, strict=False))} for fields in value]


def _class_named(name: str, kind: typing.Any, path: str) -> type:
    classes = _classes(kind)
    if name not in classes:
        raise ValueError(
            f"`{path or 'recipe'}` must be one of {closest(str(name), sorted(classes))}. Received: {name!r}."
            f"{did_you_mean(str(name), classes)}"
        )
    return classes[name]


def _classes(kind: typing.Any) -> dict[str, type]:
    """Returns {name: class} of the records that a type allows."""
    found, waiting = {}, list(_records(kind))
    while waiting:
        cls = waiting.pop(0)
        waiting += cls.__subclasses__()
        if dataclasses.is_dataclass(cls) and not vars(cls).get("is_base"):
            found[cls.__name__] = cls
    return found


def _records(kind: typing.Any) -> tuple[type, ...]:
    """Returns the base classes of records in a type."""
    plain = (int, float, bool, str, tuple, list, dict, type(None), object)
    return tuple(option for option in _options(kind) if isinstance(option, type) and option not in plain)


def _options(kind: typing.Any) -> tuple:
    return typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)


def _item(kind: typing.Any) -> typing.Any:
    """Returns the type of the items of a tuple."""
    tuples = (option for option in _options(kind) if typing.get_origin(option) is tuple)
    return next((typing.get_args(option)[0] for option in tuples), typing.Any)


def _check_names(names: typing.Iterable, kinds: dict, path: str) -> None:
    for name in names:
        if name not in kinds:
            raise ValueError(
                f"`{path or 'recipe'}` has {closest(name, sorted(kinds))}. Received: {_joined(path, name)}."
                f"{did_you_mean(name, kinds)}"
            )


def _joined(path: str, name: typing.Any) -> str:
    return f"{path}.{name}" if path else str(name)
