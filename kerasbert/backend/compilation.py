"""Whether a value is known now or only when a compiled program runs."""

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


def _is_eager(value):
    import tensorflow as tf

    return isinstance(value, tf.Tensor) and not tf.is_symbolic_tensor(value)
