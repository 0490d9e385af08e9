"""The constructor arguments that a model saves in `kerasbert.json`, and their checks when a folder is loaded."""

import contextlib
import dataclasses
import inspect
import math
import types
import typing

from ..data.text.json_files import check_types, shortened


@dataclasses.dataclass(frozen=True)
class Saved:
    """What JSON holds for a constructor argument.

    Args:
        type: the type of the value, as in an annotation.
        lowest, highest: limits of a number, and of the numbers in a dict, far outside useful values.
    """

    type: object
    lowest: float = 0
    highest: float = 1_000_000

    def check(self, name, value, path):
        """Raises a ValueError if the value of an argument has another type, or is outside the limits."""
        check_types({name: value}, {name: self.type}, path)
        inside = {f"{name}[{key!r}]": part for key, part in value.items()} if isinstance(value, dict) else {}
        for key, number in {name: value, **inside}.items():
            is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
            if is_number and not self.lowest <= number <= self.highest:
                raise ValueError(
                    f"`{key}` in {path} must be from {self.lowest} to {self.highest:,}. Received: {shortened(number)}."
                )


def parameters_of(cls):
    """Returns the names of the constructor arguments of a class, and of those that it passes on to classes of ours."""
    names = {"kwargs"}
    for base in cls.__mro__:
        if "kwargs" not in names or base.__module__.partition(".")[0] == "keras":
            break
        if "__init__" in vars(base):
            names = names - {"kwargs"} | {*inspect.signature(base.__init__).parameters}
    return names - {"self", "kwargs"}


def check_arguments(cls, arguments, path):
    """Raises a ValueError if a saved constructor argument has the wrong type for a class, or is outside its limits.

    Args:
        cls: a backbone, objective or task.
        arguments: {name: value}.
        path: path of the file, for messages.
    """
    for name, saved in _saved_as(cls).items():
        if name in arguments and saved is not None:
            saved.check(name, arguments[name], path)


def _saved_as(cls):
    """Returns {argument: its `Saved`, or None if its values cannot be checked} for the constructor of a class.

    The types are those in `SAVED_AS` of the class that defines the argument, or else its annotations. Only arguments
    of this package's classes have limits.
    """
    found, declared = {}, {}
    for base in reversed(cls.__mro__):
        own = vars(base).get("SAVED_AS", {})
        declared |= own
        if "__init__" not in vars(base):
            continue
        is_ours = base.__module__.partition(".")[0] == "kerasbert"
        limits = () if is_ours else (-math.inf, math.inf)
        try:
            hints = typing.get_type_hints(base.__init__)
        except (NameError, TypeError):  # annotations with names that are only imported for type checkers
            hints = {}
        for name in inspect.signature(base.__init__).parameters:
            if name in (declared if is_ours else own):
                found[name] = declared[name]
            elif name in hints:
                found[name] = Saved(hints[name], *limits) if _is_json_type(hints[name]) else None
            else:
                found.setdefault(name, None)
    return found


def _is_json_type(annotation):
    """Whether all values of a type are values that `json` reads, so that `check_types` can check it."""
    origin = typing.get_origin(annotation)
    if origin is typing.Literal or annotation is Ellipsis:
        return True
    if origin in (types.UnionType, typing.Union, list, tuple, dict):
        return all(map(_is_json_type, typing.get_args(annotation)))
    return annotation in (bool, int, float, str, list, tuple, dict, type(None))


@contextlib.contextmanager
def accepting_arguments(cls, arguments, path):
    """Context manager that converts errors of the constructor of `cls` to a ValueError that names the file.

    Args:
        cls: the class.
        arguments: {name: value}, the arguments that the file contains.
        path: path of the file.
    """
    try:
        yield
    except (TypeError, AttributeError, LookupError) as error:
        if not arguments:
            raise
        raise ValueError(
            f"`arguments` in {path} must be arguments that {cls.__name__} accepts. Received: "
            f"{shortened(arguments, 200)}, for which its constructor raised {type(error).__name__}: {error}."
        ) from error
