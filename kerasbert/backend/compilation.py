"""Compilation of functions, and access to the values of tensors that are not traced."""

import contextlib
import ctypes
import hashlib
import os
import platform
import threading
from importlib.util import find_spec
from pathlib import Path

import keras
import numpy as np

from .devices import target

_WEIGHTS_IN_USE = threading.RLock()
CORE_SPEED = 4e10  # operations per second of a CPU core, measured with BERT
CACHE_BYTES = 2 << 30  # programs that have not been used for the longest time are deleted beyond this size
LEAST_SECONDS = 0.2  # programs that take less time to compile are not cached on disk


def concrete_array(value):
    """Converts a value to a numpy array. Returns None for traced and symbolic tensors, whose values are unknown.

    Args:
        value: a numpy array, a number, a list, or a tensor of the backend. If None, the result is None.
    """
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
    """Returns a context manager that protects the weights of a model while they are read.

    On JAX, it is a lock, because Keras removes the weights from a model while it predicts. All models use the same
    lock, because they may share weights. On other backends, it does nothing.
    """
    return _WEIGHTS_IN_USE if keras.backend.backend() == "jax" else contextlib.nullcontext()


def compiles_shapes():
    """Whether the backend compiles a program for each new shape of the inputs."""
    return keras.backend.backend() != "torch"


def seconds_of_a_program(layers):
    """The time that compiling a program of a model with this many blocks takes, measured with BERT on a CPU."""
    return 2.0 + 0.6 * layers


def slots_of_a_program(layers, weights):
    """Estimates how many tokens, including padding, a model could process in the time of compiling a new shape.

    Accelerators are so fast that compiling for another shape hardly ever pays off.

    Args:
        layers: number of blocks.
        weights: number of weights that each token is multiplied with.
    """
    if not compiles_shapes():
        return 0.0
    operations = 2e13 if target() != "cpu" else CORE_SPEED * (os.cpu_count() or 1)
    return seconds_of_a_program(layers) * operations / (2 * max(weights, 1))


def compiles_quickly():
    """Whether `compiled_quickly` makes a difference: on JAX, on a CPU."""
    return keras.backend.backend() == "jax" and target() == "cpu"


def compiled_quickly(function):
    """Makes JAX compile the programs of a function with few optimizations, which takes about a third less time.

    On a CPU, the programs then take about twice as long.

    Args:
        function: function that calls a `jax.jit` function, which compiles when it is called.
    """
    if not compiles_quickly():
        return function
    import jax

    def quick(*arguments):
        before = jax.config.read("jax_disable_most_optimizations")
        jax.config.update("jax_disable_most_optimizations", True)
        try:
            return function(*arguments)
        finally:
            jax.config.update("jax_disable_most_optimizations", before)

    return quick


def compiled(function, variables, waits=True):
    """Compiles a function once for each shape of its arguments. On torch, the function is not compiled.

    Args:
        function: function without side effects that takes nested arrays and returns nested tensors.
        variables: function that returns the list of the Keras variables that `function` reads. Their values may change
            between calls.
        waits: whether calls wait for the results.

    Returns: a function that takes nested arrays. It returns nested numpy arrays. If `waits` is False, it returns nested
        tensors, which may not be computed yet.
    """
    program = {"jax": _compiled_jax, "tensorflow": _compiled_tensorflow}.get(
        keras.backend.backend(), _without_gradients
    )
    program = program(function, variables)

    def run(*arguments):
        with (
            reading_weights()
        ):  # the lock is held only while the computation is started, so that threads wait for results in parallel
            outputs = program(*keras.tree.map_structure(keras.ops.convert_to_tensor, arguments))
        return keras.tree.map_structure(keras.ops.convert_to_numpy, outputs) if waits else outputs

    return run


def _compiled_jax(function, variables):
    import jax

    @jax.jit
    def program(values, *arguments):
        # The values of variables are passed as arguments. As constants, they would be copied into the program and never
        # change.
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
    """Avoids Keras's overhead in a function on torch by recording its operations and replaying them.

    For a single token, the overhead takes more time than the operations. There is one recording per shape of the
    arguments. The operations must not depend on the values of tensors; otherwise, `function` is returned unchanged, as
    on other backends, which compile it instead. `function` may overwrite its arguments, so they must not be used after
    a call.

    Args:
        function: function that takes nested tensors and returns nested tensors.
        programs: dict in which recordings are stored.
        key: key of the recordings in `programs`, which must identify everything on which the function depends besides
            its arguments.
        *arguments: the arguments of the first call, which determine the shapes to record. The caller still has to make
            this call with the returned function.

    Returns: a function with the same arguments and results as `function`.
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
        except (RuntimeError, NotImplementedError):  # the operations depend on values
            programs[key] = None
    if programs[key] is None:
        return function
    graph, structure = programs[key]
    return lambda *arguments: keras.tree.pack_sequence_as(structure, graph(*keras.tree.flatten(arguments)))


class CompilerMemory(keras.callbacks.Callback):
    """A callback that returns the memory used for compiling the first step to the operating system.

    For T5-base, this is half a gigabyte. The GNU C library would otherwise keep the memory. Other C libraries do not
    have the function `malloc_trim`, and do not need it.
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

    Only the user can read and write the default folder. A cache holds at most `CACHE_BYTES`. The environment variables
    of JAX take precedence: `JAX_COMPILATION_CACHE_DIR`, `JAX_COMPILATION_CACHE_MAX_SIZE`,
    `JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS`, and `JAX_ENABLE_COMPILATION_CACHE=false`, which disables the cache.
    If the default folder cannot be written, there is no cache.

    Args:
        folder: the folder of the cache. Default: a folder for this type of processor, below kerasbert/programs in the
            user's cache folder.
    """
    if keras.backend.backend() != "jax":
        return
    import jax

    if jax.config.jax_compilation_cache_dir is not None:
        return
    if folder is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = cache / "kerasbert" / "programs" / _processor()
        try:
            os.makedirs(folder, exist_ok=True)
            os.chmod(folder, 0o700)  # programs are executed, so nobody else may write them
        except OSError:
            return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    if "JAX_COMPILATION_CACHE_MAX_SIZE" not in os.environ and find_spec("filelock"):  # which JAX needs for the limit
        jax.config.update("jax_compilation_cache_max_size", CACHE_BYTES)
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)


def _processor():
    """Returns an identifier of the type of processor, because different machines may share a home folder."""
    info = platform.machine() + platform.processor()
    try:
        info += next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    except (OSError, StopIteration):
        pass
    return hashlib.sha256(info.encode()).hexdigest()[:12]
