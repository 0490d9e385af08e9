"""Named tensors in a folder, whatever files they lie in."""

import json
import os
from pathlib import Path

import numpy as np

WEIGHTS = "model.safetensors"


class TensorFiles:
    """The tensors of a model folder by name; each is read when asked for.

    Args:
        folder: holds `model.safetensors`, or its index and shards.

    Raises: FileNotFoundError when there is no weight file; ValueError when one is damaged.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self._files = {}
        index = self.folder / f"{WEIGHTS}.index.json"
        if (self.folder / WEIGHTS).exists():
            self.where = {name: WEIGHTS for name in self._open(WEIGHTS).keys()}
        elif index.exists():
            self.where = json.loads(index.read_text())["weight_map"]
        else:
            there = sorted(entry.name for entry in self.folder.iterdir()) if self.folder.is_dir() else "no such folder"
            raise FileNotFoundError(
                f"A model folder holds {WEIGHTS} (or {index.name}). Received: {self.folder} with {there}."
            )

    def _open(self, name):
        if name not in self._files:
            import safetensors

            path = self.folder / name
            try:
                self._files[name] = safetensors.safe_open(path, framework="numpy")
            except FileNotFoundError:
                raise FileNotFoundError(f"The index names a shard that is not there: {path}.") from None
            except safetensors.SafetensorError as error:
                raise ValueError(
                    f"{path} is not a whole safetensors file ({error}). Received: {path.stat().st_size} bytes. "
                    "Copy or download it again."
                ) from None
        return self._files[name]

    def keys(self):
        return self.where.keys()

    def read(self, name):
        """The tensor as numpy; bfloat16 is widened to float32."""
        array = self._open(self.where[name]).get_tensor(name)
        return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def write_atomically(path, write):
    """Calls `write(temporary path)`, then puts the file in place; a failure leaves what was there untouched."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path, value):
    write_atomically(path, lambda temporary: temporary.write_text(json.dumps(value, indent=2) + "\n"))


def write_tensors(folder, tensors):
    """Writes `model.safetensors` with the metadata that transformers 4 asks for."""
    from safetensors.numpy import save_file

    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    write_atomically(Path(folder) / WEIGHTS, lambda path: save_file(arrays, path, metadata={"format": "pt"}))
