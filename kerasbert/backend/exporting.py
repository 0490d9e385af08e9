"""Exporters of PyTorch and TensorFlow: write a function of the backend as a file that runs without Keras."""

import contextlib
import logging
import tempfile
import unittest.mock
import warnings
from typing import Any

import keras

LONGEST_REASON = 600  # characters of an exporter's message


@contextlib.contextmanager
def _quiet():
    """A context without the warnings and log lines of the exporters, which concern their implementation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


@contextlib.contextmanager
def exporter_errors(name):
    """A context in which any error of an exporter becomes a ValueError of one line, with its first cause.

    Args:
        name: name of the library whose exporter runs.
    """
    try:
        yield
    except Exception as error:
        while error.__cause__ is not None:
            error = error.__cause__
        reason = " ".join(str(error).split())[:LONGEST_REASON]
        raise ValueError(f"{name}'s exporter cannot write the model. Received: {reason}") from None


def _gathered(x, index, dim):
    """`torch.take_along_dim`, which torch.export can trace only for fixed sizes, by operations without this limit."""
    import torch

    shape, places = list(x.shape), list(index.shape)
    for axis in range(x.ndim):
        if axis != dim % x.ndim:
            shape[axis] = places[axis] = places[axis] if shape[axis] == 1 else shape[axis]
    return torch.gather(x.expand(shape), dim, index.expand(places))


def _squeezed(x, dim: int):
    """`aten.squeeze.dim` in ONNX, where PyTorch's exporter would also remove an axis of unknown size."""
    from onnxscript import opset18 as op

    is_one = x.shape is not None and x.shape[dim] == 1
    return op.Squeeze(x, op.Constant(value_ints=[dim])) if is_one else op.Identity(x)


def _stride(x, dim: int):
    """`aten.sym_stride.int` in ONNX, for tensors that are contiguous: the product of the sizes of all later axes."""
    from onnxscript import opset18 as op

    return op.ReduceProd(op.Shape(x, start=dim + 1), keepdims=0)


def _scan_of(model):
    """`keras.ops.scan` as one loop. On torch, Keras runs a Python loop, which would be exported for one length only.

    The exporter cannot trace Keras's `__call__`, variables and constants within a loop, so that these are replaced.
    """
    import torch
    from torch._higher_order_ops import scan

    as_tensor = torch.as_tensor

    def constant(x, dtype=None, device=None):
        is_number = isinstance(x, (bool, int, float))
        return torch.full((), x, dtype=dtype, device=device) if is_number else as_tensor(x, dtype=dtype, device=device)

    def scanned(function, state, inputs, reverse=False):
        def step(state, x):  # the loop must not return one tensor twice
            return keras.tree.map_structure(lambda tensor: tensor.clone(), function(state, x))

        values = [(variable, variable.value.clone()) for variable in model.variables]
        calls = unittest.mock.patch.object(keras.Layer, "__call__", lambda self, *arguments: self.call(*arguments))
        constants = unittest.mock.patch.object(torch, "as_tensor", constant)
        # The exporter can write the strides of contiguous tensors only: here and, with batch and length swapped, after.
        state, inputs = keras.tree.map_structure(lambda tensor: tensor.contiguous(), (state, inputs))
        with keras.StatelessScope(state_mapping=values), calls, constants:
            last, states = scan(step, state, inputs, reverse=reverse)
        return last, keras.tree.map_structure(lambda x: x.swapaxes(0, 1).contiguous().swapaxes(0, 1), states)

    return scanned


def write_onnx(model, function, inputs, outputs, path, opset):
    """Writes a function as an ONNX file, with PyTorch's exporter. The backend must be torch.

    Args:
        model: the Keras model whose weights the function uses.
        function: takes {name: tensor} and returns {name: tensor}.
        inputs: {name: (example array, tuple with the name of each axis, None for an axis of fixed size)}.
        outputs: names of the outputs, in order.
        path: path of the file.
        opset: version of the ONNX operators.
    """
    import torch

    names = list(inputs)

    class Program(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *tensors):
            found = function(dict(zip(names, tensors, strict=True)))
            return tuple(found[name] for name in outputs)

    examples = tuple(torch.from_numpy(example) for example, _ in inputs.values())
    shapes = tuple({i: axis for i, axis in enumerate(axes) if axis is not None} for _, axes in inputs.values())
    options: dict[str, Any] = dict(
        input_names=names, output_names=list(outputs), dynamic_shapes=(shapes,), opset_version=opset
    )
    options["custom_translation_table"] = {
        torch.ops.aten.squeeze.dim: _squeezed,
        torch.ops.aten.sym_stride.int: _stride,
    }
    gathers = unittest.mock.patch.object(torch, "take_along_dim", _gathered)
    scans = unittest.mock.patch.object(keras.ops, "scan", _scan_of(model))
    with exporter_errors("PyTorch"), torch.no_grad(), _quiet(), gathers, scans:
        torch.onnx.export(Program().eval(), examples, path, dynamo=True, external_data=False, verbose=False, **options)


def write_saved_model(model, function, inputs, path):
    """Writes a function as a SavedModel with the signature `serving_default`. The backend must be tensorflow.

    Args:
        model, function: see `write_onnx`.
        inputs: {name: (example array, tuple with the name of each axis, None for an axis of fixed size)}.
        path: path of the folder.
    """
    import tensorflow as tf

    def sizes(example, axes):
        return [size if axis is None else None for size, axis in zip(example.shape, axes, strict=True)]

    specs = {name: tf.TensorSpec(sizes(*value), value[0].dtype, name=name) for name, value in inputs.items()}
    with exporter_errors("TensorFlow"), _quiet():
        module = tf.Module()
        module.variables_of_model = list(model.variables)
        module.weights = [variable.value for variable in model.variables]
        program = tf.function(lambda **tensors: function(tensors), autograph=False)
        tf.saved_model.save(module, path, {"serving_default": program.get_concrete_function(**specs)})


def expanding(getitem):
    """`Tensor.__getitem__` that adds axes by `expand_dims`, which LiteRT's converter can write for free sizes."""
    import tensorflow as tf

    def indexed(x, index):
        parts = index if isinstance(index, tuple) else (index,)
        kept = tuple(part for part in parts if part is not None)
        if len(kept) == len(parts):
            return getitem(x, index)
        axis, new = 0, []
        for part in parts:
            new += [axis] if part is None else []
            # An index removes its axis; an ellipsis stands for all axes that have no part.
            axis += len(x.shape) - len(kept) + 1 if part is Ellipsis else part is None or isinstance(part, slice)
        y = getitem(x, kept) if kept else x
        for axis in new:
            y = tf.expand_dims(y, axis)
        return y

    return indexed


def write_litert(model, function, inputs, path):
    """Writes a function as a LiteRT file with the signature `serving_default`. The backend must be tensorflow.

    Args:
        model, function, inputs: see `write_saved_model`.
        path: path of the file.
    """
    import tensorflow as tf

    new_axes = unittest.mock.patch.object(tf.Tensor, "__getitem__", expanding(tf.Tensor.__getitem__))
    with tempfile.TemporaryDirectory() as folder:
        with new_axes:
            write_saved_model(model, function, inputs, folder)
        with exporter_errors("LiteRT"), _quiet():
            converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=["serving_default"])
            path.write_bytes(converter.convert())


def litert_runner(file):
    """Returns a function from {input: array} to {output: array} that runs a LiteRT file."""
    import tensorflow as tf

    with _quiet():
        run = tf.lite.Interpreter(str(file)).get_signature_runner("serving_default")
    return lambda x: run(**x)


def saved_model_runner(folder):
    """Returns a function from {input: array} to {output: array} that runs a SavedModel."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(folder))
    program = loaded.signatures["serving_default"]

    def run(x):
        _ = loaded  # keeps the variables of the program
        return {name: y.numpy() for name, y in program(**{n: tf.constant(a) for n, a in x.items()}).items()}

    return run
