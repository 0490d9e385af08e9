"""Operations that write into arrays."""

import keras


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
