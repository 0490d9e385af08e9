"""Issues warnings at the line of the user's program that led to them."""

import sys
import warnings

_INSIDE = ("kerasbert", "keras", "contextlib", "functools")  # modules through which a call may pass


def warn_caller(message: str) -> None:
    """Issues a warning at the innermost line outside this package and Keras."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
