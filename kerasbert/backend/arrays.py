"""Writing into arrays."""

import keras


def overwrite(array, values, start):
    """`array` (b, k, ...) with `values` (b, q, ...) from column `start` on; q is static, `start` need not be.

    On torch without gradients, `array` is overwritten in place: a copy per token would cost as much as the model.
    """
    if keras.backend.backend() != "torch":
        return keras.ops.slice_update(array, (0, start, *[0] * (len(array.shape) - 2)), values)
    import torch

    columns = start + torch.arange(values.shape[1], device=array.device)
    return array.index_copy(1, columns, values) if torch.is_grad_enabled() else array.index_copy_(1, columns, values)
