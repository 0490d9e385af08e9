"""Runs a typed function as a command-line program."""

import signal
import sys
from collections.abc import Callable

from kerasbert.backend import keep_programs
from kerasbert.training import RunStopped, TrainingDiverged

# Packages that commands need -> the extra of kerasbert that installs them.
EXTRAS = {
    **dict.fromkeys(("tyro", "rich"), "pipelines"),
    **dict.fromkeys(("datasets", "pyarrow"), "data"),
    **dict.fromkeys(("rouge_score", "sacrebleu", "sklearn", "scipy"), "metrics"),
    "matplotlib": "plots",
    "keras_hub": "hub",
}


def command(function: Callable, description: str | None = None) -> None:
    """Runs a function with the arguments of the command line; user errors print one line instead of a traceback.

    Compiled programs are cached for the next run.

    Args:
        function: function with typed arguments that are described in its docstring.
        description: start of the --help text. Default: the first lines of the docstring.
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
    except RunStopped as stopped:  # a message on how to continue has been printed
        sys.exit(0 if stopped.reason == "time" else 128 + getattr(signal, stopped.reason))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
