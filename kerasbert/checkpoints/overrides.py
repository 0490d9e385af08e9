"""The arguments of `from_preset`: which of them a model, its backbone and the config take, and what folders save."""

import inspect
import json

import keras

from ..core.family import find_size
from ..core.registration import ENGINES
from ..data.text.json_files import shortened
from .arguments import check_arguments

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


def split(family, overrides):
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


def split_settings(cls, overrides):
    """Splits overrides into (arguments of the objective or task, other overrides)."""
    names = set(inspect.signature(cls.__init__).parameters) - {"self", "backbone", "kwargs"}
    settings = {name: value for name, value in overrides.items() if name in names}
    return settings, {name: value for name, value in overrides.items() if name not in names}


def takes_pooler(family):
    """Whether a backbone class has the argument `pooler`."""
    return "pooler" in inspect.signature(family.__init__).parameters


def backbone_arguments(family, folder):
    """Returns the constructor arguments of a backbone that are saved in its `ModelFolder`."""
    saved = folder.saved.get("backbone") or {}
    check_arguments(family, saved, folder.path / "kerasbert.json")
    return {name: value for name, value in saved.items() if name in inspect.signature(family.__init__).parameters}


def own_arguments(cls, folder):
    """Returns the arguments that a `ModelFolder` saves for a model of class `cls`, and {} for models of other classes.

    Labels that differ in `config.json` were edited there, where other programs read them.
    """
    if folder.saved.get("class") != keras.saving.get_registered_name(cls).removeprefix("kerasbert>"):
        return {}
    arguments, path = folder.saved.get("arguments") or {}, folder.path / "kerasbert.json"
    unknown = sorted(split_settings(cls, arguments)[1])
    cls.check_saved(arguments, path)
    if unknown:
        raise ValueError(
            f"`arguments` in {path} must be those of {cls.__name__}. Received: {shortened(unknown)}. Was it written by "
            "another version of kerasbert?"
        )
    labels, names = arguments.get("labels"), folder.config.get("id2label") or {}
    names = [names[key] for key in sorted(names, key=int)]
    if isinstance(labels, list) and names and list(map(str, names)) != list(map(str, labels)):
        arguments = {**arguments, "labels": names}
    return arguments


def check_engine(engine, path, load_weights, dtype):
    """Raises a ValueError unless `from_preset` can load a model with an engine."""
    if engine not in ENGINES:
        raise ValueError(f"`engine` must be {', '.join(map(json.dumps, ENGINES))} or None. Received: {engine!r}.")
    if find_size(str(path)) is not None or not load_weights:
        raise ValueError(f"`engine` needs the folder of a model, with its weights. Received: {path!r} without weights.")
    if dtype not in (None, "float32"):
        raise ValueError(f'engine="{engine}" computes in float32. Received: dtype={dtype!r}. Omit it.')


def check_fixed(folder, arguments, overrides):
    """Raises a ValueError for arguments that differ from those of the model that was exported."""
    changed = {n: v for n, v in overrides.items() if n not in ("name", "tokenizer") and arguments.get(n) != v}
    if changed:
        raise ValueError(
            f"The program of an export is fixed. Received: {folder}, which is an export, with {shortened(changed)}. "
            "Load the folder of the model that was exported with these arguments, and export it again."
        )
