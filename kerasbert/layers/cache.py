"""Keys and values of the tokens so far, in arrays of a fixed length, so that one compiled step serves every token.

A cache is a dict of tensors: `start` int32 (), the number of filled columns; `real` bool (b, k), True at those that
are not padding; `blocks`, the keys and values (b, k, h, d) of every block. Decoding selects rows of all but `start`.
"""

from keras import ops

from ..backend.arrays import overwrite
from .masks import AttentionMask, real_tokens
from .positions import token_positions


def empty_cache(batch_size, length, num_blocks, num_heads, head_dim, dtype):
    """A cache with space for `length` tokens."""
    keys = (batch_size, length, num_heads, head_dim)
    return {
        "start": ops.zeros((), "int32"),
        "real": ops.zeros((batch_size, length), "bool"),
        "blocks": [(ops.zeros(keys, dtype), ops.zeros(keys, dtype)) for _ in range(num_blocks)],
    }


def write(array, values, start):
    """`array` (b, k, ...) with `values` (b, q, ...) from column `start` on. `array` must not be used again."""
    return overwrite(array, ops.cast(values, array.dtype), start)


def causal_inputs(inputs, cache=None):
    """(AttentionMask, positions) of a causal decoder over the tokens of a batch, which follow those of the cache.

    With a cache, `padding_mask` (b, q) covers only the new tokens, and their positions count from its `start`.
    """
    positions = token_positions(inputs)
    if cache is None:
        return AttentionMask.from_inputs(inputs, causal=True, prefix_mask=inputs.get("prefix_mask")), positions
    if inputs.get("position_ids") is None:
        positions = positions + cache["start"]
    real = real_tokens(inputs)
    real = ops.ones(inputs["token_ids"].shape, "bool") if real is None else real
    real = write(cache["real"], real, cache["start"])
    return AttentionMask(padding_mask=real, causal=True, query_start=cache["start"]), positions


def advanced(mask, length, blocks):
    """The cache after a call on `length` tokens with the mask of `causal_inputs`; `blocks` are their new caches."""
    return {"start": mask.query_start + length, "real": mask.padding_mask, "blocks": blocks}


def caches_of(cache):
    """i -> the argument `cache` of block i, for `run_blocks`; None without a cache."""
    return lambda i: {"cache": None if cache is None else cache["blocks"][i]}
