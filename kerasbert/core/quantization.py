"""Quantized weights: selects the layers that can have them, and describes them for config files."""

import gc
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import keras

from ..backend.keras_adapter import all_layers
from .caller import warn_caller
from .variables import parts_of, paths_of_variables

SMALLEST_SHARE = 0.95  # the share of a model's kernels that dense layers must have

# Names of weights that are tables, although no embedding layer has them.
_TABLES = re.compile(r"/(table_\d+|extra_table|embeddings)$")
# In files, every quantized layer has a scheme: int8 (the weights and the inputs of the layer), int8_weights,
# int4/SIZE, where SIZE is the number of inputs per scale or -1 for one scale per output, or float8.
_SCHEMES = re.compile(r"int8|int8_weights|int4/(-1|[1-9]\d{0,5})|float8")


class Quantizable:
    """Adds `quantize` to a Keras model. Must come before `keras.Model` among the base classes."""

    def quantize(
        self, mode: str | None = None, config: Any = None, filters: str | Sequence[str] | Callable | None = None
    ) -> None:
        """Replaces kernels and embedding tables by integers and scales, in place.

        Keras quantizes dense layers and embedding tables; all other weights keep their precision. Output layers that
        are tied to the token embeddings read the quantized table, converted back to floats. Quantized weights cannot be
        trained, but `add_lora` adds trainable weights.

        Args:
            mode: "int8" (one scale per output of a dense layer and per row of a table; the inputs of dense layers are
                quantized too, with one scale per token), "int4" (one scale per 128 inputs of an output; the inputs are
                not quantized) or "float8" (training of dense layers on accelerators; the weights stay floats).
            config: a `keras.quantizers.Int8QuantizationConfig`, `Int4QuantizationConfig` or
                `Float8QuantizationConfig` in place of a mode. In int8, `activation_quantizer=None` leaves the inputs
                of dense layers as they are; in int4, `block_size` sets the number of inputs per scale.
            filters: the layers to quantize, as in Keras: a regular expression, or a list of them, that is searched in
                the layer's name, or a function of the layer. Default: all layers.

        Raises: ValueError for other modes and configs, for a model with several backbones, for a model that has
            nothing left to quantize, and, without `filters`, if dense layers have less than 95% of the kernels.
        """
        scheme = _scheme_of(config)
        parts = [part for part in _models_inside(self) if part is not parts_of(self)]
        if parts:
            raise ValueError(
                f"`quantize` needs a model with one backbone. Received: a {type(self).__name__}, which contains "
                f"{', '.join(sorted(type(part).__name__ for part in parts))}. Quantize the one that will be used."
            )
        layers = [*_dense(self), *(_tables(self) if scheme != "float8" else ())]
        chosen = {id(layer) for layer in layers if layer.quantization_mode is None and _matches(layer, filters)}
        if not chosen:
            raise ValueError(
                f"`quantize` needs layers that are not quantized yet. Received: a {type(self).__name__} without any. "
                "To quantize a model differently, load its weights of full precision first."
            )
        if filters is None:
            _check_share(self)
        if scheme == "float8" and any(layer.lora_enabled for layer in layers):
            raise ValueError(
                "Keras has no LoRA in float8. Received: a model with LoRA. Use int8, or quantize the model that "
                "`save_to_preset` writes, in which the products are merged."
            )
        # Keras collects garbage after each layer, which takes a second with many objects. Frozen ones are left out.
        gc.freeze()
        try:
            super().quantize(config=config, filters=lambda layer: id(layer) in chosen)
        finally:
            gc.unfreeze()
        parts_of(self).note_depths()  # of the new variables, too


def as_config(model):
    """Returns the entry `quantization` for the config of a model, or {} if nothing is quantized.

    It contains the schemes of layers outside the model's backbone. The config of the backbone contains the others.
    """
    inside = {id(layer) for part in _models_inside(model) for layer in all_layers(part)}
    schemes = schemes_of({path: layer for path, layer in layers_by_path(model).items() if id(layer) not in inside})
    return {"quantization": schemes} if schemes else {}


def layers_by_path(model):
    """Returns {path without the name of the model: layer} for the dense layers and embedding tables of a model.

    In a model with several backbones, layers of different backbones can have the same path; only one of them is listed.
    `quantize` refuses such models.
    """
    paths = {id(variable): path for path, variable in paths_of_variables(model).items()}
    layers = [layer for layer in (*_dense(model), *_tables(model)) if layer.built]
    ids = {id(layer): id(layer.variables[0]) for layer in layers}
    return {paths[ids[id(layer)]].rpartition("/")[0]: layer for layer in layers if ids[id(layer)] in paths}


def schemes_of(layers):
    """Returns {path: scheme} for the quantized layers in a result of `layers_by_path`."""
    return {p: _scheme_of(layer.quantization_config) for p, layer in layers.items() if layer.quantization_mode}


def has_integers(model):
    """Whether a model has int8 or int4 weights. Weights for float8 remain floats."""
    return any(layer.quantization_mode in ("int8", "int4") for layer in layers_by_path(model).values())


def quantize_layers(model, schemes):
    """Quantizes layers of a new model before its weights are loaded.

    Args:
        model: an instance of `Quantizable`.
        schemes: {path: scheme}; see `schemes_of`. Paths of layers that the model does not have are ignored.
    """
    layers = layers_by_path(model)
    for scheme in sorted(set(schemes.values())):
        chosen = {id(layers[path]) for path, given in schemes.items() if given == scheme and path in layers}
        if chosen:
            model.quantize(config=_config_of(scheme), filters=lambda layer, chosen=chosen: id(layer) in chosen)


def _config_of(scheme):
    """Returns the Keras config for a scheme. Raises a ValueError if the scheme is unknown."""
    if not _SCHEMES.fullmatch(scheme):
        raise ValueError(f"A scheme must be int8, int8_weights, int4/SIZE or float8. Received: {scheme[:40]!r}.")
    if scheme == "float8":
        return keras.quantizers.Float8QuantizationConfig()
    if scheme.startswith("int4"):
        return keras.quantizers.Int4QuantizationConfig(block_size=int(scheme.removeprefix("int4/")))
    options = {} if scheme == "int8" else {"activation_quantizer": None}
    return keras.quantizers.Int8QuantizationConfig(**options)


def _scheme_of(config):
    """Returns the scheme for a Keras config. Raises a ValueError if there is none."""
    weights, inputs = config.weight_quantizer, config.activation_quantizer
    if config.mode == "float8":
        return "float8"
    if config.mode == "int4" and weights is None and inputs is None:
        return f"int4/{config.block_size or -1}"
    if config.mode == "int8" and weights is None and inputs is None:
        return "int8_weights"
    default = keras.quantizers.AbsMaxQuantizer
    if config.mode == "int8" and weights is None and type(inputs) is default:
        if inputs.get_config() == default().get_config():
            return "int8"
    raise ValueError(
        "Models are quantized in int8, int4 or float8 with Keras's default quantizers; int8 also with "
        f"activation_quantizer=None. Received: a {type(config).__name__} with weight_quantizer={weights!r}, "
        f'activation_quantizer={inputs!r}. Use quantize("int8").'
    )


def _dense(model):
    return [layer for layer in all_layers(model) if isinstance(layer, keras.layers.Dense)]


def _tables(model):
    return [layer for layer in all_layers(model) if isinstance(layer, keras.layers.Embedding)]


def _models_inside(model):
    """The backbones, objectives and tasks that a model contains, without the model itself."""
    return [layer for layer in all_layers(model, include_self=False) if isinstance(layer, Quantizable)]


def _matches(layer, filters):
    """Whether a layer matches the `filters` of `Quantizable.quantize`."""
    if filters is None or callable(filters):
        return filters is None or bool(filters(layer))
    patterns = [filters] if isinstance(filters, str) else filters
    return any(re.search(pattern, layer.name) for pattern in patterns)


def _check_share(model):
    """Raises a ValueError if dense layers contain less than 95% of the elements of all kernels.

    Warns if tables outside of embedding layers, such as the tables of an adaptive softmax, are a large part of the
    model.
    """
    quantizable = {id(variable) for layer in (*_dense(model), *_tables(model)) for variable in layer.variables}
    sizes = {path: math.prod(variable.shape) for path, variable in paths_of_variables(model).items()}
    others = {p for p, v in paths_of_variables(model).items() if id(v) not in quantizable and len(v.shape) > 1}
    tables = {path for path in others if _TABLES.search(path)}
    kernels = [path for path in others if path not in tables]
    dense = sum(math.prod(variable.shape) for layer in _dense(model) for variable in layer.variables)
    rest = sum(sizes[path] for path in kernels)
    if rest > (1 - SMALLEST_SHARE) * (rest + dense):
        raise ValueError(
            f"Keras quantizes only dense layers and embedding tables, and {SMALLEST_SHARE:.0%} of the kernels must be "
            f"those of dense layers. Received: a {type(model).__name__}, of which {rest / (rest + dense):.0%} are "
            f"others: {', '.join(sorted(kernels)[:3])}, ... To halve the memory, use from_preset(path, "
            'dtype="bfloat16"); to quantize what can be, pass `filters`.'
        )
    share = sum(sizes[path] for path in tables) / sum(sizes.values())
    if share > 1 - SMALLEST_SHARE:
        warn_caller(
            f"{share:.0%} of the weights of this {type(model).__name__} keep their precision: "
            f"{', '.join(sorted(tables)[:5])}."
        )
