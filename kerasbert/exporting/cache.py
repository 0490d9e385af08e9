"""Writes the exports that `engine="onnx"` runs, once, into the user's cache."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import keras

from ..checkpoints.folder import ModelFolder
from ..data.text.files import own_name, remove_leftovers
from ..data.text.json_files import shortened
from ..runtime.cache import AS_LOADED, export_path
from .writing import write_export

ENGINE_FORMAT = "onnxruntime"


def cached_export(folder: Path, model_class: Any = None, overrides: dict[str, Any] | None = None) -> Path:
    """Returns the folder of a model's export for ONNX Runtime, which is written if the cache does not contain it.

    Args:
        folder: folder of the model.
        model_class: the class on which `from_preset` was called. Default: the class that the folder names.
        overrides: the other arguments of `from_preset`.
    """
    overrides = overrides or {}
    if model_class is None or _as_loaded(folder, model_class, overrides):
        model_class, overrides, described = None, {}, AS_LOADED
    else:
        try:
            described = json.dumps([model_class.__module__, model_class.__qualname__, overrides], sort_keys=True)
        except TypeError:
            raise ValueError(
                'With engine="onnx", another process exports the model, so that arguments must be values that JSON can '
                f"represent. Received: {shortened(sorted(overrides))}. Use kerasbert.export, and load the export."
            ) from None
    path = export_path(folder, described)
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


def _as_loaded(folder, model_class, overrides):
    """Whether `kerasbert.load` loads a folder as the same model."""
    name, implied = ModelFolder(folder).class_of({})
    registered = keras.saving.get_registered_name(model_class)
    return registered.removeprefix("kerasbert>") == name and overrides == implied


if __name__ == "__main__":  # a process that must not import Keras has another one write an export
    try:
        print(cached_export(Path(sys.argv[1])))
    except (ValueError, OSError, ImportError) as error:
        sys.exit(" ".join(str(error).split()))
