"""Restricts a folder to one process at a time."""

import contextlib
import errno
import json
import os
import socket
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = ".lock"
_HELD = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)  # errors of a lock that another process holds
_BEYOND = 1 << 30  # Windows locks byte ranges; this one is past the description, which must stay readable


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Context manager that locks a folder for this process. The file `.lock` in the folder names process and host.

    The operating system releases the lock whenever the process ends, so the lock file of a process that was killed is
    recognised as stale and taken over. If the folder is new and still empty at the end, it is removed.

    Raises:
        ValueError: if another process works in the folder.
    """
    folder = Path(folder)
    existed = folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    file = _acquired(folder / LOCK)
    try:
        yield
    finally:
        # Remove the file before releasing the lock: a process that has opened it sees that it is gone, and tries again.
        file.truncate(0)
        with contextlib.suppress(OSError):  # Windows cannot remove an open file, but an empty file does no harm
            (folder / LOCK).unlink(missing_ok=True)
        file.close()
        if not existed:
            with contextlib.suppress(OSError):  # the folder has files now
                folder.rmdir()


def _acquired(path: Path) -> BinaryIO:
    """Opens and locks the lock file, and writes the description of this process into it."""
    while True:
        file = open(path, "a+b")
        try:
            _lock(file)
        except OSError as error:
            if error.errno not in _HELD:
                warnings.warn(
                    f"The file system of {path.parent} has no locks ({error.strerror}). Make sure that only one "
                    "process at a time writes there.",
                    stacklevel=5,
                )
                break
            holder = _holder(file) or "another process"
            file.close()
            raise ValueError(
                f"Only one process at a time may write to {path.parent}. Received: a folder in which {holder} is "
                "working. Wait until it has ended, or use another folder."
            ) from None
        if _is_at(file, path):
            break
        file.close()  # its holder removed it after it was opened here and before it was locked
    if previous := _holder(file):
        print(f"{path.parent}: taking over from {previous}, which ended without releasing the folder", flush=True)
    file.truncate(0)
    info = {"process": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    file.write(json.dumps(info).encode())
    file.flush()
    return file


def _lock(file: BinaryIO) -> None:
    if fcntl:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    import msvcrt

    file.seek(_BEYOND)
    msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _holder(file: BinaryIO) -> str:
    """Describes the process that wrote the lock file. Returns "" for an empty file."""
    file.seek(0)
    text = file.read(1 << 12)
    if not text:
        return ""
    try:
        info = json.loads(text)
        return f"process {info['process']} on {info['host']} (since {info['since']})"
    except (ValueError, KeyError, TypeError):
        return "another process"
