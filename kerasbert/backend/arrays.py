"""Operations that write into arrays, and arrays that are written later."""

from typing import Any

import keras
import numpy as np


def lazy_zeros(shape, dtype=None):
    """Returns zeros that take no memory until they are written, where the backend allows it: torch on a CPU.

    Args:
        shape: the shape.
        dtype: name of the dtype. Default: that of Keras.
    """
    dtype = keras.config.floatx() if dtype is None else dtype
    if dtype == "float32" and _is_torch_on_cpu():
        return shared(np.zeros(shape, dtype))
    return keras.ops.zeros(shape, dtype)


def shared(array):
    """Returns a tensor with the memory of a float32 array on torch, on other backends the array itself."""
    writable = isinstance(array, np.ndarray) and array.flags.writeable and array.dtype == np.float32
    if keras.backend.backend() != "torch" or not writable:
        return array
    import torch

    return torch.from_numpy(array)


def _is_torch_on_cpu():
    """Whether new tensors are those of torch on a CPU: not on a GPU, and not the placeholders of a trace."""
    if keras.backend.backend() != "torch":
        return False
    tensor: Any = keras.ops.zeros((1,))
    return tensor.device.type == "cpu"


def overwrite(array, values, start):
    """Returns `array` with new values in the columns `start` to `start + q - 1`.

    On torch without gradients, `array` is overwritten in place, because a copy per generated token would take as long
    as the model itself.

    Args:
        array: (b, k, ...).
        values: (b, q, ...), where q must be known statically.
        start: int, or int32 scalar tensor.
    """
    if keras.backend.backend() != "torch":
        return keras.ops.slice_update(array, (0, start, *[0] * (len(array.shape) - 2)), values)
    import torch

    columns = start + torch.arange(values.shape[1], device=array.device)
    return array.index_copy(1, columns, values) if torch.is_grad_enabled() else array.index_copy_(1, columns, values)
