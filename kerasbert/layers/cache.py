"""A cache of the keys and values of preceding tokens, for generation.

The arrays have a fixed length k, so that one compiled program serves all steps. A cache is a dict:
    start: int32 scalar, the number of columns that are filled.
    real: bool (b, k), True at filled columns that are not padding.
    blocks: list with a tuple (keys, values) for each block, each (b, k, h, d).

Decoding may reorder the rows of all arrays except `start`.
"""

from keras import ops

from ..backend.arrays import overwrite
from .masks import AttentionMask, real_tokens
from .positions import token_positions


def empty_cache(batch_size, length, num_blocks, num_heads, head_dim, dtype):
    """Returns a cache with space for `length` tokens."""
    keys = (batch_size, length, num_heads, head_dim)
    return {
        "start": ops.zeros((), "int32"),
        "real": ops.zeros((batch_size, length), "bool"),
        "blocks": [(ops.zeros(keys, dtype), ops.zeros(keys, dtype)) for _ in range(num_blocks)],
    }


def write(array, values, start):
    """Writes `values` (b, q, ...) into `array` (b, k, ...), beginning at column `start`, and returns the result.

    The caller must not use `array` again, because its memory may be overwritten.
    """
    return overwrite(array, ops.cast(values, array.dtype), start)


def causal_inputs(inputs, cache=None):
    """Returns the `AttentionMask` and the positions of the tokens of a batch, for a causal decoder.

    Args:
        inputs: a batch. With a cache, it holds only new tokens, and its `padding_mask` (b, q) covers only these.
        cache: the cache of the preceding tokens, or None. Positions are counted from its `start`.
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
    """Returns the cache after a call on new tokens.

    Args:
        mask: the mask of the call, from `causal_inputs`.
        length: number of new tokens.
        blocks: list of the tuples (keys, values) that the blocks returned.
    """
    return {"start": mask.query_start + length, "real": mask.padding_mask, "blocks": blocks}


def caches_of(cache):
    """Returns a function for `run_blocks(of_block=...)`, which passes each block its entry of the cache.

    If `cache` is None, each block gets `cache=None`.
    """
    return lambda i: {"cache": None if cache is None else cache["blocks"][i]}
