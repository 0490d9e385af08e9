"""From a typed function to a command line."""

import sys
from collections.abc import Callable

import tyro

from kerasbert.backend import keep_programs
from kerasbert.training import TrainingDiverged


def command(function: Callable, description: str | None = None) -> None:
    """Runs a function by the arguments of the command line; mistakes of the user end in one line, not a traceback.

    Compiled programs are kept for the next time.

    Args:
        function: its arguments have types, and their descriptions stand in its docstring.
        description: what --help begins with. Default: the docstring's first lines.
    """
    keep_programs()
    try:
        tyro.cli(function, description=description)
    except (ValueError, OSError, ImportError, TrainingDiverged) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted")
