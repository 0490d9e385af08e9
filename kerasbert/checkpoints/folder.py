"""A model folder: its JSON files, each of which is opened once."""

import dataclasses
import functools
import os
import typing
from pathlib import Path

from ..data.text.files import digest_of
from ..data.text.json_files import check_types, read_json
from . import huggingface, keras_hub, quantized
from .config_checks import check_config_file
from .tensor_files import EXTRA_WEIGHTS, WEIGHTS, TensorFiles, save_ids

RECORD = "kerasbert.json"


@dataclasses.dataclass(frozen=True)
class Content:
    """The fields of a `kerasbert.json`.

    `class_name` is stored as "class". It is the name under which the class is registered with Keras, without the prefix
    "kerasbert>".
    """

    class_name: str | None = None
    backbone_class: str | None = None
    backbone: dict | None = None
    arguments: dict | None = None
    quantization: dict | None = None
    save: dict | None = None  # id of the save, and digests of the small files
    export: dict | None = None  # describes the program of an export, which has no weights


class ModelFolder(os.PathLike):
    """What the files of a model folder say. Each file is read and checked when it is first needed, and kept.

    It can be passed to `from_preset` in place of the path.

    Args:
        path: the folder.
    """

    def __init__(self, path):
        self.path = Path(path)

    def __fspath__(self):
        return str(self.path)

    def __str__(self):
        return str(self.path)

    def __repr__(self):
        return repr(self.path)

    @functools.cached_property
    def record(self):
        """The content of `kerasbert.json`, even if another program has saved a model here since; {} without one."""
        path = self.path / RECORD
        if not path.is_file():
            return {}
        content, hints = read_json(path), typing.get_type_hints(Content)
        check_types(content, {"class": hints.pop("class_name"), **hints}, path)
        check_types(content.get("save") or {}, {"id": str, "files": dict[str, str]}, path)
        return content

    @functools.cached_property
    def saved(self):
        """The content of `kerasbert.json` if it belongs to the model in this folder, otherwise {}."""
        return {} if self._is_superseded() else self.record

    @functools.cached_property
    def config(self):
        """The content of `config.json` in the Hugging Face layout, to which presets of KerasHub are converted."""
        if keras_hub.is_preset(self._config_file):
            return keras_hub.as_huggingface(self._config_file, self.path / "config.json")
        check_config_file(self._config_file, self.path / "config.json")
        return self._config_file

    @functools.cached_property
    def save_ids(self):
        """{name of a file of weights: the id of its save, or None}."""
        return save_ids(self.path)

    @functools.cached_property
    def class_name(self):
        """The name of the model's class: the saved one, or one that the files of the folder imply, or None."""
        return self.saved.get("class") or self._class_by_files()

    def digest(self, name):
        """Returns the SHA-256 of a file."""
        return self._digests.get(name) or self._digests.setdefault(name, digest_of(self.path / name))

    def part(self, name):
        """Returns the model folder that is a subfolder of this one."""
        return ModelFolder(self.path / name)

    def open_weights(self, family):
        """Opens the weights. Returns an object with the methods of `huggingface.StoredWeights`.

        Args:
            family: the `Family` of the backbone.
        """
        if self.saved.get("quantization") is not None:
            return quantized.QuantizedWeights(family, self.path, self.saved["quantization"])
        if keras_hub.is_preset(self._config_file):
            return huggingface.StoredWeights(family, keras_hub.PresetFiles(self.path, self._config_file))
        return huggingface.StoredWeights(family, TensorFiles(self.path))

    @functools.cached_property
    def _digests(self):
        return {}

    @functools.cached_property
    def _config_file(self):
        path = self.path / "config.json"
        if not path.is_file():
            run = self.path / "model"
            inside = f" Use {run}." if (run / "config.json").is_file() else ""
            raise FileNotFoundError(f"A model folder must contain config.json. Received: {self} without it.{inside}")
        return read_json(path)

    def _is_superseded(self):
        """Whether another program has written both the config and the weights since `kerasbert.json` was written."""
        files = (self.record.get("save") or {}).get("files") or {}
        if "config.json" not in files or not (self.path / "config.json").is_file():
            return False
        if self.digest("config.json") == files["config.json"]:
            return False
        ids = [save_id for name, save_id in self.save_ids.items() if name != EXTRA_WEIGHTS]
        return bool(ids) and not any(ids)

    def _class_by_files(self):
        if all((self.path / name).is_dir() for name in ("generator", "discriminator")):
            if not (self.path / WEIGHTS).is_file():
                return "ReplacedTokenDetection"
        settings = self.path / "config_sentence_transformers.json"
        if settings.is_file() and read_json(settings).get("model_type") == "CrossEncoder":
            return None  # the architecture is that of a classifier
        return "TextEmbedder" if (self.path / "modules.json").exists() else None


def read_saved(folder):
    """Returns the content of the `kerasbert.json` of the model in a folder, or {} if there is none."""
    return ModelFolder(folder).saved
