"""Attention on TPUs with the kernels of `jax.experimental.pallas.ops.tpu`.

These are Splash attention for full, causal and local masks, which skips masked blocks, and flash attention for biases.
Neither writes the scores to memory. Both represent padding and packed rows by segment ids.
"""

import functools

from .device_parts import head_parts, on_each_device
from .devices import target
from .kernel_inputs import padded, segment_ids

LANES = 128  # rows are padded to a multiple of this length
LETTERS = ("bhsd", "bhsd", "bhsd", "bs", "bs", "bhsd")  # axes of query, key, value, their segment ids and the result
BLOCKS = (512, 256, 128)  # block sizes of queries and keys; the largest one that divides the row length is used


def tpu_attention(query, key, value, mask, bias, scale):
    """Computes attention (b, q, h, d). Returns None if no kernel supports the arguments, or if the rows are short.

    The arguments are the same as for `attend`.
    """
    lengths = query.shape[1], key.shape[1]
    if target() != "tpu" or min(lengths) < LANES:
        return None
    if mask is not None:
        ordered = mask.causal or mask.window is not None
        others = mask.allowed, mask.prefix_mask, mask.query_start
        if any(part is not None for part in others) or (ordered and lengths[0] != lengths[1]):
            return None
    if bias is not None:
        window = mask is not None and mask.window is not None
        if window or tuple(bias.shape[2:]) != lengths or query.shape[-1] != value.shape[-1]:
            return None
    parts_of_heads = head_parts(query.shape[2])
    if parts_of_heads is None:
        return None
    sizes = tuple(-(-length // LANES) * LANES for length in lengths)
    ids = [padded(x, size, value=-1) for x, size in zip(segment_ids(query, key, mask), sizes, strict=True)]
    parts = [
        padded(x, size).transpose(0, 2, 1, 3)
        for x, size in ((query * scale, sizes[0]), (key, sizes[1]), (value, sizes[1]))
    ]
    if bias is None:
        kernel = _splash(query.shape[2] // parts_of_heads, sizes, mask)
        y = on_each_device(kernel, parts_of_heads, LETTERS, [*parts, *ids])
    else:
        bias = padded(bias.astype("float32"), sizes[0], axis=2)
        inputs = [*parts, *ids, padded(bias, sizes[1], axis=3)]
        y = on_each_device(_flash(sizes, mask), parts_of_heads, (*LETTERS[:-1], "bhqk", LETTERS[-1]), inputs)
    return y.transpose(0, 2, 1, 3)[:, : lengths[0]]


def _block(length):
    """Returns the block size for rows of this length."""
    return next(size for size in BLOCKS if length % size == 0)


def _splash(num_heads, lengths, mask):
    """Returns the function of Splash attention for a mask.

    The function takes query (b, h, q, d), key and value (b, h, k, d), and the segment ids of queries (b, q) and keys
    (b, k). It returns attention (b, h, q, d).

    Args:
        num_heads: number of attention heads h.
        lengths: (q, k).
        mask: an `AttentionMask`, of which only `window` and `causal` are used, or None.
    """
    import jax
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    if mask is not None and mask.window is not None:
        # A causal window contains no keys after the query.
        shown = masks.LocalMask(lengths, (mask.window, 0 if mask.causal else mask.window), offset=0)
    elif mask is not None and mask.causal:
        shown = masks.CausalMask(lengths)
    else:
        shown = masks.FullMask(lengths)
    of_queries, of_keys = (_block(length) for length in lengths)
    blocks = kernels.BlockSizes(
        block_q=of_queries,
        block_kv=of_keys,
        block_q_dkv=of_queries,
        block_kv_dkv=of_keys,
        block_q_dq=of_queries,
        block_kv_dq=of_keys,
        block_kv_dkv_compute=of_keys,
    )
    kernel = kernels.make_splash_mha(
        masks.MultiHeadMask([shown] * num_heads), block_sizes=blocks, head_shards=1, q_seq_shards=1
    )

    def attention(query, key, value, of_queries, of_keys):
        return jax.vmap(kernel)(query, key, value, kernels.SegmentIds(of_queries, of_keys))

    return attention


def _flash(lengths, mask):
    """Returns the function of flash attention for a mask; see `_splash`.

    The function takes a bias as an additional argument, float (b, h, q, k), or (1, h, q, k), which is not copied for
    each row.
    """
    import jax
    from jax.experimental.pallas.ops.tpu import flash_attention as kernels

    of_queries, of_keys = (_block(length) for length in lengths)
    blocks = kernels.BlockSizes(
        block_q=of_queries,
        block_k_major=of_keys,
        block_k=of_keys,
        block_b=1,
        block_q_major_dkv=of_queries,
        block_k_major_dkv=of_keys,
        block_k_dkv=of_keys,
        block_q_dkv=of_queries,
        block_k_major_dq=of_keys,
        block_k_dq=of_keys,
        block_q_dq=of_queries,
    )
    causal = mask is not None and mask.causal

    def of_row(query, key, value, of_queries, of_keys, bias):
        row = (x[None] for x in (query, key, value, bias))
        ids = kernels.SegmentIds(of_queries[None], of_keys[None])
        return kernels.flash_attention(*row, ids, causal=causal, block_sizes=blocks)[0]

    def attention(query, key, value, of_queries, of_keys, bias):
        bias = jax.numpy.broadcast_to(bias, (bias.shape[0], query.shape[1], *bias.shape[2:]))
        if bias.shape[0] == 1:
            return jax.vmap(functools.partial(of_row, bias=bias[0]))(query, key, value, of_queries, of_keys)
        return jax.vmap(of_row)(query, key, value, of_queries, of_keys, bias)

    return attention
