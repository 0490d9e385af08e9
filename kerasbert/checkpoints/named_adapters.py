"""Adapters that lie beside the weights in one file, one for each task, of which one can be merged into the weights.

jina-embeddings-v3 is stored in this form (Sturua et al. 2024, arXiv 2409.10173, section 4).
"""

import logging
from typing import Any

import numpy as np

from ..data.text.json_files import check_types, shortened

log = logging.getLogger("kerasbert")

_WEIGHT, _A, _B = (f".parametrizations.weight.{name}" for name in ("original", "0.lora_A", "0.lora_B"))


class AdaptedFiles:
    """The tensors of a folder that has adapters for tasks, with one adapter merged into the weights, or none.

    A weight W is stored as `NAME.parametrizations.weight.original`. Beside it are the matrices A and B of all adapters,
    `NAME.parametrizations.weight.0.lora_A` and `lora_B`, with a leading axis for the adapters. With the adapter t, the
    weight of a dense layer is W + alpha / r B[t] A[t], where B[t] is (outputs, r) and A[t] (r, inputs), and that of an
    embedding is W + alpha / r A[t] B[t], where A[t] is (rows, r) and B[t] (r, m).

    Args:
        files: the `TensorFiles`.
        config: the content of `config.json`, with the names of the adapters in their order (`lora_adaptations`), r
            (`lora_rank`) and alpha (`lora_alpha`).
        adapter: the name of the adapter, or None.
    """

    def __init__(self, files, config: dict[str, Any], adapter: str | None):
        self.files, self.folder, self.num_elements = files, files.folder, files.num_elements
        path = self.folder / "config.json"
        check_types(config, {"lora_adaptations": list[str], "lora_rank": int, "lora_alpha": float | int}, path)
        names = self.adapters = config.get("lora_adaptations") or []
        self.rank = config.get("lora_rank", 4)
        if self.rank < 1:
            raise ValueError(f"`lora_rank` in {path} must be at least 1. Received: {self.rank}.")
        if adapter is not None and adapter not in names:
            raise ValueError(
                f"`adapter` must be one of `lora_adaptations` in {path}: {', '.join(names) or 'none'}. "
                f"Received: {adapter!r}."
            )
        if adapter is None:
            log.info("%s: adapters that are not used (pass `adapter`): %s", self.folder, ", ".join(names))
        self.index = None if adapter is None else names.index(adapter)
        self.scale = np.float32(config.get("lora_alpha", 1) / self.rank)
        self._names = {
            name.removesuffix(_WEIGHT) + ".weight" if name.endswith(_WEIGHT) else name: name
            for name in files.keys()
            if not name.endswith((_A, _B))
        }

    def keys(self):
        return self._names.keys()

    def read(self, name):
        """Returns a tensor. Raises a ValueError if the matrices of its adapter do not fit it."""
        stored = self._names[name]
        weight = self.files.read(stored)
        if self.index is None or stored == name:
            return weight
        layer = stored.removesuffix(_WEIGHT)
        a, b = self._matrix(layer + _A), self._matrix(layer + _B)
        (rows, columns), shapes = (*weight.shape, 0, 0)[:2], (a.shape, b.shape)
        if shapes == ((self.rank, columns), (rows, self.rank)):
            product = b @ a
        elif shapes == ((rows, self.rank), (self.rank, columns)):
            product = a @ b
        else:
            raise ValueError(
                f"The matrices of {len(self.adapters)} adapters must fit their weight, of shape {weight.shape}, and "
                f"lora_rank={self.rank}. Received: lora_A {a.shape} and lora_B {b.shape} for {layer} in {self.folder}."
            )
        return np.asarray(weight, "float32") + self.scale * product

    def _matrix(self, name):
        """Returns the matrix of the adapter, float32, or an array of another shape if there are not all matrices."""
        array = np.asarray(self.files.read(name), "float32") if name in self.files.keys() else np.empty(0, "float32")
        return array[self.index] if len(array) == len(self.adapters) else array


def with_adapter(files, config: dict[str, Any], adapter: str | None):
    """Returns the files of a folder with an adapter merged into the weights.

    Args:
        files: the `TensorFiles`, or an object with the same methods.
        config: the content of `config.json`.
        adapter: the name of the adapter, or None.

    Raises: ValueError if there is no such adapter.
    """
    if any(name.endswith(_WEIGHT) for name in files.keys()):
        return AdaptedFiles(files, config, adapter)
    refuse_adapter(adapter, files.folder)
    return files


def refuse_adapter(adapter, folder):
    """Raises a ValueError if an adapter is requested from a folder without adapters in its file of weights."""
    if adapter is not None:
        raise ValueError(
            "`adapter` names an adapter that lies beside the weights in their file. Received: "
            f"adapter={shortened(adapter)} for {folder}, which has none."
        )
