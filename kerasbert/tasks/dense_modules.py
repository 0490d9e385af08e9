"""The modules of sentence-transformers after an encoder: layers of tokens, a pooling, and layers of vectors."""

import dataclasses
from pathlib import Path
from typing import Any

import keras
import numpy as np

from ..core.caller import warn_caller
from ..core.quantization import has_integers
from ..data.text.json_files import shortened
from .activations import activation_of, torch_path
from .poolings import POOLINGS
from .sentence_transformers.model import Model, read_model
from .sentence_transformers.modules import OLD_TYPE, Module, refuse, write_json, write_modules
from .sentence_transformers.weights import fill as fill_variables
from .sentence_transformers.weights import read_tensors, write_tensors
from .vector_layers import Dense, Dropout, LayerNorm, Normalize, VectorLayer, width_after

OF_TOKENS, OF_VECTORS = "token_embeddings", "sentence_embedding"  # what a module reads and replaces
_FLAGS = {flag: name for name, (_, flag) in POOLINGS.items()}
_NAMES = {"module_input_name": str | None, "module_output_name": str | None}
# {kind: types of its settings}
MODULE_SETTINGS = {
    "Pooling": {
        "embedding_dimension": int,
        "word_embedding_dimension": int,
        "pooling_mode": str | list[str] | None,
        "include_prompt": bool | None,
        **dict.fromkeys(_FLAGS, bool | None),
    },
    "Dense": {
        "in_features": int,
        "out_features": int,
        "bias": bool,
        "activation_function": str | None,
        "use_residual": bool,
        **_NAMES,
    },
    "LayerNorm": {"dimension": int},
    "Normalize": _NAMES,
    "Dropout": {"dropout": float},
}


@dataclasses.dataclass(frozen=True)
class Chain:
    """What follows the encoder.

    Args:
        parts: the argument `pooling` of a `TextEmbedder`, without a `Normalize` at the end.
        normalize: whether there is a `Normalize` at the end.
        pools_prompts: whether the tokens of prompts are pooled.
    """

    parts: list[str | VectorLayer]
    normalize: bool
    pools_prompts: bool


def read_chain(model: Model) -> Chain:
    """Converts the modules after the first one. Raises a ValueError if one of them is not supported."""
    modules = model.modules[1:]
    unknown = [module for module in modules if module.kind not in MODULE_SETTINGS]
    if unknown or [module.kind for module in modules].count("Pooling") != 1:
        others = ", ".join(kind for kind in MODULE_SETTINGS if kind != "Pooling")
        wanted = f"The modules after the encoder must be one Pooling, and any of {others}."
        raise refuse(model.folder, model.modules, wanted)
    at = next(i for i, module in enumerate(modules) if module.kind == "Pooling")
    names, pools_prompts = _poolings(modules[at])
    before = [layer_of(module, OF_TOKENS) for module in modules[:at]]
    after = [layer_of(module, OF_VECTORS) for module in modules[at + 1 :]]
    normalize = after[-1:] == [Normalize()]
    return Chain([*before, *names, *(after[:-1] if normalize else after)], normalize, pools_prompts)


def read_layers(model: Model) -> tuple[list[VectorLayer], bool]:
    """Converts the modules after a static embedding. Returns (layers, whether there is a `Normalize` at the end)."""
    first, *modules = model.modules
    if first.kind != "StaticEmbedding" or any(
        module.kind not in MODULE_SETTINGS or module.kind == "Pooling" for module in modules
    ):
        kinds = ", ".join(kind for kind in MODULE_SETTINGS if kind != "Pooling")
        raise refuse(model.folder, model.modules, f"The modules must be a StaticEmbedding, and then any of {kinds}.")
    layers = [layer_of(module, OF_VECTORS) for module in modules]
    normalize = layers[-1:] == [Normalize()]
    return layers[:-1] if normalize else layers, normalize


def _poolings(module):
    """Returns (names of the poolings, whether prompts are pooled) of a Pooling module."""
    settings = module.settings(MODULE_SETTINGS["Pooling"])
    names = settings.get("pooling_mode") or [name for flag, name in _FLAGS.items() if settings.get(flag)] or "mean"
    names = [names] if isinstance(names, str) else names
    if not {*names} <= {*POOLINGS}:
        raise ValueError(
            f"`pooling_mode` in {module.path / 'config.json'} must be one or several of {', '.join(POOLINGS)}. "
            f"Received: {shortened(names)}."
        )
    return names, settings.get("include_prompt") is not False


def layer_of(module: Module, place: str, default: str = OF_VECTORS) -> VectorLayer:
    """Converts a module that reads and replaces what is in `place`.

    Args:
        module: the module.
        place: `OF_TOKENS` or `OF_VECTORS`.
        default: the place of modules that do not name one.
    """
    required = {"Dense": ("in_features", "out_features"), "LayerNorm": ("dimension",)}.get(module.kind, ())
    settings = module.settings(MODULE_SETTINGS[module.kind], required=required)
    read = settings.get("module_input_name") or default
    written = settings.get("module_output_name") or read
    if (read, written) != (place, place):
        when = "before the Pooling" if place == OF_TOKENS else "after the Pooling"
        raise ValueError(
            f"A {module.kind} {when} must read and write {place}. Received: {module.path}, from {shortened(read)} to "
            f"{shortened(written)}."
        )
    if module.kind == "Dense":
        path = settings.get("activation_function")
        activation = activation_of(path, module.path / "config.json") if path else "tanh"
        residual = settings.get("use_residual", False)
        return Dense(settings["out_features"], activation, settings.get("bias", True), residual)
    if module.kind == "Dropout":
        return Dropout(settings.get("dropout", 0.2))
    return {"LayerNorm": LayerNorm, "Normalize": Normalize}[module.kind]()


# === Weights ===


def read_weights_of(folder: Path) -> list[tuple[VectorLayer, Path, dict[str, np.ndarray]]]:
    """Reads the weights of the modules after the encoder: (record, folder, {name: array}) of each that has any."""
    model, found = read_model(folder), []
    at = model.kinds.index("Pooling") if "Pooling" in model.kinds else 0  # a static embedding is pooled
    for i, module in enumerate(model.modules):
        if module.kind in ("Dense", "LayerNorm"):
            tensors = read_tensors(module.path)
            check_width(module, tensors)
            found.append((layer_of(module, OF_TOKENS if i < at else OF_VECTORS), module.path, tensors))
    return found


def check_width(module, tensors):
    """Raises a ValueError if the settings of a module state another width of its inputs than its weights have."""
    setting, name = {"Dense": ("in_features", "linear.weight"), "LayerNorm": ("dimension", "norm.weight")}[module.kind]
    stated = module.settings(MODULE_SETTINGS[module.kind])[setting]
    if name in tensors and tensors[name].shape[-1:] != (stated,):
        raise ValueError(
            f"`{setting}` in {module.path / 'config.json'} must be {tensors[name].shape[-1]}, the width of {name}. "
            f"Received: {stated}."
        )


def fill(model: Any, found: list[tuple[VectorLayer, Path, dict[str, np.ndarray]]], allow_nan: bool) -> None:
    """Fills the layers of a `TextEmbedder` with the result of `read_weights_of`.

    Layers other than those of the folder keep their random weights, with a warning.
    """
    layers = with_weights(model)
    records = [record for part in model.records for record in part if isinstance(record, (Dense, LayerNorm))]
    if records == [record for record, _, _ in found]:
        for layer, (_, folder, tensors) in zip(layers, found, strict=True):
            fill_variables(layer.stored(), tensors, folder, allow_nan)
    elif layers:
        names = ", ".join(layer.name for layer in layers)
        warn_caller(f"The folder has no weights for {names}: new head; expected when fine-tuning.")


def with_weights(model: Any) -> list[keras.layers.Layer]:
    """The layers of a `TextEmbedder` after its encoder that have weights."""
    layers = [*model.pooling.token_layers, *model.pooling.vector_layers]
    return [layer for layer in layers if hasattr(layer, "stored")]


# === Writing ===


def write(model: Any, folder: Path, first: list[tuple[str, str]], pools: bool = True) -> None:
    """Writes `modules.json` and the folders of the modules after the first ones.

    The types are those of the first versions, which versions 2 to 6 read. Settings that only later versions know are
    written where they are needed.

    Args:
        model: a `TextEmbedder`.
        folder: the folder of the model.
        first: (type, name of the folder) of the modules before.
        pools: whether there is a Pooling module.
    """
    width, rows = model.encoder_width, list(first)
    parts = [(record, OF_TOKENS) for record in model.records[0]]
    parts += [*([(None, OF_VECTORS)] if pools else []), *((record, OF_VECTORS) for record in model.records[1])]
    layers = iter(with_weights(model))
    for record, place in parts:
        kind = "Pooling" if record is None else type(record).__name__
        path = folder / f"{len(rows)}_{kind}"
        rows.append((OLD_TYPE.format(kind), path.name))
        settings = _pooling_settings(model, width) if record is None else settings_of(record, width, place)
        if settings:
            write_json(path / "config.json", settings)
        if isinstance(record, (Dense, LayerNorm)) and not has_integers(model):
            write_tensors(path, next(layers).stored())
        width = width * len(model.poolings) if record is None else width_after([record], width)
    write_modules(folder, rows)


def _pooling_settings(model, width):
    """Flags, which all versions know, or a list where they would give another order."""
    settings = {"word_embedding_dimension": width, "include_prompt": model.prompts.pooled}
    if model.poolings == [name for name in POOLINGS if name in model.poolings]:
        return settings | {flag: name in model.poolings for flag, name in _FLAGS.items()}
    return settings | {"pooling_mode": model.poolings}


def settings_of(record, width, place):
    names = {} if place == OF_VECTORS else {"module_input_name": place, "module_output_name": place}
    if isinstance(record, Dense):
        residual = {"use_residual": True} if record.residual else {}
        return {
            "in_features": width,
            "out_features": record.units,
            "bias": record.bias,
            "activation_function": torch_path(record.activation),
            **residual,
            **names,
        }
    return {LayerNorm: {"dimension": width}, Normalize: names}.get(type(record)) or (
        {"dropout": record.rate} if isinstance(record, Dropout) else {}
    )
