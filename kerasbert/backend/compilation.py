"""Compiled programs, and a check whether the value of a tensor is known before they run."""

import contextlib
import ctypes
import hashlib
import os
import platform
import threading
from pathlib import Path

import keras
import numpy as np

_WEIGHTS_IN_USE = threading.RLock()
LEAST_SECONDS = 0.2  # programs that compile faster are not cached


def concrete_array(value):
    """`value` as numpy if it is known (numpy arrays, lists, eager tensors); None for traced and symbolic tensors."""
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


def reading_weights():
    """A lock on JAX, where Keras removes the weights from a model while it predicts; a null context on others.

    All models use the same lock, because they may share weights.
    """
    return _WEIGHTS_IN_USE if keras.backend.backend() == "jax" else contextlib.nullcontext()


def compiles_shapes():
    """Whether every new shape requires compiling a program."""
    return keras.backend.backend() != "torch"


def slots_of_a_program(layers, weights):
    """Estimates how many batch slots a model can process in the time it takes to compile it for a new shape.

    Measured with BERT on a CPU: compiling takes 2 seconds plus 0.6 per layer, and a core computes 40 billion
    operations per second. An accelerator is so fast that another shape is hardly ever worth compiling.

    Args:
        layers: number of blocks.
        weights: number of weights that each token is multiplied by.
    """
    if not compiles_shapes():
        return 0.0
    operations = 2e13 if _is_accelerated() else 4e10 * (os.cpu_count() or 1)
    return (2.0 + 0.6 * layers) * operations / (2 * max(weights, 1))


def _is_accelerated():
    if keras.backend.backend() == "jax":
        import jax

        return jax.default_backend() != "cpu"
    import tensorflow as tf

    return bool(tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("TPU"))


def compiled(function, variables, waits=True):
    """`function` as a program that is compiled once per shape of its arguments (on torch it is not compiled).

    Args:
        function: nested arrays -> nested tensors, without side effects.
        variables: returns the Keras variables that `function` reads; their values may change between calls.
        waits: whether to wait for the results.

    Returns: a function of nested arrays that returns nested numpy arrays, or tensors that may not be computed yet.
    """
    program = {"jax": _compiled_jax, "tensorflow": _compiled_tensorflow}.get(
        keras.backend.backend(), _without_gradients
    )
    program = program(function, variables)

    def run(*arguments):
        with reading_weights():  # only for the launch; threads wait for results in parallel
            outputs = program(*keras.tree.map_structure(keras.ops.convert_to_tensor, arguments))
        return keras.tree.map_structure(keras.ops.convert_to_numpy, outputs) if waits else outputs

    return run


def _compiled_jax(function, variables):
    import jax

    @jax.jit
    def program(values, *arguments):
        # The values are arguments: constants would be copied into the program and never change.
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


def recorded(function, programs, key, *arguments):
    """`function` without the overhead of Keras on torch, which exceeds the time of the operations for one token.

    The operations are recorded once per shape of the arguments and then replayed; other backends compile instead.
    `function` must not depend on values. It may overwrite its arguments, so do not use them after a call.

    Args:
        function: nested tensors -> nested tensors.
        programs: a dict in which recordings are kept.
        key: of this function in `programs`; must identify everything that it depends on besides its arguments.
        *arguments: those of the first call, which is not made here.
    """
    if keras.backend.backend() != "torch":
        return function
    from torch.fx.experimental.proxy_tensor import make_fx

    leaves = keras.tree.flatten(arguments)
    key = (key, *((tuple(leaf.shape), leaf.dtype, leaf.device) for leaf in leaves))
    if key not in programs:
        outputs = None

        def flat(*leaves):
            nonlocal outputs
            outputs = function(*keras.tree.pack_sequence_as(arguments, leaves))
            return keras.tree.flatten(outputs)

        try:
            graph = make_fx(flat)(*leaves)
            programs[key] = graph, keras.tree.map_structure(lambda _: 0, outputs)
        except (RuntimeError, NotImplementedError):  # it does depend on values
            programs[key] = None
    if programs[key] is None:
        return function
    graph, structure = programs[key]
    return lambda *arguments: keras.tree.pack_sequence_as(structure, graph(*keras.tree.flatten(arguments)))


class CompilerMemory(keras.callbacks.Callback):
    """Returns the memory freed after compiling the first step to the system, half a gigabyte for a T5-base.

    The GNU C library would keep it. Other C libraries do not have this function, and do not need it.
    """

    def on_train_begin(self, logs=None):
        self._first = compiles_shapes()

    def on_train_batch_end(self, batch, logs=None):
        if self._first:
            self._first = False
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL("libc.so.6").malloc_trim(0)


def keep_programs(folder=None):
    """On JAX, caches compiled programs on disk, so that the next run starts without compiling.

    Settings of the user take precedence: `JAX_COMPILATION_CACHE_DIR`, `JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS`, or
    `JAX_ENABLE_COMPILATION_CACHE=false` to disable the cache.

    Args:
        folder: default: one per type of processor, in kerasbert/programs in the user's cache folder.
    """
    if keras.backend.backend() != "jax":
        return
    import jax

    if jax.config.jax_compilation_cache_dir is not None:
        return
    if folder is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = cache / "kerasbert" / "programs" / _processor()
    jax.config.update("jax_compilation_cache_dir", str(folder))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)


def _processor():
    """An identifier of the processor that programs are compiled for: different machines may share a home folder."""
    info = platform.machine() + platform.processor()
    try:
        info += next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    except (OSError, StopIteration):
        pass
    return hashlib.sha256(info.encode()).hexdigest()[:12]
