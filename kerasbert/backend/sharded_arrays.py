"""Writes and reads arrays that are divided among devices, with `orbax.checkpoint`. Each process writes its parts."""

import functools
import threading

import keras

from .devices import target
from .hosts import is_first_process


def is_divided(variables):
    """Whether a variable is divided among devices, so that no device, or no process, has all of it."""
    return keras.backend.backend() == "jax" and any(not v.value.sharding.is_fully_replicated for v in variables)


def all_finite(variables):
    """Returns the names of the variables that contain a value that is not finite.

    Args:
        variables: {name: Keras variable}. Integers are finite.
    """
    from jax import numpy as jnp

    floats = {name: v.value for name, v in variables.items() if jnp.issubdtype(v.value.dtype, jnp.floating)}
    mesh = keras.distribution.distribution().device_mesh.backend_mesh
    finite = _are_finite(mesh)(list(floats.values()))
    return [name for name, is_finite in zip(floats, finite, strict=True) if not bool(is_finite)]


@functools.cache
def _are_finite(mesh):
    import jax
    from jax import numpy as jnp

    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return jax.jit(lambda arrays: [jnp.isfinite(x).all() for x in arrays], out_shardings=everywhere)


def orbax():
    """Returns the module `orbax.checkpoint`, or raises an ImportError that says how to install it."""
    try:
        import orbax.checkpoint
    except ImportError as error:
        raise ImportError(
            'Checkpoints of weights that are divided among devices need orbax: pip install "kerasbert[scale]".'
        ) from error
    return orbax.checkpoint


class ShardedArrays:
    """Writes named arrays to a folder or an object store while training continues.

    Only one folder is written at a time: `save` waits until the previous folder is complete. A folder gets its final
    name when it is complete. If writing fails, the next `save` or `wait` raises the error.
    """

    def __init__(self):
        self._orbax, self._thread, self._error = orbax(), None, None
        self._checkpointer = self._orbax.AsyncCheckpointer(self._orbax.PyTreeCheckpointHandler())

    def save(self, path, variables, finished):
        """Starts writing the values of variables. All processes of a run must call it.

        Args:
            path: the folder.
            variables: {name: Keras variable}.
            finished: function without arguments, which the first process calls when the folder is complete.
        """
        import jax

        self.wait()
        arrays = {name: v.value for name, v in variables.items()}
        if target() == "cpu":  # what is written would be the memory that the next step overwrites
            arrays = {name: jax.numpy.copy(x) for name, x in arrays.items()}
        self._checkpointer.save(str(path), args=self._orbax.args.PyTreeSave(arrays), force=True)
        # The callback that orbax offers is called before the folder has its name.
        self._thread = threading.Thread(target=self._finish, args=(finished,), daemon=True)
        self._thread.start()

    def _finish(self, finished):
        try:
            self._checkpointer.wait_until_finished()
            if is_first_process():
                finished()
        except Exception as error:
            self._error = error

    def wait(self):
        """Waits until nothing is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def described(self, path):
        """Returns {name: an object with `shape` and `dtype`} for the arrays in a folder."""
        return self._checkpointer.metadata(str(path)).item_metadata.tree

    def load(self, path, described, variables):
        """Reads the arrays in a folder, {name: array}.

        Args:
            path: the folder.
            described: the result of `described`.
            variables: {name: Keras variable}. The array with the same name is divided in the same way as the variable.
                Other arrays become numpy arrays.
        """
        import jax
        import numpy as np

        targets, arguments = {}, {}
        for name, found in described.items():
            if name in variables:
                sharding = variables[name].value.sharding
                targets[name] = jax.ShapeDtypeStruct(found.shape, found.dtype, sharding=sharding)
                arguments[name] = self._orbax.ArrayRestoreArgs(sharding=sharding, dtype=found.dtype)
            else:
                targets[name] = np.zeros(found.shape, found.dtype)
                arguments[name] = self._orbax.RestoreArgs(restore_type=np.ndarray, dtype=found.dtype)
        return self._checkpointer.restore(
            str(path), args=self._orbax.args.PyTreeRestore(item=targets, restore_args=arguments)
        )
