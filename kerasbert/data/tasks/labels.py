"""Names of labels, in the forms in which users give them, and the indices of labels among them."""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..columns import values_of

LARGEST = 1_000_000  # limit of the number of labels, and of their indices
FIX = 'Use a list in the order of the outputs, such as ["bad", "good"], or the number of labels.'


def names_of(labels: Any) -> list:
    """Converts the argument `labels` of a task to the list of names, whose types are kept.

    3 -> LABEL_0, LABEL_1, LABEL_2; {0: "bad", 1: "good"} and {"bad": 0, "good": 1} -> "bad", "good"

    Args:
        labels: the names in the order of the outputs (str, numbers or bools, all of one type), their number, or a dict
            that maps indices to names or names to indices.

    Raises:
        ValueError: if the order or the names are not clear, as in a set or a str.
    """
    labels = values_of(labels, "names of labels")
    if isinstance(labels, (set, frozenset)):
        raise ValueError(f"`labels` must be in an order. Received: a {type(labels).__name__}. Use sorted(labels).")
    if hasattr(labels, "__index__") and not _is_bool(labels) and not getattr(labels, "ndim", 0):
        count = operator.index(labels)
        if not 1 <= count <= LARGEST:
            raise ValueError(f"The number of labels must be at least 1 and at most {LARGEST:,}. Received: {count}.")
        return [f"LABEL_{i}" for i in range(count)]
    if isinstance(labels, Mapping):
        labels = _names_in_dict(labels)
    elif isinstance(labels, (str, bytes)) or not isinstance(labels, Iterable) or not hasattr(labels, "__len__"):
        raise ValueError(f"`labels` must be a list of names. Received: {labels!r:.60}. {FIX}")
    names = [_plain(name) for name in labels]
    kinds = {_kind(name) for name in names}
    if None in kinds or len(kinds) != 1:
        raise ValueError(
            "The names of labels must all be str, all be numbers or all be bools. Received: "
            f"{', '.join(map(repr, names[:9])) or 'no names'}. {FIX}"
        )
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise ValueError(f"`labels` must be different names. Received: {twice!r} twice, in {names}.")
    return names


def _names_in_dict(labels: Mapping) -> list:
    """Returns the names of {index: name} or {name: index}, sorted by index."""
    given = [(_plain(key), _plain(value)) for key, value in labels.items()]
    keys, values = [key for key, _ in given], [value for _, value in given]
    if all(isinstance(name, str) for name in (*keys, *values)):  # JSON stores the indices as str
        keys = [int(key) if key.isdecimal() else key for key in keys]

    def numbered(side: Sequence) -> bool:
        """Whether these are the indices 0, 1, ..."""
        return all(type(index) is int for index in side) and sorted(side) == list(range(len(side)))

    by_index, by_name = numbered(keys), numbered(values)
    if by_index == by_name:
        raise ValueError(
            "A dict of labels must map the indices from 0 to names, or names to the indices from 0. Received: "
            f"{dict(labels)!r:.80}. Use a list of the names in the order of the outputs."
        )
    pairs = zip(keys, values, strict=True) if by_index else zip(values, keys, strict=True)
    return [name for _, name in sorted(pairs, key=lambda pair: pair[0])]


def indices_of(names: Sequence, labels: Any) -> np.ndarray:
    """Converts labels to their indices, int32 (n,).

    If the names are str, an int in `labels` is an index; if they are numbers or bools, it is a name. Ints that could be
    either are refused: for the names "1", "5", all of [1, 1], but not [0, 1].

    names "bad", "good": "good", 0 -> 1, 0; names 1, 0: 1, 0 -> 0, 1

    Args:
        names: all names, from `names_of`.
        labels: a name or an index for each example.
    """
    labels = values_of(labels, "targets")
    if isinstance(labels, np.ndarray) and labels.ndim == 0:
        labels = [labels.item()]
    if isinstance(labels, (str, bytes, Mapping, set, frozenset)) or not hasattr(labels, "__len__"):
        raise ValueError(f"There must be a list of labels, one per example. Received: {labels!r:.60}.")
    found, known = np.zeros(len(labels), dtype=np.int32), {name: place for place, name in enumerate(names)}
    seen: dict = {}
    for number, label in enumerate(labels):
        key = (label.__class__, label) if isinstance(label, (str, int, float, np.generic)) else number
        if key not in seen:
            seen[key] = index_of(label, known)
        place = seen[key]
        if place is None:
            raise ValueError(
                f"Labels must be in {list(names)}"
                f"{', or be their indices' if _kind(names[0]) == 'str' else ''}. Received: {label!r:.60}, as label "
                f"{number}.{_advice(label, names)}"
            )
        found[number] = place
    check_clear(known, labels, found)
    return found


def check_clear(known: Mapping[Any, int], labels: Iterable, found: Iterable[int]) -> None:
    """Raises a ValueError if all ints among the labels are also names, as str, and not those of the same indices.

    Args:
        known: {name: index}.
        labels: names and indices.
        found: the index of each label.
    """
    if not any(isinstance(name, str) and name.lstrip("-").isdecimal() for name in known):
        return
    ints = {int(place): _plain(label) for label, place in zip(labels, found, strict=True) if not isinstance(label, str)}
    if ints and all(str(place) in known for place in ints) and any(known[str(place)] != place for place in ints):
        place = next(place for place in ints if known[str(place)] != place)
        raise ValueError(
            f"It must be clear whether an int is an index or a name. Received: {ints[place]!r}, which is the index of "
            f"{list(known)[place]!r}, or the name {str(place)!r}. Use names, as str."
        )


def index_of(label: Any, known: Mapping[Any, int]) -> int | None:
    """Returns the index of a label, or None if it is neither a name nor, for names that are str, an index.

    Args:
        label: a name or an index.
        known: {name: index}.
    """
    label = _plain(label)
    kind, wanted = _kind(label), _kind(next(iter(known)))
    if kind is None:
        return None
    if kind == wanted or "str" not in (kind, wanted):
        return known.get(label)
    if kind == "str" or label != int(label) or abs(label) > LARGEST:
        return None
    if kind == "bool" and str(label) in known:
        return known[str(label)]
    place = int(label)
    is_name_only = not 0 <= place < len(known) and str(place) in known
    return None if is_name_only else place


def _advice(label: Any, names: Sequence) -> str:
    label = _plain(label)
    if _kind(label) == "number" and label == int(label) and str(int(label)) in names:
        return f" The name {str(int(label))!r} is a str: use str, or give `labels` as numbers."
    return naming_advice(names)


def naming_advice(names: Sequence) -> str:
    """Returns how to name labels, for the end of a message, or nothing if they have other names than the default."""
    is_default = all(name == f"LABEL_{place}" for place, name in enumerate(names))
    return (
        ' Name the labels, or give their number, with from_preset(path, labels=["a", "b", "c"]).' if is_default else ""
    )


def _plain(name: Any) -> Any:
    """Converts a scalar of numpy or a tensor with one element to a Python value."""
    if hasattr(name, "item") and not isinstance(name, (str, bytes)) and np.ndim(name) == 0:
        return name.item()
    return str.__str__(name) if isinstance(name, str) else name


def _is_bool(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def _kind(name: Any) -> str | None:
    """Returns "str", "bool" or "number", or None for what cannot be a name."""
    if isinstance(name, str):
        return "str"
    if isinstance(name, bool):
        return "bool"
    return "number" if isinstance(name, int) or (isinstance(name, float) and math.isfinite(name)) else None
