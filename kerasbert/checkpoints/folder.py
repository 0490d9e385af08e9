"""A model folder: where it is, what its files say, which classes they name, and whether they are of one save.

The metadata of every `.safetensors` file has the random id of the save. `kerasbert.json` has it, too, with digests of
the small files. Weights without an id were written by another program, which is never an error.
"""

import contextlib
import dataclasses
import difflib
import functools
import logging
import os
import re
import typing
from pathlib import Path
from typing import Any

import keras

from ..core.family import FAMILIES, model_type_of, size_names
from ..core.registration import Deferred
from ..data.text import shipped
from ..data.text.files import digest_of, similar_folder
from ..data.text.folders import folder_at, read_together
from ..data.text.json_files import check_types, read_json, shortened
from ..data.text.shipped import ONLY_IN_CLONES, SHIPPED, SHIPPED_FOLDERS
from ..data.tokenizers.tokenizer import Tokenizer
from ..data.tokenizers.writing import TOKENIZER_FILES
from . import huggingface, keras_hub, named_adapters, quantized, static_tables
from .arguments import check_arguments, parameters_of
from .config_checks import check_config_file
from .hub import download
from .tensor_files import EXTRA_WEIGHTS, WEIGHTS, TensorFiles, conversion, save_ids
from .with_heads import WithHeads

RECORD = "kerasbert.json"
GENERATION = "generation_config.json"
PARTS = ("generator", "discriminator")  # models in subfolders
# Files that a model may have, and that loading it here, in `evaluate` or in transformers reads. A save removes those
# that it does not write, because they describe the model that was in the folder before.
_REPLACED = re.compile(
    r"config\.json|kerasbert\.(json|safetensors)|model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json"
    r"|modules\.json|sentence_bert_config\.json|config_sentence_transformers\.json|router_config\.json"
    r"|config_setfit\.json|model_head\.(safetensors|json|pkl)|generation_config\.json|recipe\.json|"
    + "|".join(map(re.escape, TOKENIZER_FILES))
)
# {organization on the Hub: the names that its models had before the Hub had organizations}.
_PUBLISHED = {
    "google-bert": r"bert-(base|large)-[\w-]+",
    "FacebookAI": r"(xlm-)?roberta-[\w-]+|xlm-(mlm|clm)-[\w-]+",
    "distilbert": r"distil(bert|roberta)-[\w-]+|distilgpt2",
    "albert": r"albert-[\w-]+",
    "openai-community": r"gpt2(-\w+)?|openai-gpt",
    "google-t5": r"t5-\w+",
    "xlnet": r"xlnet-[\w-]+",
    "transfo-xl": r"transfo-xl-\w+",
}
_RECORDS_OF_PARTS = [f"{name}/{RECORD}" for name in PARTS]
# The files of the modules of sentence-transformers, which are in folders of their own.
_MODULE = re.compile(r"((query|document)_)?\d+_\w+/(config\.json|model\.safetensors)")

# `model_type` of a folder of sentence-transformers or PyLate, or architecture -> class here.
_CLASSES = {
    "CrossEncoder": "Reranker",
    "MultiVectorEncoder": "MultiVectorEmbedder",
    "ColBERT": "MultiVectorEmbedder",
    "HF_ColBERT": "MultiVectorEmbedder",
    "SparseEncoder": "SparseEmbedder",
}
# Keys in the config of a cross-encoder, in the layouts before version 6 of sentence-transformers.
_OF_CROSS_ENCODERS = ("sentence_transformers", "sbert_ce_default_activation_function")

logger = logging.getLogger(__name__)

# === Where it is ===


def shipped_folder(name: str) -> Path | None:
    """Returns the folder of a model that comes with the package or its repository, or None if there is none."""
    return shipped.shipped_folder(name, SHIPPED_FOLDERS)


def find_folder(path: str | os.PathLike, revision: str | None = None, token: str | None = None) -> Path:
    """Returns the local folder of a model, which is downloaded if necessary.

    Args:
        path: a local folder, `"hf://org/name"`, or the name of a model that comes with the package.
        revision: branch, tag or commit on the Hugging Face Hub.
        token: access token for the Hub.

    Raises: FileNotFoundError if there is no such folder. ImportError if `huggingface_hub` is needed but not installed.
    """
    folder_at(path)  # refuses what is no path
    if str(path).startswith("hf://"):
        return download(str(path)[5:], revision, token)
    if not Path(path).is_dir():
        if Path(path).name != str(path):
            hub = f". For a model on the hub, use hf://{path}" if re.fullmatch(r"[\w.-]+/[\w.-]+", str(path)) else ""
            raise FileNotFoundError(f"There is no folder {path}{similar_folder(path) or hub}")
        found = shipped_folder(str(path))
        if found is not None:
            return found
        known = ", ".join(filter(shipped_folder, SHIPPED + ONLY_IN_CLONES)) or f"{', '.join(SHIPPED)}, missing here"
        if str(path) in size_names():
            near = difflib.get_close_matches(str(path), SHIPPED + ONLY_IN_CLONES, n=1, cutoff=0.8)
            raise FileNotFoundError(
                f"{str(path)!r} is a size, which has no weights. A model is a folder, hf://org/name, or one that comes "
                f"with kerasbert ({known}). `from_preset({str(path)!r}, load_weights=False)` of a class creates one "
                f"with random weights.{f' Did you mean {near[0]}?' if near else ''}"
            )
        close = difflib.get_close_matches(str(path), [*SHIPPED, *ONLY_IN_CLONES, *size_names()], n=1)
        owner = next((owner for owner, names in _PUBLISHED.items() if re.fullmatch(names, str(path))), None)
        close = close if owner is None else [f"hf://{owner}/{path}"]
        raise FileNotFoundError(
            f"There is no model {str(path)!r}.{f' Did you mean {close[0]}?' if close else ''} A model is a folder, "
            f"hf://org/name, or one that comes with kerasbert ({known}). A size, such as bert_base, has no weights."
        )
    return Path(path)


# === Its files ===


def is_replaced(name: str) -> bool:
    """Whether a save of a model replaces or removes a file, given by its name."""
    return _REPLACED.fullmatch(name) is not None


def is_read(name: str) -> bool:
    """Whether a file in a model's folder, given by its name, is replaced by saves, or has weights of other programs."""
    return is_replaced(name) or name.startswith(("pytorch_model", "model."))


def has_digest(name: str) -> bool:
    """Whether `kerasbert.json` has a digest of a file, given by its name."""
    if _MODULE.fullmatch(name) or name in _RECORDS_OF_PARTS:
        return True
    return is_replaced(name) and name != RECORD and not name.endswith(".safetensors")


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
        return {**self._config_file, "model_type": self._model_type()}

    def _model_type(self):
        """The model type by which the family is known here, or None if the config says neither it nor a known class."""
        stored = self._config_file
        if stored.get("model_type") is None:
            return model_type_of((stored.get("architectures") or [None])[0])
        found = FAMILIES.get(stored["model_type"])
        shared = None if found is None else found.family.huggingface.shared_type
        return stored["model_type"] if shared is None else shared(stored)

    @functools.cached_property
    def generation(self):
        """The content of `generation_config.json`, or None if there is none."""
        path = self.path / GENERATION
        return read_json(path) if path.is_file() else None

    @functools.cached_property
    def save_ids(self):
        """{name of a file of weights: the id of its save, or None}."""
        return save_ids(self.path)

    @functools.cached_property
    def class_name(self):
        """The name of the model's class: the saved one, or one that the files of the folder imply, or None."""
        return self.saved.get("class") or self._class_by_files()

    def class_of(self, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Returns (name of the class of the model, arguments with those that the name implies).

        Args:
            arguments: {name: value}, the arguments of the caller.
        """
        if self.class_name is not None:
            return self.class_name, arguments
        family, stated = self.backbone_class(), self.config.get("architectures") or []
        names = family.family.huggingface.classes_of(self.config["model_type"])
        known = [names[architecture] for architecture in stated if architecture in names]
        if not known:
            logger.warning(
                "%s has `architectures` %s, which name no class of %s: loaded as a backbone without a head",
                *(self.path / "config.json", stated, family.__name__),
            )
        name, _, options = (known or ["Backbone"])[0].partition(" with ")
        return name, {options: True, **arguments} if options and name != "Backbone" else arguments

    def backbone_class(self, cls: Any = None) -> Any:
        """Returns the class of the backbone, given the class on which `from_preset` was called, or None for any.

        Raises: ValueError if the folder belongs to another family.
        """
        model_type = self.config.get("model_type")
        if model_type is None and not is_any_family(cls):  # missing in early configs; the class determines it
            model_type = cls.family.config.model_type
        if model_type not in FAMILIES:
            raise ValueError(
                f"`model_type` of {self.path / 'config.json'} must be one of {', '.join(sorted(FAMILIES))}. "
                f"Received: {shortened(model_type)}."
                + (" Early configs do not have it: add it to the file." if model_type is None else "")
            )
        found = FAMILIES[model_type]
        if is_any_family(cls):  # the saved class may be a subclass of that of the family
            name = self.saved.get("backbone_class")
            return found if name is None else class_named(name, self, found)
        if not (issubclass(found, cls) or issubclass(cls, found)):
            raise ValueError(
                f"{cls.__name__}.from_preset needs a folder of its family. Received: {self} with model_type "
                f"{model_type!r}. Use {found.__name__} or Backbone."
            )
        return cls

    def backbone_arguments(self, family: type) -> dict[str, Any]:
        """Returns the saved constructor arguments of the backbone, which is of the class `family`."""
        saved = self.saved.get("backbone") or {}
        check_arguments(family, saved, self.path / RECORD)
        return {name: value for name, value in saved.items() if name in parameters_of(family) - {"config"}}

    def arguments_of(self, cls: Any) -> dict[str, Any]:
        """Returns the constructor arguments of a model of class `cls` that the files state, without `config.json`."""
        found = self._saved_arguments(cls)
        if self.generation is None:
            return found
        return found | cls.arguments_from_generation(self.generation, self.path / GENERATION)

    def _saved_arguments(self, cls: Any) -> dict[str, Any]:
        """Returns the saved constructor arguments of a model of class `cls`, and {} if the model is of another class.

        Labels that differ in `config.json` were edited there, where other programs read them.
        """
        if self.saved.get("class") != keras.saving.get_registered_name(cls).removeprefix("kerasbert>"):
            return {}
        arguments = self.saved.get("arguments") or {}
        unknown = sorted(set(arguments) - (parameters_of(cls) - {"backbone"}))
        cls.check_saved(arguments, self.path / RECORD)
        if unknown:
            raise ValueError(
                f"`arguments` in {self.path / RECORD} must be those of {cls.__name__}. Received: {shortened(unknown)}. "
                "Was it written by another version of kerasbert?"
            )
        labels, names = arguments.get("labels"), self.config.get("id2label") or {}
        names = [names[key] for key in sorted(names, key=int)]
        if isinstance(labels, list) and names and list(map(str, names)) != list(map(str, labels)):
            arguments = {**arguments, "labels": names}
        return arguments

    def tokenizer(self) -> Tokenizer | None:
        """Returns the tokenizer, or None if there are no tokenizer files."""
        try:
            return Tokenizer.load(self.path)
        except FileNotFoundError:
            return None

    def digest(self, name):
        """Returns the SHA-256 of a file."""
        return self._digests.get(name) or self._digests.setdefault(name, digest_of(self.path / name))

    def part(self, name):
        """Returns the model folder that is a subfolder of this one."""
        return ModelFolder(self.path / name)

    def open_weights(self, family, adapter=None):
        """Opens the weights. Returns an object with the methods of `huggingface.StoredWeights`.

        Args:
            family: the `Family` of the backbone.
            adapter: name of an adapter in the file, which is merged into the weights, or None.
        """
        if self.saved.get("quantization") is not None:
            named_adapters.refuse_adapter(adapter, self)
            return quantized.QuantizedWeights(family, self.path, self.saved["quantization"])
        if keras_hub.is_preset(self._config_file):
            files = keras_hub.PresetFiles(self.path, self._config_file)
        else:
            files = (static_tables.TableFiles if self._is_table else TensorFiles)(self.path)
        return huggingface.StoredWeights(family, named_adapters.with_adapter(files, self.config, adapter))

    @property
    def is_of_sentence_transformers(self):
        """Whether the folder has the files of sentence-transformers, or is one of Stanford's ColBERT."""
        names = ("modules.json", "config_sentence_transformers.json")
        if any((self.path / name).exists() for name in names):
            return True
        return (self._config_file.get("architectures") or [None])[0] == "HF_ColBERT"

    @functools.cached_property
    def _digests(self):
        return {}

    @functools.cached_property
    def _config_file(self):
        if self._is_table:
            return static_tables.config(self.path)
        if self.stated_config is None:
            run = self.path / "model"
            inside = f" Use {run}." if (run / "config.json").is_file() else conversion(self.path)
            raise FileNotFoundError(f"A model folder must contain config.json. Received: {self} without it.{inside}")
        return self.stated_config

    @functools.cached_property
    def stated_config(self):
        """The content of `config.json` as it is in the file, or None if there is none."""
        path = self.path / "config.json"
        return read_json(path) if path.is_file() else None

    @functools.cached_property
    def _is_table(self):
        return static_tables.is_table(self.path, self.stated_config)

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
        model_type = read_json(settings).get("model_type") if settings.is_file() else None
        if model_type in _CLASSES:
            return _CLASSES[model_type]
        if (self.path / "modules.json").exists():
            if any(kind.startswith("pylate.") for kind in static_tables.types_of_modules(self.path)):
                return "MultiVectorEmbedder"
            return "StaticEmbedder" if static_tables.is_static(self.path) else "TextEmbedder"
        if not (self.path / "config.json").is_file():
            return None
        if any(self._config_file.get(key) is not None for key in _OF_CROSS_ENCODERS):
            return "Reranker"
        return _CLASSES.get((self.config.get("architectures") or [None])[0])


def read_saved(folder):
    """Returns the content of the `kerasbert.json` of the model in a folder, or {} if there is none."""
    return ModelFolder(folder).saved


# === Its classes ===


def is_any_family(cls: Any) -> bool:
    """Whether `cls` accepts several families: None, `Backbone`, or another base class without a `Family` record."""
    return cls is None or cls.family is None


def class_named(name: str, folder: ModelFolder | Path, base: type | None = None) -> Any:
    """Returns the class that is registered with Keras under a name.

    Args:
        name: the registered name, in which "kerasbert>" may be omitted.
        folder: the folder that contains the name, for messages.
        base: a backbone class that must be a base class of the result. None: the result must be an objective or a task.
    """
    cls = keras.saving.get_registered_object(name if ">" in name else f"kerasbert>{name}")
    if isinstance(cls, Deferred):
        cls = cls.resolve()
    if base is None:
        fits = isinstance(cls, type) and issubclass(cls, WithHeads)
    else:
        fits = isinstance(cls, type) and issubclass(cls, base)
    if not fits:
        what = "an objective or task" if base is None else f"a subclass of {base.__name__}"
        raise ValueError(
            f"{folder} must contain {what} that is registered with Keras. Received: {shortened(name)}. "
            "If it is your class, import it first; other versions of kerasbert may have other classes."
        )
    return cls


# === One save ===


@contextlib.contextmanager
def one_save(folder, allow_mixed=False):
    """Context manager in which the files of a model are opened. Raises a ValueError unless they belong to one save.

    If another program has changed files, one line says so: users edit labels, and transformers writes models.

    Args:
        folder: a `ModelFolder`.
        allow_mixed: whether files of several saves are accepted.
    """
    if allow_mixed:
        yield
        return
    with read_together(folder.path, is_read):
        changed = _changed_files(folder)
        if changed:
            logger.warning(
                f"{folder} was changed by another program since the model was saved: {', '.join(changed)}. This is "
                f"used as it is now. To save it with the model: kerasbert.load({str(folder)!r}).save_to_preset("
                f"{str(folder)!r})"
            )
        yield


@contextlib.contextmanager
def opened_model(path, revision=None, token=None, allow_mixed=False, reads_discriminators=True):
    """Context manager that yields the `ModelFolder` of a model, inside which its files are opened; see `one_save`.

    Args:
        path: a `ModelFolder`, or what `find_folder` takes, with `revision` and `token`. If the folder holds a generator
            and a discriminator, the discriminator is opened.
        allow_mixed: whether files of several saves are accepted.
        reads_discriminators: whether any discriminator can be opened, or only one that predicts tokens.
    """
    folder = path if isinstance(path, ModelFolder) else ModelFolder(find_folder(path, revision, token))
    with contextlib.nullcontext() if allow_mixed else read_together(folder.path, is_read):
        model = folder.part("discriminator") if folder.class_name == "ReplacedTokenDetection" else folder
        if model is not folder and not reads_discriminators and model.saved.get("class") != "MaskedLM":
            raise ValueError(
                f"A MaskedLM needs a folder that predicts tokens. Received: {path}, which holds a generator and a "
                f"discriminator. Use {path}/generator, or {path}/discriminator for its weights with a new head."
            )
        with one_save(model, allow_mixed):
            yield model


def _changed_files(folder):
    """Returns the names of files that another program has changed. Raises a ValueError for files of another save."""
    record = folder.record.get("save") or {}
    _check_ids(folder, record.get("id"), folder.save_ids)
    changed = [name for name, save_id in folder.save_ids.items() if record and save_id is None]
    for name, digest in (record.get("files") or {}).items():
        path = folder.path / name
        if has_digest(name) and path.is_file() and folder.digest(name) != digest:
            if name in _RECORDS_OF_PARTS:
                raise ValueError(_mixed(folder, f"{path.parent.name}/ is of another one"))
            changed.append(name)
    return changed


def _check_ids(folder, expected, ids):
    """Raises a ValueError unless the weights in a folder belong to one save, and to that of its `kerasbert.json`.

    Args:
        folder: folder of the model.
        expected: the id in `kerasbert.json`, or None.
        ids: {name of a file of weights: its id, or None}.
    """
    ours = {name: save_id for name, save_id in ids.items() if save_id is not None}
    wrong = [name for name, save_id in ours.items() if save_id != (expected or next(iter(ours.values())))]
    if wrong:
        raise ValueError(_mixed(folder, f"{wrong[0]} is of another one{'' if expected is None else f' than {RECORD}'}"))
    shards = {name: save_id for name, save_id in ids.items() if name.startswith("model-")}
    if len(set(shards.values())) > 1:
        other = next(name for name, save_id in shards.items() if save_id is None)
        raise ValueError(_mixed(folder, f"{other} is of another one than the other shards"))


def _mixed(folder, what):
    return (
        f"All files of a model folder must be of one save. Received: {folder}, of which {what}: files of two models "
        f"were mixed, or a save was interrupted. Save the model again. To use the folder as it is: "
        f"kerasbert.load({str(folder)!r}, allow_mixed=True)."
    )
