"""Compiled programs, and whether a value is known now or only when one runs."""

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
LEAST_SECONDS = 0.2  # of compiling, for a program to be kept


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


def reading_weights():
    """A context for one thread at a time on JAX, where Keras takes the weights out of a model while it predicts.

    One for all models: they may share their weights.
    """
    return _WEIGHTS_IN_USE if keras.backend.backend() == "jax" else contextlib.nullcontext()


def compiles_shapes():
    """Whether every new shape costs the compilation of a program."""
    return keras.backend.backend() != "torch"


def slots_of_a_program(layers, weights):
    """How many slots of a batch a model computes in the time that compiling it for a new shape takes: an estimate.

    From programs of BERT on the CPU: two seconds and 0.6 a layer to compile, 40 billion operations a second and core.
    An accelerator computes so fast that there is hardly ever a reason for another shape.

    Args:
        layers: number of blocks.
        weights: that a token is multiplied with.
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
        with reading_weights():  # until it is under way; threads wait for the results together
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


def recorded(function, programs, key, *arguments):
    """`function` without what Keras does around its operations on torch, which takes longer than those of one token.

    They are recorded once for all arguments of the same shapes, and then repeated; other backends compile. It must not
    look at values, and it uses up its arguments: it may write into them.

    Args:
        function: nested tensors -> nested tensors.
        programs: a dict that keeps what was recorded.
        key: of this function in it; says all that it depends on besides its arguments.
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
        except (RuntimeError, NotImplementedError):  # it looks at values after all
            programs[key] = None
    if programs[key] is None:
        return function
    graph, structure = programs[key]
    return lambda *arguments: keras.tree.pack_sequence_as(structure, graph(*keras.tree.flatten(arguments)))


class CompilerMemory(keras.callbacks.Callback):
    """Gives back to the system what compiling the first step has freed, half a gigabyte for a T5-base.

    GNU's C library would keep it. Others do not have the function, and need none.
    """

    def on_train_begin(self, logs=None):
        self._first = compiles_shapes()

    def on_train_batch_end(self, batch, logs=None):
        if self._first:
            self._first = False
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL("libc.so.6").malloc_trim(0)


def keep_programs(folder=None):
    """On JAX, keeps compiled programs on disk, so that the next run starts at once.

    What the user has set stays: `JAX_COMPILATION_CACHE_DIR`, `JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS`, or
    `JAX_ENABLE_COMPILATION_CACHE=false` for none.

    Args:
        folder: default: one a kind of processor in kerasbert/programs in the user's cache.
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
    """A name for what programs are compiled for: homes are shared by machines that differ."""
    facts = platform.machine() + platform.processor()
    try:
        facts += next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    except (OSError, StopIteration):
        pass
    return hashlib.sha256(facts.encode()).hexdigest()[:12]
