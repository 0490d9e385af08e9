"""Starts Python processes that import nothing from the current folder, where files of strangers may lie."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

PACKAGE = __name__.partition(".")[0]
PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL


def start_python(*arguments: str, modules: Iterable[str] = (), environment: dict | None = None, **options: Any):
    """Starts a Python process, which imports the same packages as this one. Returns the `subprocess.Popen`.

    With `-m` and `-c`, Python puts the current folder before its standard library. `-P` prevents this, and
    PYTHONSAFEPATH does so for the processes that this one starts.

    Args:
        *arguments: the arguments of Python.
        modules: names of modules that the process must be able to import, even if this one found them in the current
            folder. Their folders come last, so that no file in them replaces a module of a package.
        environment: further environment variables.
        **options: further arguments of `subprocess.Popen`.
    """
    path = [entry for entry in sys.path if os.path.isabs(entry)]
    path += [root for root in map(root_of, (PACKAGE, *modules)) if root is not None]
    safe = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}
    command = [sys.executable, "-P", *arguments]
    return subprocess.Popen(command, env={**os.environ, **(environment or {}), **safe}, **options)


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """Context manager in which Python processes that other packages start import nothing from the current folder."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def root_of(module: str) -> str | None:
    """The folder from which a module or its package was imported, or None for a module without a file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return None
    path = Path(file).absolute()
    return str(path.parents[module.count(".") + (path.stem == "__init__")])


def end_with_parent(clean_up: Callable[[], None]) -> None:
    """Ends this process when its standard input ends, which is when the process at the other end of the pipe ends.

    Args:
        clean_up: function that is called before.
    """

    def watch():
        while os.read(0, 1 << 10):
            pass
        clean_up()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
