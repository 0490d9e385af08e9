"""From a typed function to a command line."""

import signal
import sys
from collections.abc import Callable

from kerasbert.backend import keep_programs
from kerasbert.training import RunStopped, TrainingDiverged

# Packages that commands need, with the extra of this package that brings them.
EXTRAS = {
    **dict.fromkeys(("tyro", "rich"), "pipelines"),
    **dict.fromkeys(("datasets", "pyarrow"), "data"),
    **dict.fromkeys(("rouge_score", "sacrebleu", "sklearn", "scipy"), "metrics"),
    "matplotlib": "plots",
    "keras_hub": "hub",
}


def command(function: Callable, description: str | None = None) -> None:
    """Runs a function by the arguments of the command line; mistakes of the user end in one line, not a traceback.

    Compiled programs are kept for the next time.

    Args:
        function: its arguments have types, and their descriptions stand in its docstring.
        description: what --help begins with. Default: the docstring's first lines.
    """
    try:
        import tyro

        keep_programs()
        tyro.cli(function, description=description)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            sys.exit(f"{type(error).__name__}: {error}")
        sys.exit(f'This needs the package {package}. Install it with: pip install "kerasbert[{EXTRAS[package]}]"')
    except (ValueError, OSError, ImportError, TrainingDiverged) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except RunStopped as stopped:  # it has said how to continue
        sys.exit(0 if stopped.reason == "time" else 128 + getattr(signal, stopped.reason))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
