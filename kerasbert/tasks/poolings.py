"""Pools the hidden states of a text into one vector. Names are the same as in sentence-transformers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from ..data.text.json_files import shortened
from ..layers.composite import Composite
from ..layers.embeddings import gather_positions, last_tokens
from .activations import AXIS_ACTIVATIONS
from .vector_layers import VectorLayer, vector_layer


def _mean(x, real, power=1.0):
    weights = ops.cast(real, x.dtype)[:, :, None]
    return ops.sum(x * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1e-9) ** power


def _position_weighted_mean(x, real, places=None):
    places = ops.cumsum(ops.cast(real, x.dtype), axis=1) if places is None else ops.cast(places, x.dtype)
    count = places * ops.cast(real, x.dtype)
    return ops.sum(x * count[:, :, None], axis=1) / ops.maximum(ops.sum(count, axis=1), 1e-9)[:, None]


def _first(x, real):
    return gather_positions(x, ops.cast(ops.argmax(ops.cast(real, "int32"), axis=1), "int32")[:, None])[:, 0]


def _max(x, real):
    return ops.max(ops.where(real[:, :, None], x, -1e9), axis=1)


# {name: (function that pools (b, s, m) over the real tokens, name of its flag in sentence-transformers)}, in the order
# in which sentence-transformers concatenates vectors that are chosen by flags.
POOLINGS = {
    "cls": (_first, "pooling_mode_cls_token"),
    "max": (_max, "pooling_mode_max_tokens"),
    "mean": (_mean, "pooling_mode_mean_tokens"),
    "mean_sqrt_len_tokens": (lambda x, real: _mean(x, real, 0.5), "pooling_mode_mean_sqrt_len_tokens"),
    "weightedmean": (_position_weighted_mean, "pooling_mode_weightedmean_tokens"),
    "lasttoken": (lambda x, real: last_tokens(x, {"padding_mask": real}), "pooling_mode_lasttoken"),
}


def pooled(name, x, real, prompt_lengths=None):
    """Pools the hidden states (b, s, m) of texts to vectors (b, m).

    Args:
        name: a name from `POOLINGS`.
        x: float (b, s, m).
        real: bool (b, s), True at tokens that are not padding.
        prompt_lengths: int (b,); the first tokens of a row that are left out. The weights of "weightedmean" stay those
            of the whole row. Without tokens, the result is 0, but for "max" minus infinity and for "cls" the first
            hidden state, as in sentence-transformers.
    """
    if prompt_lengths is None:
        return POOLINGS[name][0](x, real)
    places = ops.cumsum(ops.cast(real, "int32"), axis=1)
    real = real & (places > prompt_lengths[:, None])
    if name == "weightedmean":
        return _position_weighted_mean(x, real, places)
    found, of_none = POOLINGS[name][0](x, real), {"max": -np.inf, "lasttoken": 0.0}.get(name)
    return found if of_none is None else ops.where(ops.any(real, axis=1, keepdims=True), found, of_none)


def parsed_poolings(pooling: Any) -> tuple[list[VectorLayer], list[str], list[VectorLayer]]:
    """Splits a `pooling` into (layers of tokens, names of poolings, layers of vectors).

    [Dense(8), "cls", "mean", LayerNorm()] -> ([Dense(8)], ["cls", "mean"], [LayerNorm()])

    Args:
        pooling: a name, a layer, or a list of layers, names and layers. Layers may be dicts; see `VectorLayer.config`.
    """
    parts = list(pooling) if isinstance(pooling, Sequence) and not isinstance(pooling, str) else [pooling]
    is_name = [isinstance(part, str) for part in parts]
    names = [part for part in parts if isinstance(part, str)]
    if not names or not set(names) <= set(POOLINGS):
        raise ValueError(
            f"`pooling` must be one or several of {', '.join(POOLINGS)}, with layers before or after them. "
            f"Received: {pooling!r:.200}."
        )
    start, stop = is_name.index(True), is_name.index(True) + len(names)
    if not all(is_name[start:stop]):
        raise ValueError(
            f"The names in `pooling` must stand together, without layers between. Received: {pooling!r:.200}."
        )
    before, after = [vector_layer(part) for part in parts[:start]], [vector_layer(part) for part in parts[stop:]]
    wrong = [layer for layer in before if not layer.of_tokens or getattr(layer, "activation", "") in AXIS_ACTIVATIONS]
    if wrong:
        raise ValueError(f"This layer must stand after the names in `pooling`. Received: {shortened(wrong[0])} before.")
    return before, names, after


class Pooling(Composite):
    """Computes vectors of texts from the hidden states of their tokens, in float32.

    Args:
        parts: layers of tokens, names from `POOLINGS` and layers of vectors, as names and dicts; see `parsed_poolings`.

    Call:
        x: float (b, s, m).
        real: bool (b, s), True at tokens that are not padding.
        prompt_lengths: int (b,), or None; see `pooled`.

    Returns: float32 (b, n), where the vectors of several poolings are concatenated in their order.
    """

    def __init__(self, parts, **kwargs):
        super().__init__(**{"dtype": "float32", **kwargs})
        before, self.names, after = parsed_poolings(parts)
        self.token_layers = [record.layer(f"token_layer_{i}") for i, record in enumerate(before)]
        self.vector_layers = [record.layer(f"vector_layer_{i}") for i, record in enumerate(after)]

    def call(self, x, real, prompt_lengths=None):
        for layer in self.token_layers:
            x = layer(x)
        x = ops.concatenate([pooled(name, x, real, prompt_lengths) for name in self.names], axis=-1)
        for layer in self.vector_layers:
            x = layer(x)
        return x
