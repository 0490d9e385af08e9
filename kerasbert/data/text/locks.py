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
WAIT = 0.02  # seconds between two attempts
_HELD = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)  # errors of a lock that another process holds
_BEYOND = 1 << 30  # Windows locks byte ranges; this one is past the description, which must stay readable


@contextlib.contextmanager
def locked(folder: Path, name: str = LOCK, wait: bool = False) -> Iterator[bool]:
    """Context manager that locks a folder for this process. A file in the folder names process and host.

    The operating system releases the lock whenever the process ends, so the lock file of a process that was killed is
    recognized as stale and taken over. Folders that are created here and still empty at the end are removed. The value
    is False if the file system has no locks.

    Args:
        folder: a folder, created if it does not exist.
        name: name of the file.
        wait: whether to wait until no other process has the lock.

    Raises:
        ValueError: if another process works in the folder, and `wait` is False.
    """
    folder = Path(folder)
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    file, held = _acquired(folder / name, wait)
    try:
        yield held
    finally:
        # Remove the file before releasing the lock: a process that has opened it sees that it is gone, and tries again.
        file.truncate(0)
        with contextlib.suppress(OSError):  # Windows cannot remove an open file, but an empty file does no harm
            (folder / name).unlink(missing_ok=True)
        file.close()
        with contextlib.suppress(OSError):  # the folder has files now
            for path in created:
                path.rmdir()


def _acquired(path: Path, wait: bool) -> tuple[BinaryIO, bool]:
    """Opens and locks the lock file, and writes the description of this process into it.

    Returns: (the file, whether it is locked). It is not if the file system has no locks.
    """
    held = True
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)  # the process that created the folder may have removed it
        file = open(path, "a+b")
        try:
            _lock(file)
        except OSError as error:
            if error.errno not in _HELD:
                held = False
                if not wait:
                    warnings.warn(
                        f"The file system of {path.parent} has no locks ({error.strerror}). Make sure that only one "
                        "process at a time writes there.",
                        stacklevel=5,
                    )
                break
            if wait:
                file.close()
                time.sleep(WAIT)
                continue
            holder = _holder(file) or "another process"
            file.close()
            raise ValueError(
                f"Only one process at a time may write to {path.parent}. Received: a folder in which {holder} is "
                "working. Wait until it has ended, or use another folder."
            ) from None
        if _is_at(file, path):
            break
        file.close()  # its holder removed it after it was opened here and before it was locked
    if not wait and (previous := _holder(file)):
        print(f"{path.parent}: taking over from {previous}, which ended without releasing the folder", flush=True)
    file.truncate(0)
    info = {"process": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    file.write(json.dumps(info).encode())
    file.flush()
    return file, held


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
