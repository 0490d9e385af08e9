"""Keeps the exports that `from_preset(engine="onnx")` runs."""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
from pathlib import Path

from ..checkpoints.hub import needed_files
from ..data.text.files import own_name, remove_leftovers
from ..data.text.json_files import shortened
from .writing import FORMATS, write_export

ENGINE_FORMAT = "onnxruntime"


def cached_export(folder, model_class, overrides):
    """Returns the folder of a model's export for ONNX Runtime, which is written if the cache does not contain it.

    Args:
        folder: folder of the model.
        model_class: the class on which `from_preset` was called.
        overrides: the other arguments of `from_preset`.
    """
    try:
        described = json.dumps([model_class.__module__, model_class.__qualname__, overrides], sort_keys=True)
    except TypeError:
        raise ValueError(
            'With engine="onnx", another process exports the model, so that arguments must be values that JSON can '
            f"represent. Received: {shortened(sorted(overrides))}. Use kerasbert.export, and load the export."
        ) from None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kerasbert" / "exports"
    path = cache / digest(folder, described)
    if not path.is_dir():
        remove_leftovers(path, "export")
        written = own_name(path, "export")
        write_export(written, folder, ENGINE_FORMAT, model_class, overrides=overrides)
        try:
            os.replace(written, path)
        except OSError:  # another process has written the same export in the meantime, and may already read it
            shutil.rmtree(written)
            if not path.is_dir():
                raise
    return path


def digest(folder, text):
    """Returns a hash of a text, of the files of a model, and of the versions of the packages that export it."""
    found = hashlib.sha256(text.encode())
    for name in ("kerasbert", "keras", *FORMATS[ENGINE_FORMAT][1]):
        if importlib.util.find_spec(name) is not None:
            found.update(f"{name} {importlib.metadata.version(name)}\n".encode())
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    for name in needed_files(files):
        with open(folder / name, "rb") as file:
            found.update(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return found.hexdigest()[:32]
