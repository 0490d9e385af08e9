"""Reads local files, and files in object stores by URLs such as s3://bucket/name, with the package fsspec."""

import io
import os
import re
from pathlib import Path
from typing import BinaryIO

_URL = re.compile(r"[a-z][a-z0-9+.-]+://")


def is_url(source: str | os.PathLike) -> bool:
    return isinstance(source, str) and _URL.match(source) is not None


def local_path(source: str | os.PathLike) -> Path | str:
    """Converts a source to a `Path`, unless it is a URL."""
    return source if is_url(source) else Path(source)


def opened(path: str | os.PathLike) -> BinaryIO:
    """Opens a local or remote file for reading bytes."""
    if not is_url(path):
        return open(path, "rb")
    file_system, name = _file_system(path)
    return io.BufferedReader(file_system.open(name, "rb"))


def find_files(source: str | os.PathLike) -> dict[Path | str, int]:
    """Returns {path: size in bytes} for a file, or for all files in a folder except hidden ones, in sorted order.

    The dict is empty if the path does not exist.
    """
    if is_url(source):
        file_system, root = _file_system(source)
        if not file_system.exists(root):
            return {}
        if file_system.isfile(root):
            return {source: file_system.info(root)["size"]}
        names = sorted(name for name in file_system.find(root) if not _hidden(os.path.relpath(name, root)))
        return {file_system.unstrip_protocol(name): file_system.info(name)["size"] for name in names}
    path = Path(source)
    if not path.exists():
        return {}
    if not path.is_dir():
        return {path: path.stat().st_size}
    inside = sorted(p for p in path.rglob("*") if p.is_file() and not _hidden(p.relative_to(path)))
    return {p: p.stat().st_size for p in inside}


def _hidden(path: str | Path) -> bool:
    return any(part.startswith(".") for part in Path(path).parts)


def _file_system(url: str) -> tuple:
    try:
        import fsspec

        return fsspec.core.url_to_fs(url)
    except ImportError as error:  # fsspec itself, or what it needs for this kind of URL, such as s3fs or gcsfs
        raise ImportError(
            f'{url} cannot be read: {error}. Install fsspec with: pip install "kerasbert[data]"'
        ) from None
    except ValueError as error:
        raise ValueError(f"{url} is not a URL that fsspec understands: {error}.") from None
