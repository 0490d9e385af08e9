"""The weights of a module of sentence-transformers, in a folder of its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from ...checkpoints.tensor_files import WEIGHTS, TensorFiles, write_safetensors
from ...checkpoints.weight_checks import unfit_numbers
from ...data.text.json_files import shortened


def read_tensors(folder: Path) -> dict[str, np.ndarray]:
    """Reads `model.safetensors`, or else `pytorch_model.bin`, which is never unpickled. Returns {name: array}."""
    files = TensorFiles(folder)
    return {name: files.read(name) for name in files.keys()}


def fill(
    stored: Mapping[str, tuple[Any, bool]], tensors: Mapping[str, np.ndarray], folder: Path, allow_nan: bool = False
) -> None:
    """Fills variables with tensors, which must be these and no others.

    Args:
        stored: {name of a tensor: (variable, whether it is transposed in the file)}.
        tensors: the result of `read_tensors`.
        folder: the folder that they are from, for messages.
        allow_nan: whether NaN and infinite weights are accepted.
    """
    missing, unknown = sorted({*stored} - {*tensors}), sorted({*tensors} - {*stored})
    if missing or unknown:
        what = [f"no {name}" for name in missing] + [f"also {shortened(name)}" for name in unknown[:5]]
        raise ValueError(f"The weights in {folder} must be {', '.join(stored)}. Received: {', '.join(what)}.")
    for name, (variable, transposed) in stored.items():
        array = np.transpose(tensors[name]) if transposed else tensors[name]
        if array.shape != tuple(variable.shape):
            expected = tuple(variable.shape)[:: -1 if transposed else 1]
            raise ValueError(f"{name} in {folder} must have the shape {expected}. Received: {tensors[name].shape}.")
        problem = unfit_numbers(array, variable, allow_nan)
        if problem is not None:
            raise ValueError(f"{name} in {folder} cannot be used: {problem}.")
        variable.assign(array)


def write_tensors(folder: Path, stored: Mapping[str, tuple[Any, bool]]) -> None:
    """Writes variables to the `model.safetensors` of a folder, which is created; see `fill`."""
    folder.mkdir(exist_ok=True)
    tensors = {}
    for name, (variable, transposed) in stored.items():
        array = keras.ops.convert_to_numpy(variable)
        tensors[name] = np.ascontiguousarray(array.T if transposed else array)
    write_safetensors(folder / WEIGHTS, tensors)
