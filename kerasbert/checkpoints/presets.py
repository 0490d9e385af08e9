"""Loads model folders, which `saves` writes.

A folder contains `config.json` and `model.safetensors` in the Hugging Face layout of the family, the files of the
tokenizer, and `kerasbert.json`, which holds what the layout cannot express.
"""

import contextlib
import inspect
import json
from os import PathLike
from pathlib import Path
from typing import Any

import keras

from ..backend.keras_adapter import forgetting_failed_variables
from ..core.family import FAMILIES, find_size
from ..core.initializers import zero_weights
from ..core.inputs import accepting_larger_tokenizers
from ..core.registration import ENGINES, Deferred
from ..data.text.folders import read_again
from ..data.text.json_files import read_json, shortened
from ..data.tokenizers.tokenizer import Tokenizer
from . import huggingface, keras_hub, quantized
from .fields import (
    accepting_arguments,
    check_arguments,
    check_config_file,
    checked_config,
)
from .fields import read_saved as _saved
from .folders import SHIPPED, find_folder
from .huggingface_config import read_config
from .saves import is_read, one_save
from .tensor_files import WEIGHTS, TensorFiles
from .weight_checks import check_sizes

# === Opening a folder ===


def _find_model(cls, path, revision, token):
    """Returns the local folder of a model of class `cls`; see `find_folder`.

    If the folder contains a generator and a discriminator, it is the subfolder of the discriminator.
    """
    folder = find_folder(path, revision, token)
    if (_saved(folder).get("class") or _class_by_files(folder)) != "ReplacedTokenDetection":
        return folder
    if cls.__name__ == "MaskedLM" and _saved(folder / "discriminator").get("class") != "MaskedLM":
        raise ValueError(
            f"A MaskedLM needs a folder that predicts tokens. Received: {path}, which holds a generator and a "
            f"discriminator. Use {path}/generator, or {path}/discriminator for its weights with a new head."
        )
    return folder / "discriminator"


def _opened(folder):
    """Returns (content of `config.json` in the Hugging Face layout, function that opens the weights) of a folder.

    Presets of KerasHub are converted to the Hugging Face layout.
    """
    path = folder / "config.json"
    if not path.is_file():
        inside = f" Use {folder / 'model'}." if (folder / "model" / "config.json").is_file() else ""  # a run
        raise FileNotFoundError(f"A model folder must contain config.json. Received: {folder} without it.{inside}")
    stored = read_json(path)
    if keras_hub.is_preset(stored):
        return keras_hub.as_huggingface(stored, path), lambda: keras_hub.PresetFiles(folder, stored)
    check_config_file(stored, path)
    return stored, lambda: TensorFiles(folder)


def _family_class(cls, stored, folder):
    """Returns the backbone class for a folder, given the class on which `from_preset` was called, or None.

    Raises a ValueError if the folder belongs to another family.
    """
    model_type = stored.get("model_type")
    if model_type not in FAMILIES:
        raise ValueError(
            f"`model_type` of {folder / 'config.json'} must be one of {', '.join(sorted(FAMILIES))}. "
            f"Received: {shortened(model_type)}."
            + (" Early configs do not have it: add it to the file." if model_type is None else "")
        )
    found = FAMILIES[model_type]
    if _is_any_family(cls):
        return _saved_class(folder, found)
    if not (issubclass(found, cls) or issubclass(cls, found)):
        raise ValueError(
            f"{cls.__name__}.from_preset needs a folder of its family. Received: {folder} with model_type "
            f"{model_type!r}. Use {found.__name__} or Backbone."
        )
    return cls


def _is_any_family(cls):
    """Whether `cls` accepts several families: None, `Backbone`, or another base class without a `Family` record."""
    return cls is None or cls.family is None


def _saved_class(folder, found):
    """Returns the class of the saved backbone, which may be a subclass of `found`, the class of its family."""
    name = _saved(folder).get("backbone_class")
    return found if name is None else _class_named(name, folder, found)


# === Loading ===


@forgetting_failed_variables()
def load_backbone(
    cls,
    path,
    load_weights=True,
    dtype=None,
    revision=None,
    token=None,
    allow_nan=False,
    allow_mixed=False,
    **overrides,
):
    """Loads a backbone; see `Backbone.from_preset`.

    Args:
        allow_nan: whether weights that are NaN or infinite are accepted.
        allow_mixed: whether files of several saves are accepted.
    """
    sized = _sized(path)
    if sized is not None:
        family, size = sized
        if not _is_any_family(cls):
            if not (issubclass(family, cls) or issubclass(cls, family)):
                raise ValueError(
                    f"{cls.__name__}.from_preset needs a size of its family. Received: {path!r}, a size of "
                    f"{family.__name__}. Use {family.__name__}.from_preset({path!r}, load_weights=False)."
                )
            family = cls
        if load_weights:
            raise ValueError(
                f"{path!r} is a size of the paper, without weights. Use {family.__name__}.from_preset({path!r}, "
                "load_weights=False) for random ones, a folder, hf://org/name, or a model that comes with kerasbert: "
                f"{', '.join(SHIPPED)}."
            )
        arguments, fields = _split(family, overrides)
        return family(family.family.config(**{**size, **fields}), dtype=dtype, **arguments)
    folder = _find_model(cls, path, revision, token)
    with one_save(folder, allow_mixed):  # the weights are read later, from files that are open
        stored, open_files = _opened(folder)
        if stored.get("model_type") is None:  # missing in early configs; the class determines it
            stored["model_type"] = None if _is_any_family(cls) else cls.family.config.model_type
        family = _family_class(cls, stored, folder)
        arguments, fields = _split(family, {**_saved_arguments(family, folder), **overrides})
        weights = _stored_weights(family.family, folder, open_files) if load_weights else None
        config = _config(family, stored, fields, weights, folder)
    with zero_weights(weights.num_elements) if load_weights else contextlib.nullcontext():
        backbone = family(config, dtype=dtype, **arguments)
    if load_weights:
        huggingface.load_weights(backbone, weights, allow_nan)
    return backbone


@forgetting_failed_variables()
def load_trainable(cls, path, load_weights=True, dtype=None, revision=None, token=None, engine=None, **overrides):
    """Loads an objective or a task; see `Trainable.from_preset`.

    Args:
        **overrides: as there, and `allow_nan` and `allow_mixed` as in `load_backbone`.
    """
    allow_nan, allow_mixed = (overrides.pop(name, False) for name in ("allow_nan", "allow_mixed"))
    if engine is not None:
        _check_engine(engine, path, load_weights, dtype)
        path = _find_model(cls, path, revision, token)
        if not _saved(path).get("export"):
            path, overrides = ENGINES[engine].exported(path, cls, overrides), {}
    if _sized(path) is not None:
        settings, rest = _split_settings(cls, overrides)
        family = _sized(path)[0]
        needed = _needed_fields(cls, family)
        if _takes_pooler(family):
            needed = {**needed, "pooler": cls.needs_pooler(family.family, settings)}
        return cls(load_backbone(None, path, load_weights, dtype, **{**needed, **rest}), **settings)
    folder = _find_model(cls, path, revision, token)
    with contextlib.ExitStack() as reading:
        reading.enter_context(one_save(folder, allow_mixed))
        return _load_folder(cls, folder, load_weights, dtype, allow_nan, overrides, reading)


def _check_engine(engine, path, load_weights, dtype):
    """Raises a ValueError unless `from_preset` can load a model with an engine."""
    if engine not in ENGINES:
        raise ValueError(f"`engine` must be {', '.join(map(json.dumps, ENGINES))} or None. Received: {engine!r}.")
    if find_size(str(path)) is not None or not load_weights:
        raise ValueError(f"`engine` needs the folder of a model, with its weights. Received: {path!r} without weights.")
    if dtype not in (None, "float32"):
        raise ValueError(f'engine="{engine}" computes in float32. Received: dtype={dtype!r}. Omit it.')


def _check_fixed(folder, arguments, overrides):
    """Raises a ValueError for arguments that differ from those of the model that was exported."""
    changed = {n: v for n, v in overrides.items() if n not in ("name", "tokenizer") and arguments.get(n) != v}
    if changed:
        raise ValueError(
            f"The program of an export is fixed. Received: {folder}, which is an export, with {shortened(changed)}. "
            "Load the folder of the model that was exported with these arguments, and export it again."
        )


def _load_folder(cls, folder, load_weights, dtype, allow_nan, overrides, reading):
    """Loads an objective or a task from a local folder. `reading` is closed when all files have been opened."""
    settings, rest = _split_settings(cls, overrides)
    folder, settings = cls.open_folder(folder, settings)
    stored, open_files = _opened(folder)
    family = _family_class(None, stored, folder)
    saved, renewed = _saved(folder), cls.head_to_renew(stored, settings)
    arguments = _own_arguments(cls, saved, stored, folder)
    settings = {**arguments, **settings}
    if saved.get("export"):
        _check_fixed(folder, arguments, overrides)
    settings = cls.arguments_from_config(stored, settings)
    if "tokenizer" not in settings:
        settings["tokenizer"] = load_tokenizer(folder)
    rest = {**_saved_arguments(family, folder), **_needed_fields(cls, family), **rest}
    if _takes_pooler(family) and "pooler" not in overrides:
        rest["pooler"] = cls.needs_pooler(family.family, settings)
    options, fields = _split(family, rest)
    engine = ENGINES["onnx"].open(folder, saved, cls) if saved.get("export") else None
    weights = _stored_weights(family.family, folder, open_files) if load_weights and engine is None else None
    if weights is not None and renewed is not None:
        weights.leave_out(renewed)
    config = _config(family, stored, fields, weights, folder)
    reading.close()  # the weights are read later, from files that are open
    with zero_weights(weights and weights.num_elements) if load_weights else contextlib.nullcontext():
        backbone = family(config, dtype=dtype, **options)
    with accepting_arguments(cls, arguments, folder / "kerasbert.json"), accepting_larger_tokenizers():
        model = cls(backbone, **settings)
    if weights is not None:
        huggingface.load_weights(model, weights, allow_nan)
    if engine is not None:
        model.engine, backbone.has_weights = engine, False
    return model


def _own_arguments(cls, saved, stored, folder):
    """Returns the arguments in `kerasbert.json` of a model of class `cls`, and {} for models of other classes.

    Labels that differ in `config.json` were edited there, where other programs read them.
    """
    if saved.get("class") != keras.saving.get_registered_name(cls).removeprefix("kerasbert>"):
        return {}
    arguments = cls.current_arguments(saved.get("arguments") or {})
    unknown = sorted(_split_settings(cls, arguments)[1])
    check_arguments(cls, arguments, folder / "kerasbert.json")
    if unknown:
        raise ValueError(
            f"`arguments` in {folder / 'kerasbert.json'} must be those of {cls.__name__}. Received: "
            f"{shortened(unknown)}. Was it written by another version of kerasbert?"
        )
    labels, names = arguments.get("labels"), stored.get("id2label") or {}
    names = [names[key] for key in sorted(names, key=int)]
    if isinstance(labels, list) and names and list(map(str, names)) != list(map(str, labels)):
        arguments = {**arguments, "labels": names}
    return arguments


def load(path: str | PathLike, **arguments: Any) -> Any:
    """Loads the model in a folder. Its files determine the class of the model.

    The class is named in `kerasbert.json`, or else by `architectures` in `config.json`. A folder with `modules.json` is
    loaded as a `TextEmbedder` (sentence-transformers), unless it is that of a cross-encoder, and a folder with
    `generator/` and `discriminator/` as a `ReplacedTokenDetection`.

    Args:
        path: a local folder, `"hf://org/name"`, or the name of a model that comes with the package.
        **arguments: see `Trainable.from_preset`. With `allow_mixed=True`, a folder is loaded even if its files were
            written by several saves; with `allow_nan=True`, even if weights are NaN or infinite.

    Returns: a backbone, an objective or a task.
    """
    folder = find_folder(path, arguments.get("revision"), arguments.get("token"))
    if arguments.get("allow_mixed"):
        return _load(folder, arguments)
    return read_again(folder, is_read, lambda: _load(folder, arguments))


def _load(folder, arguments):
    name, arguments = _class_of(folder, arguments)
    if name == "Backbone":
        return load_backbone(None, folder, **arguments)
    return _class_named(name, folder).from_preset(folder, **arguments)


def _class_of(folder, arguments):
    """Returns (name of the class of the model in a folder, arguments with those that the name implies)."""
    name = _saved(folder).get("class") or _class_by_files(folder)
    if name is not None:
        return name, arguments
    stored, _ = _opened(folder)
    family = _family_class(None, stored, folder)
    architecture = (stored.get("architectures") or [None])[0]
    classes = family.family.huggingface.of_type("classes", stored["model_type"])
    names = {theirs: ours for ours, theirs in classes.items()}  # the last class if several have the same name
    name = names.get(architecture, "Backbone")
    name, _, options = name.partition(" with ")
    return name, {options: True, **arguments} if options and name != "Backbone" else arguments


def _class_named(name, folder, base=None):
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
        fits = isinstance(cls, type) and hasattr(cls, "trains_backbone")
    else:
        fits = isinstance(cls, type) and issubclass(cls, base)
    if not fits:
        what = "an objective or task" if base is None else f"a subclass of {base.__name__}"
        raise ValueError(
            f"{folder} must contain {what} that is registered with Keras. Received: {shortened(name)}. "
            "If it is your class, import it first; other versions of kerasbert may have other classes."
        )
    return cls


def _class_by_files(folder):
    """Infers the class name from the files in a folder. Returns None if they do not determine it."""
    halves = [(folder / name).is_dir() for name in ("generator", "discriminator")]
    if all(halves) and not (folder / WEIGHTS).is_file():
        return "ReplacedTokenDetection"
    settings = folder / "config_sentence_transformers.json"
    if settings.is_file() and read_json(settings).get("model_type") == "CrossEncoder":
        return None  # the architecture is that of a classifier
    return "TextEmbedder" if (folder / "modules.json").exists() else None


def load_tokenizer(folder):
    """Returns the tokenizer in a folder, or None if it contains no tokenizer files."""
    try:
        return Tokenizer.load(folder)
    except FileNotFoundError:
        return None


def _sized(path):
    """Returns (backbone class, config fields) if `path` is the name of a size and not a folder, otherwise None."""
    cls = find_size(str(path))
    return None if cls is None or Path(path).is_dir() else (cls, cls.family.sizes[str(path)])


def _takes_pooler(family):
    return "pooler" in inspect.signature(family.__init__).parameters


def _saved_arguments(family, folder):
    """Returns the constructor arguments of a backbone that are stored in its folder."""
    saved = _saved(folder).get("backbone") or {}
    check_arguments(family, saved, folder / "kerasbert.json")
    return {name: value for name, value in saved.items() if name in inspect.signature(family.__init__).parameters}


def _split_settings(cls, overrides):
    """Splits overrides into (arguments of the objective or task, other overrides)."""
    names = set(inspect.signature(cls.__init__).parameters) - {"self", "backbone", "kwargs"}
    settings = {name: value for name, value in overrides.items() if name in names}
    return settings, {name: value for name, value in overrides.items() if name not in names}


# {name in transformers: name of the same argument here}
_OTHER_NAMES = {
    **dict.fromkeys(("num_labels", "id2label", "label2id"), "labels"),
    **dict.fromkeys(("torch_dtype",), "dtype"),
    **dict.fromkeys(("max_seq_length", "model_max_length", "max_position_embeddings"), "max_length"),
    "problem_type": "problem",
    "num_hidden_layers": "num_layers",
    "hidden_size": "hidden_dim",
    "num_attention_heads": "num_heads",
    "intermediate_size": "feed_forward_dim",
    "vocab_size": "vocabulary_size",
    "hidden_dropout_prob": "dropout",
    "add_pooling_layer": "pooler",
}


def _split(family, overrides):
    """Splits overrides into (arguments of the backbone class, fields of its config)."""
    settings = set(inspect.signature(family.__init__).parameters) - {"self", "config", "kwargs"} | {"name"}
    fields = set(family.family.config.__dataclass_fields__)
    unknown = set(overrides) - settings - fields
    known = {name: f"`{ours}`" for name, ours in _OTHER_NAMES.items() if name in unknown}
    if known:
        name, ours = next(iter(known.items()))
        raise ValueError(
            f"The argument `{name}` of transformers is {ours} here. Received: {name}={overrides[name]!r:.40}."
        )
    if unknown:
        raise ValueError(
            f"Overrides must be arguments of {family.__name__} ({', '.join(sorted(settings))}) or fields of its config "
            f"({', '.join(sorted(fields))}). Received: {', '.join(sorted(unknown))}."
        )
    return (
        {name: value for name, value in overrides.items() if name in settings},
        {name: value for name, value in overrides.items() if name in fields},
    )


def _needed_fields(cls, family):
    """Returns the config fields and values that an objective or task requires of this backbone class."""
    return family.family.needed_fields.get(cls.__name__, {})


def _stored_weights(family, folder, open_files):
    """Returns the weights of a folder. `open_files` opens them if the folder has the Hugging Face layout."""
    quantised = _saved(folder).get("quantization")
    if quantised is not None:
        return quantized.QuantizedWeights(family, folder, quantised)
    return huggingface.StoredWeights(family, open_files())


def _config(family, stored, fields, weights, folder):
    """Creates the config of the backbone in a folder.

    Args:
        family: the backbone class.
        stored: the content of `config.json`.
        fields: config fields that replace the stored ones.
        weights: the `StoredWeights` of the folder, from which some fields are inferred, or None.
        folder: the folder.
    """
    record, path = family.family, folder / "config.json"
    inferred = {} if weights is None else weights.config_fields
    values = {**read_config(record, stored, path), **inferred, **fields}
    config = checked_config(record.config, values, path, record.huggingface.config)
    if weights is not None:
        check_sizes(config, weights)
    return config
