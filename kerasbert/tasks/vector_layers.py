"""Layers after an encoder, on the hidden states of tokens or on the vectors of texts, as in sentence-transformers.

Each is a record, which a `Pooling` turns into a layer: `Dense`, `LayerNorm`, `Normalize` and `Dropout`.
"""

import dataclasses
import typing
from collections.abc import Sequence
from typing import Any, ClassVar

import keras

from ..data.text.json_files import check_types, shortened
from ..layers.composite import Composite
from ..layers.dense import Dense as DenseLayer
from ..layers.dropout import Dropout as DropoutLayer
from ..retrieval.similarity import unit
from .activations import ACTIVATIONS, AXIS_ACTIVATIONS

WIDEST = 1_000_000  # units of a `Dense`, far above useful numbers


@dataclasses.dataclass(frozen=True)
class VectorLayer:
    """Base class of the records. Their fields are values of JSON."""

    of_tokens: ClassVar[bool] = True  # whether the layer can also be applied to the hidden states of tokens

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        check_types(values, typing.get_type_hints(type(self)), f"a {type(self).__name__} after the encoder")

    def width(self, inputs: int) -> int:
        """The width of the outputs for inputs of a width."""
        return inputs

    def layer(self, name: str) -> keras.layers.Layer:
        """Creates the layer, in float32."""
        raise NotImplementedError

    def config(self) -> dict[str, Any]:
        """The fields and the `name` of the class, as values of JSON."""
        return {"name": type(self).__name__, **dataclasses.asdict(self)}


@dataclasses.dataclass(frozen=True)
class Dense(VectorLayer):
    """activation(W x + b), optionally plus x, or plus a linear map of x if the widths differ.

    Args:
        units: width of the outputs.
        activation: a name such as "identity", "tanh", "gelu" or "sigmoid"; see `activations.ACTIVATIONS`.
        bias: whether there is a b.
        residual: whether x is added.

    Raises:
        ValueError: if `activation` is unknown, `units` is not from 1 to 1,000,000, or a value has the wrong type.
    """

    units: int
    activation: str = "tanh"
    bias: bool = True
    residual: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.units <= WIDEST:
            raise ValueError(f"`units` of a Dense must be from 1 to {WIDEST:,}. Received: {self.units}.")
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"`activation` of a Dense must be one of {', '.join(ACTIVATIONS)}. Received: {self.activation!r}."
            )

    def width(self, inputs):
        return self.units

    def layer(self, name):
        return DenseOfVectors(self.units, self.activation, self.bias, self.residual, name=name, dtype="float32")


@dataclasses.dataclass(frozen=True)
class LayerNorm(VectorLayer):
    """Layer normalization of the vectors, with a scale and a shift, and PyTorch's epsilon of 1e-5."""

    of_tokens = False

    def layer(self, name):
        return LayerNormOfVectors(epsilon=1e-5, name=name, dtype="float32")


@dataclasses.dataclass(frozen=True)
class Normalize(VectorLayer):
    """Scales vectors to length 1."""

    def layer(self, name):
        return ScaleToUnit(name=name, dtype="float32")


@dataclasses.dataclass(frozen=True)
class Dropout(VectorLayer):
    """Dropout of the components of vectors in training.

    Args:
        rate: probability that a component is set to 0.

    Raises:
        ValueError: if `rate` is not a number of at least 0 and below 1.
    """

    of_tokens = False

    rate: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.rate < 1:
            raise ValueError(f"`rate` of a Dropout must be at least 0 and below 1. Received: {self.rate}.")

    def layer(self, name):
        return DropoutLayer(self.rate, name=name, dtype="float32")


_RECORDS = {cls.__name__: cls for cls in (Dense, LayerNorm, Normalize, Dropout)}


def vector_layer(config: Any) -> VectorLayer:
    """Returns a record, from one, or from the result of its `config`."""
    if isinstance(config, VectorLayer):
        return config
    cls = _RECORDS.get(config.get("name")) if isinstance(config, dict) else None
    options = {name: value for name, value in config.items() if name != "name"} if isinstance(config, dict) else {}
    if cls is None or not set(options) <= {field.name for field in dataclasses.fields(cls)}:
        raise ValueError(
            f"A layer after the encoder must be one of {', '.join(_RECORDS)}, or a dict of its `name` and options. "
            f"Received: {shortened(config)}."
        )
    return cls(**options)


def token_layers(projection: Any) -> list[VectorLayer]:
    """Returns the layers of a projection of tokens: a list of them, or the number of units of a linear one.

    128 -> [Dense(128, "identity", bias=False), Normalize()]
    """
    if isinstance(projection, int) and not isinstance(projection, bool):
        return [Dense(projection, "identity", bias=False), Normalize()]
    if not isinstance(projection, Sequence) or isinstance(projection, str):
        raise ValueError(f"`projection` must be a number of units, or a list of layers. Received: {projection!r:.100}.")
    records = [vector_layer(record) for record in projection]
    wrong = [
        record for record in records if not record.of_tokens or getattr(record, "activation", "") in AXIS_ACTIVATIONS
    ]
    if wrong:
        raise ValueError(f"This layer cannot be applied to the vectors of tokens. Received: {shortened(wrong[0])}.")
    return records


def width_after(records: Sequence[VectorLayer], width: int) -> int:
    """The width of vectors of a width after several layers."""
    for record in records:
        width = record.width(width)
    return width


class VectorLayers(Composite):
    """Several layers, one after the other, in float32.

    Args:
        records: the results of their `config`.

    Call:
        x: float (..., m).

    Returns: float32 (..., n).
    """

    def __init__(self, records, **kwargs):
        super().__init__(**{"dtype": "float32", **kwargs})
        self.layers_in_order = [vector_layer(record).layer(f"layer_{i}") for i, record in enumerate(records)]

    def call(self, x):
        for layer in self.layers_in_order:
            x = layer(x)
        return x


# === Keras layers, with the names that sentence-transformers has for their weights ===


class DenseOfVectors(Composite):
    """The layer of a `Dense`, with the same arguments."""

    def __init__(self, units, activation="tanh", bias=True, residual=False, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        self.activation = ACTIVATIONS[activation][1]
        self.linear = DenseLayer(units, use_bias=bias, name="linear", **common)
        self.units, self.adds_input = units, residual
        self.residual = DenseLayer(units, use_bias=False, name="residual", **common) if residual else None

    def call(self, x):
        y = self.activation(self.linear(x))
        if not self.adds_input:
            return y
        return y + (x if x.shape[-1] == self.units else self.residual(x))

    def stored(self):
        """{name of a tensor in sentence-transformers: (variable, whether it is transposed there)}"""
        found = {"linear.weight": (self.linear.kernel, True)}
        if self.linear.bias is not None:
            found["linear.bias"] = (self.linear.bias, False)
        if self.residual is not None and self.residual.built:
            found["residual.weight"] = (self.residual.kernel, True)
        return found


@keras.saving.register_keras_serializable("kerasbert")
class LayerNormOfVectors(keras.layers.LayerNormalization):
    """The layer of a `LayerNorm`."""

    def stored(self):
        """{name of a tensor in sentence-transformers: (variable, whether it is transposed there)}"""
        return {"norm.weight": (self.gamma, False), "norm.bias": (self.beta, False)}


class ScaleToUnit(Composite):
    """The layer of a `Normalize`."""

    def call(self, x):
        return unit(x)
