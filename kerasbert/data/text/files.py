"""Files that are whole or absent: written under a temporary name, flushed, then renamed."""

import contextlib
import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A binary file that appears at `path` when the block ends well, and not at all when it does not."""
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
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
    """A UTF-8 text file that replaces the one at `path` when the block ends well; otherwise the old one stays.

    A link stays a link, and a file keeps its permissions. What is no file, such as a pipe or /dev/stdout, is written
    as it comes.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder. Name a file in it.")
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
    """Makes renames inside a folder survive a power cut, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError:  # some network file systems refuse; the data itself is flushed
        pass
    finally:
        os.close(descriptor)
