"""The kind of device for which programs are compiled."""

import contextlib

import keras

KINDS = ("cpu", "gpu", "tpu")
_given = []


def target():
    """Returns the kind of device for which programs are compiled: "cpu", "gpu" or "tpu".

    This is the kind of the backend's default device, unless `compiling_for` sets another one.
    """
    if _given:
        return _given[-1]
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.default_backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return next((kind.lower() for kind in ("TPU", "GPU") if tf.config.list_logical_devices(kind)), "cpu")
    import torch

    return "gpu" if torch.cuda.is_available() else "cpu"


@contextlib.contextmanager
def compiling_for(kind):
    """Context manager that traces programs for a kind of device that this machine may not have.

    On JAX, the compiler for TPUs runs on any machine. A function that was traced outside the context is not traced
    again inside it, so create a new `jax.jit` there.

    Args:
        kind: "cpu", "gpu" or "tpu".
    """
    if kind not in KINDS:
        raise ValueError(f"`kind` must be one of {', '.join(KINDS)}. Received: {kind!r}.")
    _given.append(kind)
    try:
        yield
    finally:
        _given.pop()
