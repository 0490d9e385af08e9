"""Computes output shapes for `summary()`, which Keras knows only for functional models."""

import contextlib

import keras
import numpy as np

from ..backend.keras_adapter import all_layers
from .inputs import checked_inputs

NAMES = ("output_shape", "_build_shapes_dict")  # attributes in which Keras's summary looks for them


@contextlib.contextmanager
def known_shapes(model):
    """Context manager that makes `model.summary()` show the output shapes of all layers.

    The model is called on two batches of different sizes. Dimensions that differ between the two are shown as None.
    """
    inputs = model.example_inputs()
    larger = keras.tree.map_structure(lambda x: np.tile(np.asarray(x), (3, *[2] * (np.ndim(x) - 1))), inputs)
    small, large = _shapes(model, inputs), _shapes(model, larger)
    layers = [layer for layer in all_layers(model, include_self=False) if id(layer) in small]
    before = {id(layer): {name: layer.__dict__.get(name) for name in NAMES} for layer in layers}
    for layer in layers:
        sizes = zip(small[id(layer)], large.get(id(layer), small[id(layer)]), strict=False)
        shape = tuple(one if one == other else None for one, other in sizes)
        layer.__dict__.update(output_shape=shape, _build_shapes_dict=before[id(layer)][NAMES[1]] or {"shape": None})
    try:
        yield
    finally:
        for layer in layers:
            layer.__dict__.update(before[id(layer)])
            if before[id(layer)]["output_shape"] is None:
                del layer.__dict__["output_shape"]


def _shapes(model, inputs):
    """Calls the model on `inputs` and returns {id(layer): output shape}, the first shape if a layer has several."""
    found, kept = {}, []

    def watched(layer, call):
        def run(*args, **kwargs):
            outputs = call(*args, **kwargs)
            shown = outputs.get("sequence_output", outputs) if isinstance(outputs, dict) else outputs
            tensors = [leaf for leaf in keras.tree.flatten(shown) if hasattr(leaf, "shape")]
            if tensors:
                found[id(layer)] = tuple(tensors[0].shape)
            return outputs

        return run

    try:
        for layer in all_layers(model, include_self=False):
            kept.append((layer, layer.__dict__.get("call")))
            layer.__dict__["call"] = watched(layer, layer.call)
        with checked_inputs():
            model(inputs)
    finally:
        for layer, call in kept:
            del layer.__dict__["call"]
            if call is not None:
                layer.__dict__["call"] = call
    return found
