"""Memory of the preceding segments: the hidden states of their last tokens.

A batch may hold `memory`, float (b, layers, slots, m), and `memory_mask`, bool (b, slots). Each slot holds the hidden
states of one token, or is empty. The mask is True for slots that hold a token. If a row has fewer tokens than slots,
they are in the last slots.
"""

from keras import ops
from keras.backend import standardize_dtype


def empty_memory(batch_size, num_layers, slots, dim, dtype):
    """Returns the `memory` and `memory_mask` of a batch without preceding segments, a dict. All slots are empty."""
    return {
        "memory": ops.zeros((batch_size, num_layers, slots, dim), dtype),
        "memory_mask": ops.zeros((batch_size, slots), "bool"),
    }


def memory_of(inputs):
    """Returns (memory, memory mask) of a batch, or (None, None) if the batch has no memory.

    The mask is False for all slots of rows in which `stream_start` is True.
    """
    memory, mask = inputs.get("memory"), inputs.get("memory_mask")
    if memory is None:
        return None, None
    mask = ops.ones_like(memory[:, 0, :, 0], "bool") if mask is None else ops.cast(mask, "bool")
    if inputs.get("stream_start") is not None:
        mask = mask & ops.logical_not(ops.cast(inputs["stream_start"], "bool"))[:, None]
    return memory, mask


def next_memory(memory, mask, states, real=None):
    """Updates the memory after a segment: it holds the hidden states of the last tokens, without gradients.

    For example, if a memory with 2 slots holds one token [., a], and a segment has the hidden states [b, c, d], of
    which d is padding, then the new memory is [b, c].

    Args:
        memory, mask: the memory before the segment, as returned by `memory_of`.
        states: list with the hidden states of the segment in each layer, float (b, q, m).
        real: bool (b, q), True at real tokens. Padding is not stored. None: all tokens are real.

    Returns: a dict of `memory` and `memory_mask`.
    """
    slots = memory.shape[2]
    segment = ops.cast(ops.stack(states, axis=1), memory.dtype)
    filled = ops.ones_like(segment[:, 0, :, 0], "bool") if real is None else real
    both = ops.concatenate([memory, segment], axis=2)
    filled = ops.concatenate([mask, filled], axis=1)
    columns = ops.shape(both)[2]
    if real is None:
        both, filled = both[:, :, columns - slots :], filled[:, columns - slots :]
    else:
        # The sort moves filled slots to the right and keeps their order.
        order = ops.argsort(ops.arange(columns) + columns * ops.cast(filled, "int32"), axis=1)[:, columns - slots :]
        both = ops.take_along_axis(both, order[:, None, :, None], axis=2)
        filled = ops.take_along_axis(filled, order, axis=1)
    return {"memory": ops.stop_gradient(both), "memory_mask": filled}


def without_last(following, count):
    """Removes the last `count` tokens from the result of `next_memory`, so that the first `count` slots are empty."""
    slots = following["memory"].shape[2]
    memory = ops.pad(following["memory"], ((0, 0), (0, 0), (count, 0), (0, 0)))[:, :, :slots]
    return {"memory": memory, "memory_mask": ops.pad(following["memory_mask"], ((0, 0), (count, 0)))[:, :slots]}


def check_memory(inputs, backbone):
    """Raises a ValueError unless `memory` and `memory_mask` have the shapes and dtypes of `backbone.empty_memory`."""
    memory, mask = inputs.get("memory"), inputs.get("memory_mask")
    if memory is None:
        if mask is not None:
            raise ValueError("`memory_mask` requires `memory`. Received: `memory_mask` alone. Give both or neither.")
        return
    if inputs.get("sequence_ids") is not None:
        raise ValueError("Packed rows (`sequence_ids`) cannot have a memory. Received: both. Leave one of them out.")
    rows = inputs["token_ids"].shape[0]
    for key, like in backbone.empty_memory(1).items():
        found = inputs.get(key)
        expected = f"{standardize_dtype(like.dtype)}{[rows, *like.shape[1:]]}"
        received = expected if found is None else f"{standardize_dtype(found.dtype)}{list(found.shape)}"
        if received != expected:
            raise ValueError(
                f"`{key}` must be {expected} for this backbone and batch. Received: {received}. Start with "
                "`empty_memory(batch_size)` of the backbone, then pass the memory that the previous call returned."
            )
