"""Reads and writes the .npy files of plans, which are tables that say which tokens of a corpus make up each row."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from ..text.files import written_whole


def read_table(path: Path) -> np.ndarray | None:
    """Returns the memory-mapped table at `path`, or None if the file is missing or truncated."""
    try:
        return np.asarray(np.load(path, mmap_mode="r"))
    except (FileNotFoundError, ValueError, EOFError):
        return None


def write_table(path: Path, build: Callable[[], Iterable[np.ndarray]], dtype: np.dtype) -> np.ndarray:
    """Builds a table, writes it to `path`, and returns it memory-mapped.

    If the folder is not writable, as for the corpus of another user, nothing is written and the table is held in
    memory.
    """
    try:
        path.parent.mkdir(exist_ok=True)
        with written_whole(path) as file:
            _write_blocks(file, build(), dtype)
    except PermissionError:
        return joined_blocks(build(), dtype)
    return np.asarray(np.load(path, mmap_mode="r"))


def joined_blocks(blocks: Iterable[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """Concatenates the blocks of a table into one array."""
    return np.concatenate([block.astype(dtype) for block in blocks])


def _write_blocks(file, blocks: Iterable[np.ndarray], dtype: np.dtype) -> None:
    """Writes an .npy file whose number of entries is known only at the end."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (0, 0)}
    entries = columns = 0
    for block in blocks:
        if not columns:  # numpy leaves space in the header for the first axis to grow
            columns = block.shape[1]
            np.lib.format.write_array_header_1_0(file, {**header, "shape": (0, columns)})
        file.write(np.ascontiguousarray(block, dtype=dtype))
        entries += len(block)
    file.seek(0)
    np.lib.format.write_array_header_1_0(file, {**header, "shape": (entries, columns)})
    file.seek(0, os.SEEK_END)
