"""Finds the export of a model without importing Keras. Where there is none, another process writes it once."""

import sys
from pathlib import Path
from typing import Any

from kerasbert.checkpoints.hub import download
from kerasbert.command_line import did_you_mean
from kerasbert.data.processes import DEVNULL, PIPE, start_python
from kerasbert.data.text.json_files import read_json
from kerasbert.data.text.shipped import SHIPPED, shipped_folder
from kerasbert.runtime.cache import export_path


def find_export(model: str) -> Path:
    """Returns the folder of the export of a model: the model itself, or its export in the user's cache.

    Args:
        model: an export in ONNX, the folder of a model, the name of a shipped model, or hf://org/name.

    Raises: ValueError if the model cannot be exported. FileNotFoundError if there is no such folder.
    """
    folder = _folder(model)
    if "export" in _record(folder):
        return folder
    path = export_path(folder)
    if not path.is_dir():
        print(
            f"{model}: exporting the model for ONNX Runtime, which may take a minute. The export is kept in {path}",
            file=sys.stderr,
        )
        _export(folder)
    return path


def _folder(model):
    if model.startswith("hf://"):
        return download(model[5:])
    folder = Path(model)
    found = folder if folder.is_dir() else shipped_folder(model)
    if found is None:
        raise FileNotFoundError(
            f"There is no model {model!r}.{did_you_mean(model, SHIPPED)} A model is a folder, hf://org/name, or one "
            f"that comes with kerasbert ({', '.join(SHIPPED)})."
        )
    return found


def _record(folder):
    file = folder / "kerasbert.json"
    return read_json(file) if file.is_file() else {}


def _export(folder):
    command = "-m", "kerasbert.exporting.cache", str(folder.resolve())
    pipes: dict[str, Any] = dict(stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, text=True, encoding="utf-8")
    with start_python(
        *command, environment={"KERAS_BACKEND": "torch", "TF_CPP_MIN_LOG_LEVEL": "3"}, **pipes
    ) as process:
        _, said = process.communicate()
    if process.returncode:
        lines = said.strip().splitlines() or [f"the process ended with status {process.returncode}"]
        raise ValueError(lines[-1])
