"""Counts the operations and activations of a model by tracing it. Nothing is computed or allocated.

A trace gives only shapes. While it runs, the functions of `keras.ops` that multiply matrices report the sizes of their
operands, as do the layers of Keras that do not use these functions. Attention uses the reference implementation, which
computes the same products, because fused kernels do not report sizes.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable

import keras
import numpy as np

from kerasbert.backend import kernels
from kerasbert.backend.keras_adapter import all_layers, forgetting_failed_variables

# === Traces ===


class _Traced(Exception):
    """Raised to end a trace, so that Keras forgets the variables that were created in it."""


class _Tracer(keras.layers.Layer):
    def __init__(self, function):
        super().__init__()
        self.function, self.outcome = function, {}

    def build(self, input_shape=None):
        pass

    def call(self, x):
        # Otherwise, Keras would create the values of the variables at the end of the trace. If another error left the
        # trace, Keras would call the function once more, with values.
        with contextlib.suppress(_Traced), forgetting_failed_variables():
            try:
                self.outcome["result"] = self.function()
            except Exception as error:
                self.outcome["error"] = error
            raise _Traced
        return x


def traced(function: Callable):
    """Returns the result of `function()`, called in a trace, where tensors have shapes but no values.

    The weights of models that are created in the trace take no memory, and the models must not be used after it.

    Args:
        function: function without arguments, whose result does not contain tensors or layers.
    """
    tracer = _Tracer(function)
    tracer(keras.KerasTensor((1,)))
    if "error" in tracer.outcome:
        raise tracer.outcome["error"]
    return tracer.outcome["result"]


# === Operations ===


@dataclasses.dataclass
class Operations:
    """The cost of a call of a model. A multiplication and an addition count as two operations.

    Args:
        forward: operations of the matrix products and convolutions.
        frozen: the part of `forward` in models that are not trained, such as a teacher.
        kept: bytes of the activations that the backward pass needs, without attention weights: the outputs of products,
            norms, activation functions and dropout.
        attention_weights: bytes of the attention weights, which training keeps unless a fused kernel recomputes them.
        largest: bytes of the input and the output of the product for which their sum is largest.
    """

    forward: int = 0
    frozen: int = 0
    kept: int = 0
    attention_weights: int = 0
    largest: int = 0

    @property
    def training(self) -> int:
        """Operations of a training step. The gradients of a product take two more products of the same size.

        This is the convention of the scaling laws (Kaplan et al. 2020, arXiv 2001.08361, section 2.1). The result is
        slightly too high if an operand needs no gradient, such as the sinusoidal positions of XLNet.
        """
        return self.forward + 2 * (self.forward - self.frozen)


def without_values(shape: tuple, dtype="int32"):
    """Creates a tensor without values, for a call in a trace."""
    return keras.ops.zeros(shape, keras.backend.standardize_dtype(dtype))


@contextlib.contextmanager
def counting(model):
    """Context manager that counts the operations of calls of `model`, in a trace. Yields the `Operations`."""
    counter = _Counter(model)
    replaced = {
        (keras.ops, "matmul"): counter.product(keras.ops.matmul, _of_matmul),
        (keras.ops, "einsum"): counter.product(keras.ops.einsum, _of_einsum),
        (keras.ops, "sigmoid"): counter.keeping(keras.ops.sigmoid),
        (keras.ops, "tanh"): counter.keeping(keras.ops.tanh),
        (keras.ops, "scan"): counter.scan,
        (kernels, "fused_attention"): _no_kernel,
        (kernels, "fused_window_attention"): _no_kernel,
        (kernels, "softmax_parts"): counter.softmax_parts,
    }
    for layer in all_layers(model, include_self=False):
        replaced[layer, "call"] = counter.layer(layer)
        if callable(getattr(layer, "activation", None)) and layer.activation is not keras.activations.linear:
            replaced[layer, "activation"] = counter.keeping(layer.activation)
    with contextlib.ExitStack() as stack:
        for (owner, name), function in replaced.items():
            stack.callback(_restore, owner, name, vars(owner).get(name, _ABSENT))
            vars(owner)[name] = function
        yield counter.found


_ABSENT = object()


def _restore(owner, name, value):
    if value is _ABSENT:
        del vars(owner)[name]
    else:
        vars(owner)[name] = value


def _no_kernel(*args, **kwargs):
    return None


class _Counter:
    """Replacements of functions and methods, which count the operations that they compute."""

    def __init__(self, model):
        self.found = Operations()
        self.trained = {id(variable) for variable in model.trainable_variables}
        self.is_frozen, self.repeats = False, 1
        self.product_size = 4  # bytes of a number in the last product

    def add(self, operations, outputs, inputs=()):
        operations *= self.repeats
        self.found.forward += operations
        self.found.frozen += operations * self.is_frozen
        self.keep(outputs)
        self.found.largest = max(self.found.largest, _bytes(outputs) + _bytes(inputs))

    def keep(self, outputs):
        self.found.kept += _bytes(outputs) * self.repeats * (not self.is_frozen)

    def keep_weights(self, weights):
        self.found.attention_weights += _bytes(weights) * self.repeats * (not self.is_frozen)

    def product(self, function, operations):
        def run(*args, **kwargs):
            y = function(*args, **kwargs)
            self.product_size = _size_of_number(y)
            first = next(x for x in args if hasattr(x, "shape"))  # the others may be weights
            self.add(operations(*args), y, first)
            return y

        return run

    def keeping(self, function):
        def run(*args, **kwargs):
            y = function(*args, **kwargs)
            self.keep(y)
            return y

        return run

    def softmax_parts(self, scores):
        weights = keras.ops.softmax(scores, axis=-1)
        self.keep_weights(weights)
        # The gradient does not need the scores, a product that may have been computed in half precision.
        scores_bytes = math.prod(scores.shape) * self.product_size
        self.found.kept -= scores_bytes * self.repeats * (not self.is_frozen)
        return weights, None

    def scan(self, step, state, inputs, length=None, reverse=False, unroll=1):
        """Traces one step of a recurrence, and counts it once for each token."""
        steps = length or int(keras.tree.flatten(inputs)[0].shape[0])
        before, self.repeats = self.repeats, self.repeats * steps
        state, y = step(state, keras.tree.map_structure(lambda x: x[0], inputs))
        self.repeats = before
        return state, keras.tree.map_structure(lambda x: keras.ops.broadcast_to(x[None], (steps, *x.shape)), y)

    def layer(self, layer):
        """Returns a `call` for a layer that counts the operations that do not use functions of `keras.ops`."""
        call = layer.call
        operations = next((count for cls, count in OPERATIONS.items() if type(layer) is cls), None)
        norms = isinstance(layer, (keras.layers.LayerNormalization, keras.layers.RMSNormalization))
        drops = isinstance(layer, keras.layers.Dropout) and layer.rate > 0
        frozen = isinstance(layer, keras.Model) and not {id(v) for v in layer.variables} & self.trained

        def run(*args, **kwargs):
            before, self.is_frozen = self.is_frozen, self.is_frozen or frozen
            with contextlib.ExitStack() as stack:
                stack.callback(setattr, self, "is_frozen", before)
                y = call(*args, **kwargs)
                if operations is not None:
                    self.add(operations(layer, args[0], y), y, args[0])
                elif drops and len(y.shape) == 4:
                    self.keep_weights(y)
                elif norms or drops:
                    self.keep(y)
            return y

        # Keras reads the signature of `call`.
        return functools.wraps(call)(run)


def _bytes(tensors) -> int:
    leaves = [x for x in keras.tree.flatten(tensors) if hasattr(x, "shape")]
    return sum(math.prod(x.shape) * _size_of_number(x) for x in leaves)


def _size_of_number(tensor) -> int:
    return _SIZES.get(keras.backend.standardize_dtype(tensor.dtype), 4)


_SIZES = {"float16": 2, "bfloat16": 2, "float64": 8, "int64": 8, "bool": 1, "int8": 1, "uint8": 1}


def _of_matmul(x, y):
    first, second = tuple(x.shape), tuple(y.shape)
    rows = np.broadcast_shapes(first[:-2], second[:-2])
    return 2 * math.prod((*rows, *first[-2:], *(second[-1:] if len(second) > 1 else ())))


def _of_einsum(letters, *operands):
    names = letters.partition("->")[0].split(",")
    sizes = {
        letter: n for name, x in zip(names, operands, strict=True) for letter, n in zip(name, x.shape, strict=True)
    }
    return 2 * math.prod(sizes.values())


def _of_dense(layer, x, y):
    return 2 * math.prod(y.shape) * x.shape[-1]


def _of_convolution(layer, x, y):
    return 2 * math.prod(y.shape) * math.prod(layer.kernel.shape[:-1])


def _of_recurrence(layer, x, y):
    """Counts an LSTM or GRU, or one step of a GRU cell, in which each row is multiplied by all matrices."""
    cell = getattr(layer, "cell", layer)
    weights = math.prod(cell.kernel.shape) + math.prod(cell.recurrent_kernel.shape)
    return 2 * math.prod(x.shape[:-1]) * weights


# Keras layers that do not compute their products with `keras.ops`.
OPERATIONS = {
    keras.layers.Dense: _of_dense,
    keras.layers.Conv1D: _of_convolution,
    keras.layers.LSTM: _of_recurrence,
    keras.layers.GRUCell: _of_recurrence,
}
