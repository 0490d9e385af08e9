"""From a typed function to a command line."""

import sys
from collections.abc import Callable

import tyro

from kerasbert.training import TrainingDiverged


def command(function: Callable) -> None:
    """Runs a function by the arguments of the command line; mistakes of the user end in one line, not a traceback."""
    try:
        tyro.cli(function)
    except (ValueError, OSError, ImportError, TrainingDiverged) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted")
