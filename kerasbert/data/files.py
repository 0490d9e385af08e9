"""Files that are whole or absent: written under a temporary name, flushed, then renamed."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


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
