"""Writes files atomically: under a temporary name, and renamed once the file is complete and on disk."""

import contextlib
import io
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """Opens a binary file that appears at `path` only if the block ends without an error."""
    path = Path(path)
    # Hosts with a common disk may write the same file, such as a plan.
    partial = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.partial")
    try:
        with open(partial, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    flush_folder(path.parent)


@contextlib.contextmanager
def text_written_whole(path: str | Path) -> Iterator[TextIO]:
    """Opens a UTF-8 text file that replaces the one at `path` only if the block ends without an error.

    A link stays a link, and an existing file keeps its permissions. A path that is not a regular file, such as a pipe
    or /dev/stdout, is written to directly.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder. Pass the path of a file in it.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {target.parent} for {target.name}. Create it first.")
    if target.exists() and not target.is_file():
        with open(target, "w", encoding="utf-8") as stream:
            yield stream
        return
    with written_whole(target) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="\n")
        yield text
        text.flush()
        text.detach()
        if target.exists():
            shutil.copymode(target, file.name)


def write_text(path: Path, text: str) -> None:
    with written_whole(path) as file:
        file.write(text.encode("utf-8"))


def flush_folder(folder: Path) -> None:
    """Flushes a folder to disk, so that renamed files survive a power failure, if the system supports this."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError:  # not supported by some network file systems; the content of the files is on disk anyway
        pass
    finally:
        os.close(descriptor)
