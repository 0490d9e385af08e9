"""Compiled programs, and whether a value is known now or only when one runs."""

import keras
import numpy as np


def concrete_array(value):
    """`value` as numpy when its numbers are known: numpy arrays, lists, eager tensors. None for traced and symbolic."""
    if value is None or isinstance(value, keras.KerasTensor):
        return None
    if isinstance(value, (np.ndarray, list, tuple, int)):
        return np.asarray(value)
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return None if isinstance(value, jax.core.Tracer) else np.asarray(value)
    if backend == "tensorflow":
        return value.numpy() if hasattr(value, "numpy") and _is_eager(value) else None
    if backend == "torch":
        import torch

        if not isinstance(value, torch.Tensor) or value.device.type == "meta" or torch.compiler.is_compiling():
            return None
        return value.detach().cpu().numpy()
    return None


def compiles_shapes():
    """Whether every new shape costs the compilation of a program."""
    return keras.backend.backend() != "torch"


def compiled(function, variables, waits=True):
    """`function` as a program that is compiled once for every shape of its arguments (on torch it runs as it is).

    Args:
        function: nested arrays -> nested tensors, without side effects.
        variables: gives the Keras variables that `function` reads; they may change between the calls.
        waits: whether to wait for the results.

    Returns: a function of nested arrays that returns nested numpy arrays, or tensors that may still be computed.
    """
    program = {"jax": _compiled_jax, "tensorflow": _compiled_tensorflow}.get(
        keras.backend.backend(), _without_gradients
    )
    program = program(function, variables)

    def run(*arguments):
        outputs = program(*keras.tree.map_structure(keras.ops.convert_to_tensor, arguments))
        return keras.tree.map_structure(keras.ops.convert_to_numpy, outputs) if waits else outputs

    return run


def _compiled_jax(function, variables):
    import jax

    @jax.jit
    def program(values, *arguments):
        # The values are arguments: as constants they would be copied into the program, and never change.
        with keras.StatelessScope(state_mapping=list(zip(variables(), values, strict=True))):
            return function(*arguments)

    return lambda *arguments: program([variable.value for variable in variables()], *arguments)


def _compiled_tensorflow(function, variables):
    import tensorflow as tf

    return tf.function(function, autograph=False)


def _without_gradients(function, variables):
    import torch

    return torch.no_grad()(function)


def _is_eager(value):
    import tensorflow as tf

    return isinstance(value, tf.Tensor) and not tf.is_symbolic_tensor(value)
