"""Files of checkpoints, which are written to a temporary name, flushed, renamed, and checked when they are read."""

import json
import os
import shutil
import zlib
from pathlib import Path

import safetensors
import safetensors.numpy

from ..backend.sharded_arrays import ShardedArrays, all_finite
from .run_state import check_equal, is_finite, stable_name

ERRORS = (OSError, ValueError, KeyError, safetensors.SafetensorError)  # of files that are damaged
SHARDED = "orbax"


class ShardedStates:
    """Checkpoint states whose arrays are divided among devices, in a folder such as `step_00001000` beside the record.

    `ShardedArrays` writes the arrays while the next steps are computed. The record is written when they are complete.

    Args:
        folder: the folder of the checkpoints.
    """

    def __init__(self, folder):
        self.folder, self._arrays = folder.absolute() if is_local(folder) else folder, ShardedArrays()

    def path(self, step):
        return self.folder / f"step_{step:08d}"

    def save(self, step, variables, finished):
        """Starts writing variables; see `ShardedArrays.save`."""
        named = {stable_name(key): variable for key, variable in variables.items()}
        self._arrays.save(self.path(step), named, finished)

    def wait(self):
        """Waits until nothing is being written."""
        self._arrays.wait()

    def load(self, step, variables):
        """Reads the arrays of a step by name, divided in the same way as the variables. Metrics become numpy arrays."""
        named = {stable_name(key): variable for key, variable in variables.items()}
        stored = self._arrays.described(self.path(step))
        check_equal({name: x for name, x in stored.items() if not name.startswith("metrics/")}, named, self.path(step))
        return self._arrays.load(self.path(step), stored, named)


def not_finite(variables, state):
    """Returns the names of the variables that contain a value that is not finite.

    Args:
        variables: {name: variable}.
        state: {name: numpy array} of the same variables, or None if they are divided among devices.
    """
    return all_finite(variables) if state is None else [key for key, x in state.items() if not is_finite(x)]


def is_local(path):
    """Whether a path is in a file system, rather than in an object store."""
    return isinstance(path, Path)


def remove_folder(path):
    """Removes a folder with its content, from a file system or an object store."""
    if is_local(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.rmtree()


def read_arrays(path, record):
    """Reads {name: array} from a safetensors file, after comparing its length and checksum with its record."""
    expected, found = {key: record[key] for key in ("bytes", "crc32")}, fingerprint(path)
    if found != expected:
        raise ValueError(f"expected {expected}, found {found}.")
    return safetensors.numpy.load_file(path)


def fingerprint(path):
    """Length and checksum of a file, read in chunks of 16 MB."""
    checksum = 0
    with open(path, "rb") as file:
        while piece := file.read(1 << 24):
            checksum = zlib.crc32(piece, checksum)
        return {"bytes": file.tell(), "crc32": checksum}


def publish(temporary, path):
    """Renames a finished file to `path` once its bytes have reached the disk."""
    _flush(temporary)
    os.replace(temporary, path)
    if os.name == "posix":
        _flush(path.parent)


def _flush(path):
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def plain(recipe):
    """Converts `recipe` to JSON and back, which turns tuples into lists."""
    try:
        return json.loads(json.dumps(recipe))
    except (TypeError, ValueError) as error:
        raise ValueError(f"`recipe` must be a JSON-serializable dict ({error}). Received: {recipe!r}.") from None


def differing_fields(recipe, other):
    """Lists the fields in which two recipes differ, one per line. `here` is the run's recipe, `there` the folder's."""
    here, there = dict(_fields(recipe)), dict(_fields(other))
    return [
        f"  {name}: {there.get(name, 'absent')} in the folder, {here.get(name, 'absent')} now"
        for name in sorted(here.keys() | there.keys())
        if here.get(name, "absent") != there.get(name, "absent")
    ]


def _fields(recipe, prefix=""):
    """Yields (dotted name, value) for every leaf, such as ("optimizer.learning_rate", 0.001)."""
    for name, value in recipe.items():
        if isinstance(value, dict):
            yield from _fields(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
