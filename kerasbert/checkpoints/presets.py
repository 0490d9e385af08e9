"""Loads model folders, which `saves` writes.

A folder contains `config.json` and `model.safetensors` in the Hugging Face layout of the family, the files of the
tokenizer, and `kerasbert.json`, which holds what the layout cannot express.
"""

import contextlib
from os import PathLike
from pathlib import Path
from typing import Any

from ..backend.keras_adapter import forgetting_failed_variables
from ..core.family import find_size
from ..core.initializers import zero_weights
from ..core.inputs import accepting_larger_tokenizers
from ..core.registration import ENGINES
from ..data.text.folders import read_again
from ..data.tokenizers.tokenizer import Tokenizer
from . import huggingface
from .arguments import accepting_arguments
from .classes import class_named, class_of, family_class, is_any_family
from .config_checks import checked_config
from .folder import ModelFolder
from .folders import SHIPPED, find_folder
from .huggingface_config import read_config
from .overrides import (
    backbone_arguments,
    check_engine,
    check_fixed,
    own_arguments,
    split,
    split_settings,
    takes_pooler,
)
from .saves import is_read, opened_model
from .weight_checks import check_sizes


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
    path = find_folder(path, arguments.get("revision"), arguments.get("token"))
    if arguments.get("allow_mixed"):
        return _load(ModelFolder(path), arguments)
    return read_again(path, is_read, lambda: _load(ModelFolder(path), arguments))


def _load(folder, arguments):
    name, arguments = class_of(folder, arguments)
    if name == "Backbone":
        return load_backbone(None, folder, **arguments)
    return class_named(name, folder).from_preset(folder, **arguments)


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
    if _size_of(path) is not None:
        return _new_backbone(cls, path, load_weights, dtype, overrides)
    with opened_model(path, revision, token, allow_mixed) as folder:  # the weights are read later, from open files
        stored = folder.config
        if stored.get("model_type") is None:  # missing in early configs; the class determines it
            stored = {**stored, "model_type": None if is_any_family(cls) else cls.family.config.model_type}
        family = family_class(cls, stored, folder)
        arguments, fields = split(family, {**backbone_arguments(family, folder), **overrides})
        weights = folder.open_weights(family.family) if load_weights else None
        config = _config(family, stored, fields, weights, folder)
    with zero_weights(weights.num_elements) if load_weights else contextlib.nullcontext():
        backbone = family(config, dtype=dtype, **arguments)
    if load_weights:
        huggingface.load_weights(backbone, weights, allow_nan)
    return backbone


def _new_backbone(cls, size, load_weights, dtype, overrides):
    """Creates a backbone in a size of the paper, with random weights."""
    family = find_size(size)
    if not is_any_family(cls):
        if not (issubclass(family, cls) or issubclass(cls, family)):
            raise ValueError(
                f"{cls.__name__}.from_preset needs a size of its family. Received: {size!r}, a size of "
                f"{family.__name__}. Use {family.__name__}.from_preset({size!r}, load_weights=False)."
            )
        family = cls
    if load_weights:
        raise ValueError(
            f"{size!r} is a size of the paper, without weights. Use {family.__name__}.from_preset({size!r}, "
            "load_weights=False) for random ones, a folder, hf://org/name, or a model that comes with kerasbert: "
            f"{', '.join(SHIPPED)}."
        )
    arguments, fields = split(family, overrides)
    return family(family.family.config(**{**_size_of(size), **fields}), dtype=dtype, **arguments)


@forgetting_failed_variables()
def load_trainable(cls, path, load_weights=True, dtype=None, revision=None, token=None, engine=None, **overrides):
    """Loads an objective or a task; see `Trainable.from_preset`.

    Args:
        **overrides: as there, and `allow_nan` and `allow_mixed` as in `load_backbone`.
    """
    allow_nan, allow_mixed = (overrides.pop(name, False) for name in ("allow_nan", "allow_mixed"))
    where = dict(revision=revision, token=token, reads_discriminators=cls.reads_discriminators)
    if engine is not None:
        check_engine(engine, path, load_weights, dtype)
        with opened_model(path, allow_mixed=True, **where) as folder:
            if folder.saved.get("export"):
                path = folder
            else:
                path, overrides = ENGINES[engine].exported(folder.path, cls, overrides), {}
    if _size_of(path) is not None:
        settings, rest = split_settings(cls, overrides)
        family = find_size(path)
        needed = _needed_fields(cls, family)
        if takes_pooler(family):
            needed = {**needed, "pooler": cls.needs_pooler(family.family, settings)}
        return cls(load_backbone(None, path, load_weights, dtype, **{**needed, **rest}), **settings)
    with contextlib.ExitStack() as reading:
        folder = reading.enter_context(opened_model(path, allow_mixed=allow_mixed, **where))
        return _load_folder(cls, folder, load_weights, dtype, allow_nan, overrides, reading)


def _load_folder(cls, folder, load_weights, dtype, allow_nan, overrides, reading):
    """Loads an objective or a task from a `ModelFolder`. `reading` is closed when all files have been opened."""
    settings, rest = split_settings(cls, overrides)
    path, settings = cls.open_folder(folder.path, settings)
    folder = folder if path == folder.path else ModelFolder(path)
    family = family_class(None, folder.config, folder)
    renewed = cls.head_to_renew(folder.config, settings)
    arguments, export = own_arguments(cls, folder), folder.saved.get("export")
    settings = {**arguments, **settings}
    if export:
        check_fixed(folder, arguments, overrides)
    settings = cls.arguments_from_config(folder.config, settings)
    if "tokenizer" not in settings:
        settings["tokenizer"] = load_tokenizer(folder)
    rest = {**backbone_arguments(family, folder), **_needed_fields(cls, family), **rest}
    if takes_pooler(family) and "pooler" not in overrides:
        rest["pooler"] = cls.needs_pooler(family.family, settings)
    options, fields = split(family, rest)
    engine = ENGINES["onnx"].open(folder.path, folder.saved, cls) if export else None
    weights = folder.open_weights(family.family) if load_weights and engine is None else None
    if weights is not None and renewed is not None:
        weights.leave_out(renewed)
    config = _config(family, folder.config, fields, weights, folder)
    reading.close()  # the weights are read later, from files that are open
    with zero_weights(weights and weights.num_elements) if load_weights else contextlib.nullcontext():
        backbone = family(config, dtype=dtype, **options)
    with accepting_arguments(cls, arguments, folder.path / "kerasbert.json"), accepting_larger_tokenizers():
        model = cls(backbone, **settings)
    if weights is not None:
        huggingface.load_weights(model, weights, allow_nan)
    if engine is not None:
        model.engine, backbone.has_weights = engine, False
    return model


def load_tokenizer(folder):
    """Returns the tokenizer in a folder, or None if it contains no tokenizer files."""
    try:
        return Tokenizer.load(folder)
    except FileNotFoundError:
        return None


def _size_of(path):
    """Returns the config fields of a size if `path` is its name and not a folder, otherwise None."""
    cls = find_size(str(path))
    return None if cls is None or Path(path).is_dir() else cls.family.sizes[str(path)]


def _needed_fields(cls, family):
    """Returns the config fields and values that an objective or task requires of this backbone class."""
    return family.family.needed_fields.get(cls.__name__, {})


def _config(family, stored, fields, weights, folder):
    """Creates the config of the backbone in a folder.

    Args:
        family: the backbone class.
        stored: the content of `config.json`.
        fields: config fields that replace the stored ones.
        weights: the `StoredWeights` of the folder, from which some fields are inferred, or None.
        folder: the `ModelFolder`.
    """
    record, path = family.family, folder.path / "config.json"
    inferred = {} if weights is None else weights.config_fields
    values = {**read_config(record, stored, path), **inferred, **fields}
    config = checked_config(record.config, values, path, record.huggingface.config)
    if weights is not None:
        check_sizes(config, weights)
    return config
