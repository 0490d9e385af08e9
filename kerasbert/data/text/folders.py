"""Replaces several files of a folder together: a reader finds the earlier files, the new ones, or an error."""

import contextlib
import contextvars
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from .files import flush_folder
from .locks import locked

STAGED = ".saving."  # start of the names of folders with files that are not in place yet
LOCK = ".saving.lock"
ATTEMPTS, PAUSE = 6, 0.05  # times that files are read while they are replaced, and seconds in between


def folder_at(path: Any) -> Path:
    """Returns the folder that a user names, which an empty str does not: `Path("")` is the current folder."""
    if not isinstance(path, (str, os.PathLike)) or not str(path):
        raise ValueError(
            f'A folder must be a str or a path, and not empty. Received: {path!r:.60}. Use "." for the current folder.'
        )
    return Path(path)


@contextlib.contextmanager
def replaced_together(
    folder: str | Path, last: str = "config.json", stale: Callable[[set[str]], Iterable[str]] | None = None
) -> Iterator[Path]:
    """Yields an empty folder. Its files replace those of `folder` if the block ends without an error.

    First the files that are replaced are moved away, beginning with `last`, without which nothing loads the folder.
    Then the new files are moved into place, `last` at the end. If a file cannot be moved, those before are moved back.
    If the process ends in between, `check_finished` refuses the folder. Processes that replace files of the same folder
    wait for each other, and remove what processes that were killed have left.

    Args:
        folder: a folder, created if it does not exist. A link to a folder stays a link.
        last: name of the file that completes the folder. In subfolders, files of this name come last, too.
        stale: function from the names of the new files to the names of further files that are removed. Names are
            relative paths with slashes.
    """
    folder = Path(os.path.realpath(folder))
    with locked(folder, LOCK, wait=True) as alone:
        left = list(folder.glob(f"{STAGED}*/")) if alone else []
        for path in left:
            if not _is_unfinished(path):
                shutil.rmtree(path, ignore_errors=True)
        staged = Path(tempfile.mkdtemp(prefix=STAGED, dir=folder))
        try:
            new = staged / "new"
            new.mkdir()
            yield new
            names = sorted(_names_in(new), key=lambda name: (name.rpartition("/")[2] == last, -name.count("/"), name))
            gone = {name for name in (stale(set(names)) if stale else ()) if (folder / name).is_file()}
            _move(folder, staged, names, sorted(gone - set(names)))
            flush_folder(folder)
        except BaseException:
            if not _is_unfinished(staged):
                shutil.rmtree(staged, ignore_errors=True)
            raise
        for path in (staged, *left):
            shutil.rmtree(path, ignore_errors=True)


def _names_in(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()]


def _move(folder: Path, staged: Path, names: list[str], stale: list[str]) -> None:
    """Moves files of `folder` to `staged/old` and those of `staged/new` into place, or in case of an error nothing."""
    old, new, done = staged / "old", staged / "new", []
    away = [name for name in (*reversed(names), *stale) if os.path.lexists(folder / name)]
    moves = [(folder / name, old / name) for name in away] + [(new / name, folder / name) for name in names]
    old.mkdir()
    try:
        for source, target in moves:
            target.parent.mkdir(parents=True, exist_ok=True)
            done.append((source, target))
            os.replace(source, target)
    except BaseException:
        for source, target in reversed(done):
            with contextlib.suppress(OSError):  # the folder is refused if it cannot be restored
                if not os.path.lexists(source):
                    os.replace(target, source)
        if not _names_in(old):
            shutil.rmtree(old)
        raise
    for name in stale:
        with contextlib.suppress(OSError):  # the folder has other files
            for parent in Path(name).parents[:-1]:
                (folder / parent).rmdir()


def _is_unfinished(staged: Path) -> bool:
    """Whether files of a staged folder, but not all of them, are in place."""
    return (staged / "old").is_dir() and bool(_names_in(staged / "new"))


class BeingReplaced(ValueError):
    """The files of a folder are being replaced, or this was interrupted."""


def check_finished(folder: str | Path) -> None:
    """Raises `BeingReplaced` if not all files of a folder are in place."""
    if any(map(_is_unfinished, Path(folder).glob(f"{STAGED}*/"))):
        raise BeingReplaced(
            f"The files of a folder must all be in place. Received: {folder}, into which another process is saving "
            "now, or in which a save was interrupted. Wait, or save again."
        )


# {folder: the state of its files that `read_again` found}
_expected: contextvars.ContextVar[dict] = contextvars.ContextVar("expected")


@contextlib.contextmanager
def read_together(folder: str | Path, is_read: Callable[[str], bool]) -> Iterator[None]:
    """Context manager that raises `BeingReplaced` if files are not all in place, or are replaced during the block.

    Args:
        folder: the folder whose files the block reads, or opens.
        is_read: function that returns whether a file, given by its name, belongs to those that are read.
    """
    check_finished(folder)
    before = _state(folder, is_read)
    failed = None
    known = _expected.get({}).get(Path(folder))
    if known is not None and {name: state for name, state in known.items() if is_read(name)} != before:
        raise _replaced(folder)
    try:
        yield
    except Exception as error:
        failed = error
    if _state(folder, is_read) != before:
        raise _replaced(folder) from failed
    if failed is not None:
        raise failed


def read_again(folder: Path, is_read: Callable[[str], bool], load: Callable[[], Any]) -> Any:
    """Returns the result of `load`, which is called again if files are replaced while it reads them, a few times.

    Within `load`, `read_together` also notices whether files have been replaced since the beginning.

    Args:
        folder, is_read: as for `read_together`.
        load: function without arguments.
    """
    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            check_finished(folder)
            before = _state(folder, is_read)
            token = _expected.set({**_expected.get({}), folder: before})
            try:
                return load()
            except Exception as error:
                if isinstance(error, BeingReplaced) or _state(folder, is_read) == before:
                    raise
                raise _replaced(folder) from error
            finally:
                _expected.reset(token)
        except BeingReplaced:
            if not attempts_left:
                raise
            time.sleep(PAUSE)


def _replaced(folder: str | Path) -> BeingReplaced:
    return BeingReplaced(
        f"Files must not change while they are read. Received: {folder}, into which another process has saved in the "
        "meantime. Load it again."
    )


def _state(folder: str | Path, is_read: Callable[[str], bool]) -> dict[str, tuple]:
    """What tells the files of a folder from those that replace them."""
    found = {}
    for entry in os.scandir(folder) if os.path.isdir(folder) else ():
        if is_read(entry.name):
            with contextlib.suppress(OSError):
                status = entry.stat()
                found[entry.name] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found
