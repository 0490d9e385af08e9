"""Checks of numbers of things that users pass."""

import operator
from typing import Any


def check_counts(least: int = 1, **given: Any) -> None:
    """Raises a ValueError unless the arguments, by their names, are integers of at least `least`. None is left out."""
    for name, value in given.items():
        if value is None:
            continue
        if isinstance(value, bool) or not hasattr(value, "__index__") or operator.index(value) < least:
            raise ValueError(f"`{name}` must be an integer of at least {least}. Received: {value!r:.40}.")
