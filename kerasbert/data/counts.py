"""Checks of numbers of things that users pass."""

import operator
from typing import Any


def check_counts(least: int = 1, *, or_none: bool = False, **given: Any) -> None:
    """Raises a ValueError unless the arguments, by their names, are integers of at least `least`.

    Args:
        least: the smallest integer.
        or_none: whether None is accepted, too.
        **given: the arguments.
    """
    for name, value in given.items():
        if or_none and value is None:
            continue
        if isinstance(value, (bool, type(None))) or not hasattr(value, "__index__") or operator.index(value) < least:
            raise ValueError(f"`{name}` must be an integer of at least {least}. Received: {value!r:.40}.")
