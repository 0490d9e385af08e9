"""Folders of static embeddings by other programs: a table with a vector for each token, and a tokenizer.

sentence-transformers stores the table as `embedding.weight`, without a config. model2vec stores it as `embeddings`, and
may share rows between tokens by a `mapping`, and scale the vectors of tokens by `weights`.
"""

import functools

import numpy as np

from ..data.text.json_files import read_json
from .tensor_files import TORCH_WEIGHTS, WEIGHTS, TensorFiles

NAMES = ("embedding.weight", "embeddings")  # of the table
OURS = "embedding.weight"


def is_static(folder):
    """Whether the first module of a folder of sentence-transformers is a static embedding."""
    return [kind.rpartition(".")[2] for kind in types_of_modules(folder)][:1] == ["StaticEmbedding"]


def types_of_modules(folder):
    """The types of the modules in a folder of sentence-transformers, "" where there is none."""
    modules = read_json(folder / "modules.json", list)
    return [str(module.get("type", "")) if isinstance(module, dict) else "" for module in modules]


def is_table(folder, config):
    """Whether a folder holds the table of another program, which has no config that describes a model.

    Args:
        config: the content of `config.json`, or None if there is none.
    """
    if config is not None:
        return config.get("model_type") == "model2vec"
    has_weights = any((folder / name).is_file() for name in (WEIGHTS, TORCH_WEIGHTS))
    return has_weights and (folder / "tokenizer.json").is_file()


def config(folder):
    """Returns the content that the config.json of a folder would have for the backbone `WordVectors`."""
    rows, width = TableFiles(folder).shape(OURS)
    return {"model_type": "word_vectors", "vocabulary_size": rows, "hidden_dim": width}


class TableFiles(TensorFiles):
    """The table of a folder, as a `TensorFiles` with one tensor under the name that we have for it."""

    def __init__(self, folder):
        super().__init__(folder)
        found = [name for name in NAMES if name in self.where]
        if not found or any(len(super(TableFiles, self).shape(name)) != 2 for name in found):
            raise ValueError(
                f"A static embedding must have a table, {' or '.join(NAMES)}, with a vector for each token. Received: "
                f"{self.folder} with {', '.join(sorted(self.where)[:5]) or 'no tensors'}."
            )
        self._stored, self._all = found[0], self.where
        self.where = {OURS: self._all[found[0]]}

    def shape(self, name):
        return self._table.shape

    def read(self, name):
        return self._table

    @functools.cached_property
    def _table(self):
        self.where, ours = self._all, self.where
        table = super().read(self._stored)
        parts = {name: super(TableFiles, self).read(name) for name in ("mapping", "weights") if name in self.where}
        self.where = ours
        if "mapping" in parts:
            rows = parts["mapping"]
            if rows.ndim != 1 or rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= len(table):
                raise ValueError(f"`mapping` in {self.folder} must number rows of a table of {len(table)} vectors.")
            table = table[rows]
        if "weights" in parts:
            if parts["weights"].shape != (len(table),):
                raise ValueError(
                    f"`weights` in {self.folder} must have one number for each of {len(table)} tokens. Received: shape "
                    f"{parts['weights'].shape}."
                )
            table = table * parts["weights"][:, None]
        return np.asarray(table, "float32")
