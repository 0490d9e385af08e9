"""The BERT family in Keras 3: pretraining, fine-tuning and checkpoints on JAX, TensorFlow and PyTorch.

Keras fixes its backend when it is imported. Therefore, kerasbert selects a backend before it imports Keras:
`KERAS_BACKEND` if it is set, or else the backend in `keras.json`, or else the first of JAX, TensorFlow and PyTorch that
is installed. Without any of them, only what needs no Keras can be imported, such as `kerasbert.runtime`. The submodules
are imported on first use.
"""

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .core.registration import ENGINES, Deferred, refuse_keras, register_with_keras

__version__ = "0.3.0"

_SUBMODULES = (
    "backend",
    "checkpoints",
    "core",
    "data",
    "exporting",
    "generation",
    "layers",
    "metrics",
    "models",
    "objectives",
    "retrieval",
    "runtime",
    "tasks",
    "training",
)
__all__ = [*_SUBMODULES, "export", "load"]

_BACKENDS = ("jax", "tensorflow", "torch")

# Keras writes this content if there is no keras.json, so it is not a choice of the user.
_WRITTEN_BY_KERAS = {
    "floatx": "float32",
    "epsilon": 1e-7,
    "backend": "tensorflow",
    "image_data_format": "channels_last",
}


def _configured_backend():
    """Returns the backend that the user has selected in the environment or in keras.json, or None."""
    if os.environ.get("KERAS_BACKEND"):
        return os.environ["KERAS_BACKEND"]
    home = Path.home()
    folder = os.environ.get("KERAS_HOME", (home if os.access(home, os.W_OK) else Path("/tmp")) / ".keras")
    try:
        text = (Path(folder).expanduser() / "keras.json").read_text()
        config = json.loads(text)
    except (OSError, ValueError):
        return None
    if text == json.dumps(_WRITTEN_BY_KERAS, indent=4) or not isinstance(config, dict):
        return None
    return config.get("backend")


def _pick_backend():
    if "keras" in sys.modules:
        return
    installed = [name for name in _BACKENDS if importlib.util.find_spec(name)]
    if chosen := _configured_backend():
        if chosen not in installed:
            where = "KERAS_BACKEND" if os.environ.get("KERAS_BACKEND") else "keras.json"
            what = "which is not installed" if chosen in _BACKENDS else "which kerasbert does not support"
            refuse_keras(
                "The backend must be one of jax, tensorflow and torch, and installed. Received: "
                f"{chosen!r} from {where}, {what}. Installed: {', '.join(installed) or 'none of them'}."
            )
        return
    if installed:
        os.environ["KERAS_BACKEND"] = installed[0]
        return
    refuse_keras(
        "kerasbert needs one of JAX, TensorFlow and PyTorch. Received: an environment with none of them. "
        "Install one: pip install 'kerasbert[jax]' (or [tensorflow], [torch])."
    )


register_with_keras()
_pick_backend()
ENGINES["onnx"] = Deferred("kerasbert.exporting.onnx_engine", "OnnxEngine")


if TYPE_CHECKING:  # type checkers and editors cannot follow `__getattr__`
    from . import backend as backend
    from . import checkpoints as checkpoints
    from . import core as core
    from . import data as data
    from . import exporting as exporting
    from . import generation as generation
    from . import layers as layers
    from . import metrics as metrics
    from . import models as models
    from . import objectives as objectives
    from . import retrieval as retrieval
    from . import runtime as runtime
    from . import tasks as tasks
    from . import training as training
    from .checkpoints.presets import load as load
    from .exporting.folders import export as export


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "load":
        importlib.import_module(f"{__name__}.models")  # registers the families
        return importlib.import_module(f"{__name__}.checkpoints.presets").load
    if name == "export":
        return importlib.import_module(f"{__name__}.exporting.folders").export
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])
