"""Files of vectors: .npy for dense ones, .npz for those of sparse and multi-vector embedders."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from kerasbert.data.text.files import written_whole
from kerasbert.retrieval.search import is_sparse

from ..reading.tables import no_file
from .outputs import counted


def write_vectors(path: Path, vectors: Any) -> None:
    """Writes vectors: numpy (n, m), scipy CSR (n, m), or a list of arrays (tokens, m)."""
    check_suffix(path, vectors)
    with written_whole(path) as file:
        if isinstance(vectors, np.ndarray):
            np.save(file, vectors)
        elif is_sparse(vectors):
            import scipy.sparse

            scipy.sparse.save_npz(file, vectors)
        else:
            np.savez(file, vectors=np.concatenate(vectors), lengths=np.array([len(one) for one in vectors]))


def check_suffix(path: Path, vectors: Any) -> None:
    """Raises a ValueError unless a file has the extension of the kind of vectors."""
    wanted = ".npy" if isinstance(vectors, np.ndarray) else ".npz"
    if path.suffix != wanted:
        kind = "dense" if wanted == ".npy" else "sparse" if is_sparse(vectors) else "multi-vector"
        raise ValueError(f"The output of a {kind} embedder must end in {wanted}. Received: {path}.")


def read_vectors(path: Path, count: int) -> Any:
    """Reads what `write_vectors` wrote for `count` texts.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not a file of vectors, or has vectors of another number of texts.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{no_file(path)} Write it with kerasbert embed.")
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False) if path.suffix == ".npy" else _read_archive(path)
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"Vectors must be a file that kerasbert embed wrote. Received: {path}: {error}.") from None
    number = len(found) if isinstance(found, list) else found.shape[0]
    if number != count:
        raise ValueError(
            f"Every document needs a vector. Received: {counted(count, 'document')}, and {path} with "
            f"{counted(number, 'vector')}. Write it again with kerasbert embed."
        )
    return found


def _read_archive(path: Path) -> Any:
    """Reads vectors of sparse or multi-vector embedders."""
    with path.open("rb") as file:
        stored = np.load(file, allow_pickle=False)
        if "lengths" in stored:
            return np.split(stored["vectors"], np.cumsum(stored["lengths"])[:-1])
        import scipy.sparse

        file.seek(0)
        return scipy.sparse.load_npz(file)
