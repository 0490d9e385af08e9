"""Loads model folders, which `saves` writes.

A folder contains `config.json` and `model.safetensors` in the Hugging Face layout of the family, the files of the
tokenizer, and `kerasbert.json`, which holds what the layout cannot express.
"""

import contextlib
import difflib
import json
from os import PathLike
from typing import Any

from ..backend.keras_adapter import forgetting_failed_variables
from ..core.family import find_size
from ..core.initializers import zero_weights
from ..core.inputs import accepting_larger_tokenizers
from ..core.registration import ENGINES
from ..data.text.folders import folder_at, read_again
from ..data.text.json_files import shortened
from ..data.text.shipped import SHIPPED
from . import huggingface, named_adapters
from .arguments import accepting_arguments, parameters_of
from .config_checks import checked_config
from .folder import RECORD, ModelFolder, class_named, find_folder, is_any_family, is_read, opened_model
from .huggingface_config import read_config
from .weight_checks import check_sizes


def load(path: str | PathLike, **arguments: Any) -> Any:
    """Loads the model in a folder. Its files determine the class of the model.

    The class is named in `kerasbert.json`, or else by `architectures` in `config.json`. A folder of
    sentence-transformers is loaded as the embedder or the `Reranker` that its files describe. A folder with
    `generator/` and `discriminator/` is loaded as a `ReplacedTokenDetection`.

    Args:
        path: a local folder, `"hf://org/name"`, or the name of a model that comes with the package. An open
            `ModelFolder` is accepted, too.
        **arguments: see `Trainable.from_preset`. In addition, `allow_mixed=True` accepts a folder whose files were
            written by several saves, and `allow_nan=True` accepts weights that are NaN or infinite.

    Returns: a backbone, an objective or a task.

    Raises:
        FileNotFoundError: if there is no such folder or model, or a file of weights is missing.
        ValueError: if the config has unsupported fields or values, weights are missing or have other shapes, weights
            are NaN or infinite, files were written by several saves, an argument is unknown, or the folder is one of
            `SetFit`.
        ImportError: if a path on the Hub needs `huggingface_hub`, which is not installed.
        ConnectionError: if the Hub cannot be reached, and no earlier download is in the cache.

    Example:
        >>> import kerasbert
        >>> model = kerasbert.load("bert_mini_en")
        >>> type(model).__name__
        'MaskedLM'
        >>> model.fill_mask("She opened the [MASK] and went out.")[0][0]["token"]
        'door'
    """
    if not isinstance(path, ModelFolder):
        path = find_folder(path, arguments.get("revision"), arguments.get("token"))
        if (path / "config_setfit.json").is_file():
            raise ValueError(
                f"`load` does not load SetFit classifiers, which are an embedder and a linear model. Received: {path}. "
                "Use kerasbert.tasks.SetFit.from_preset, or TextEmbedder.from_preset for the embedder alone."
            )
        if not arguments.get("allow_mixed"):
            return read_again(path, is_read, lambda: load(ModelFolder(path), **arguments))
        path = ModelFolder(path)
    name, arguments = path.class_of(arguments)
    if name == "Backbone":
        return load_backbone(None, path, **arguments)
    return class_named(name, path).from_preset(path, **arguments)


def config_of(path: str | PathLike) -> tuple[type, Any]:
    """Returns (backbone class, config) of the model in a folder, without reading its weights.

    Args:
        path: a local folder, `"hf://org/name"`, or the name of a model that comes with the package.

    Raises: FileNotFoundError, ValueError: as in `load`.
    """
    folder = ModelFolder(find_folder(path))
    family = folder.backbone_class()
    return family, _config(family, folder, {}, None)


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
        family = folder.backbone_class(cls)
        saved = folder.backbone_arguments(family)
        weights = _open_weights(folder, family, load_weights, overrides)
        arguments, fields = _split(family, overrides)
        config = _config(family, folder, fields, weights)
    with zero_weights(weights.num_elements) if load_weights else contextlib.nullcontext():
        backbone = family(config, dtype=dtype, **{**saved, **arguments})
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
    arguments, fields = _split(family, overrides)
    return family(family.family.config(**{**_size_of(size), **fields}), dtype=dtype, **arguments)


@forgetting_failed_variables()
def load_trainable(cls, path, load_weights=True, dtype=None, revision=None, token=None, engine=None, **overrides):
    """Loads an objective or a task; see `Trainable.from_preset`.

    Args:
        **overrides: as there, and `allow_nan` and `allow_mixed` as in `load_backbone`.
    """
    allow_nan, allow_mixed = (overrides.pop(name, False) for name in ("allow_nan", "allow_mixed"))
    where: dict[str, Any] = dict(revision=revision, token=token, reads_discriminators=cls.reads_discriminators)
    if engine is not None:
        _check_engine(engine, path, load_weights, dtype)
        with opened_model(path, allow_mixed=True, **where) as folder:
            if folder.saved.get("export"):
                path = folder
            else:
                path, overrides = ENGINES[engine].exported(folder.path, cls, overrides), {}
    if _size_of(path) is None:
        where |= dict(allow_mixed=allow_mixed)
        return _load_folder(cls, path, where, load_weights, dtype, allow_nan, overrides)
    settings, rest = _split_settings(cls, overrides)
    family = find_size(path)
    _split(family, rest, cls)  # an error then lists the arguments of `cls`, too
    needed = _needed_fields(cls, family)
    if _takes_pooler(family):
        needed = {**needed, "pooler": cls.needs_pooler(family.family, settings)}
    return cls(load_backbone(None, path, load_weights, dtype, **{**needed, **rest}), **settings)


def _load_folder(cls, path, where, load_weights, dtype, allow_nan, overrides):
    """Loads an objective or a task from a folder: reads what its files say, builds the model, and fills it.

    Args:
        where: the other arguments of `opened_model`.
        load_weights, dtype, allow_nan, overrides: as in `load_trainable`.
    """
    settings, rest = _split_settings(cls, overrides)
    with opened_model(path, **where) as folder:  # the weights are read later, from files that are open
        outer = folder.path
        if folder.is_of_sentence_transformers:
            inside, settings = cls.open_folder(folder.path, settings)
            folder = folder if inside == folder.path else ModelFolder(inside)
        stored, export = folder.config, folder.saved.get("export")
        family = folder.backbone_class()
        arguments, options = folder.arguments_of(cls), folder.backbone_arguments(family)
        tokenizer = settings["tokenizer"] if "tokenizer" in settings else folder.tokenizer()
        weights = _open_weights(folder, family, load_weights and not export, rest)
        has_apart = cls.KEPT_APART and weights is not None and not weights.holds_all
        apart = cls.read_apart(outer) if has_apart else None
        if export:
            _check_fixed(folder, arguments, overrides)
        engine = ENGINES["onnx"].open(folder.path, folder.saved, cls) if export else None
        given, fields = _split(family, rest, cls)
        sets_pooler = _takes_pooler(family) and "pooler" not in overrides
        config = _config(family, folder, {**_needed_fields(cls, family), **fields}, weights)
    renewed = cls.head_to_renew(stored, settings)
    if weights is not None and renewed is not None:
        weights.leave_out(renewed)
    settings = cls.arguments_from_config(stored, {**arguments, **settings, "tokenizer": tokenizer})
    if sets_pooler:
        options["pooler"] = cls.needs_pooler(family.family, settings)
    with zero_weights(weights and weights.num_elements) if load_weights else contextlib.nullcontext():
        backbone = family(config, dtype=dtype, **{**options, **given})
    with accepting_arguments(cls, arguments, folder.path / RECORD), accepting_larger_tokenizers():
        model = cls(backbone, **settings)
    if weights is not None:
        huggingface.load_weights(model, weights, allow_nan)
    if has_apart:
        model.fill_apart(apart, allow_nan)
    if engine is not None:
        model.engine, backbone.has_weights = engine, False
    return model


def _open_weights(folder, family, load_weights, overrides):
    """Opens the weights of a folder, with the adapter that is removed from the overrides. None without weights."""
    adapter = overrides.pop("adapter", None)
    if load_weights:
        return folder.open_weights(family.family, adapter)
    named_adapters.refuse_adapter(adapter, f"{folder} without its weights")
    return None


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


def _split(family, overrides, cls: Any = None):
    """Splits overrides into (arguments of the backbone class, fields of its config).

    Args:
        family: the backbone class.
        overrides: the arguments that are none of `cls`.
        cls: the class of the objective or task that is loaded, for the message about an unknown argument.
    """
    settings = parameters_of(family) - {"config"} | {"name"}
    fields = set(family.family.config.__dataclass_fields__)
    unknown = set(overrides) - settings - fields
    known = {name: f"`{ours}`" for name, ours in _OTHER_NAMES.items() if name in unknown}
    if known:
        name, ours = next(iter(known.items()))
        raise ValueError(
            f"The argument `{name}` of transformers is {ours} here. Received: {name}={overrides[name]!r:.40}."
        )
    if unknown:
        own, of_class = set(), ""
        if cls is not None:
            own = parameters_of(cls) - {"backbone"}
            of_class = f"of {cls.__name__} ({', '.join(sorted(own))}), "
        close = difflib.get_close_matches(sorted(unknown)[0], sorted(own | settings | fields), n=1)
        raise ValueError(
            f"Overrides must be arguments {of_class}of {family.__name__} ({', '.join(sorted(settings))}) or fields of "
            f"its config ({', '.join(sorted(fields))}). Received: {', '.join(sorted(unknown))}."
            f"{f' Did you mean {close[0]}?' if close else ''}"
        )
    return (
        {name: value for name, value in overrides.items() if name in settings},
        {name: value for name, value in overrides.items() if name in fields},
    )


def _split_settings(cls, overrides):
    """Splits overrides into (arguments of the objective or task, other overrides)."""
    names = parameters_of(cls) - {"backbone"}
    settings = {name: value for name, value in overrides.items() if name in names}
    return settings, {name: value for name, value in overrides.items() if name not in names}


def _takes_pooler(family):
    """Whether a backbone class has the argument `pooler`."""
    return "pooler" in parameters_of(family)


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
            f"An exported model cannot be changed when it is loaded. Received: {folder} with {shortened(changed)}. "
            "Load the folder of the model that was exported with these arguments, and export it again."
        )


def _size_of(path):
    """Returns the config fields of a size if `path` is its name and not a folder, otherwise None."""
    if isinstance(path, ModelFolder) or folder_at(path).is_dir():
        return None
    cls = find_size(str(path))
    return None if cls is None else cls.family.sizes[str(path)]


def _needed_fields(cls, family):
    """Returns the config fields and values that an objective or task requires of this backbone class."""
    return family.family.needed_fields.get(cls.__name__, {})


def _config(family, folder, fields, weights):
    """Creates the config of the backbone in a folder.

    Args:
        family: the backbone class.
        folder: the `ModelFolder`.
        fields: config fields that replace the stored ones.
        weights: the `StoredWeights` of the folder, from which some fields are inferred, or None.
    """
    record, path = family.family, folder.path / "config.json"
    model_type = folder.config.get("model_type") or record.config.model_type  # early configs do not have it
    stored, of_generation = {**folder.config, "model_type": model_type}, record.huggingface.generation
    if of_generation is not None and folder.generation is not None:
        stored |= of_generation(stored, folder.generation)
    stored = read_config(record, stored, path)
    inferred = {} if weights is None else weights.config_fields
    config = checked_config(record.config, {**stored, **inferred, **fields}, path, record.huggingface.config)
    if weights is not None:
        check_sizes(config, weights)
    return config
