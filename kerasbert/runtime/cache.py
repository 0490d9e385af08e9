"""Where the exports are kept that `engine="onnx"` runs."""

import hashlib
import importlib.metadata
import importlib.util
import os
from pathlib import Path

from ..checkpoints.hub import needed_files

PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime")  # which write and run the exports
AS_LOADED = "null"  # describes the export of a model as `kerasbert.load` loads it


def export_path(folder: Path, described: str = AS_LOADED) -> Path:
    """Returns the folder in the user's cache for the export of a model, whether it exists or not.

    Args:
        folder: folder of the model.
        described: the class and the arguments with which the model is loaded, in JSON.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kerasbert" / "exports"
    return cache / digest(folder, described)


def digest(folder: Path, text: str) -> str:
    """Returns a hash of a text, of the files of a model, and of the versions of the packages that export it."""
    found = hashlib.sha256(text.encode())
    for name in ("kerasbert", "keras", *PACKAGES):
        if importlib.util.find_spec(name) is not None:
            found.update(f"{name} {importlib.metadata.version(name)}\n".encode())
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    for name in needed_files(files):
        with open(folder / name, "rb") as file:
            found.update(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return found.hexdigest()[:32]
