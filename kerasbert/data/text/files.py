"""Writes files atomically: under a temporary name, and renamed once the file is complete and on disk."""

import contextlib
import difflib
import glob
import hashlib
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
    remove_leftovers(path, "partial")
    partial = own_name(path, "partial")
    try:
        with open(partial, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    flush_folder(path.parent)


def own_name(path: Path, ending: str) -> Path:
    """A name beside `path` that no other process uses. Hosts with a common disk may write the same file."""
    return path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.{ending}")


def remove_leftovers(path: Path, ending: str) -> None:
    """Removes files and folders with an `own_name` of a process of this host that has ended."""
    for left in path.parent.glob(f"{glob.escape(f'.{path.name}.{socket.gethostname()}.')}*.{ending}"):
        process = left.name.removesuffix(f".{ending}").rpartition(".")[2]
        if process.isdecimal() and not _is_running(int(process)):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    if os.name != "posix":
        return True  # Windows has no signal 0
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


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


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, as hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


def similar_folder(path: str | os.PathLike) -> str:
    """Returns the end of a message about a folder that does not exist: the folder beside it with the closest name."""
    path = Path(path)
    try:
        names = [other.name for other in path.parent.iterdir() if other.is_dir()]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.7)
    return f". Did you mean {path.parent / close[0]}?" if close else ""
