"""Ways to compute one kind of attention on a GPU, each compiled alone with its gradients by `gpu_compile`."""

import functools

PACKED = dict(batch=8, length=512, heads=12, width=64)
LONG = dict(batch=2, length=8_192, heads=12, width=64)
WINDOW = 64  # of ModernBERT
CAUSAL_WINDOW = 512
TEXTS = 4  # packed into a row


def cudnn_bias(query, key, value, ids):
    """cuDNN with a dense mask as a bias."""
    import jax
    from jax import numpy as jnp

    bias = jnp.where(ids[:, None, :, None] == ids[:, None, None, :], 0.0, -1e30).astype(query.dtype)
    return jax.nn.dot_product_attention(query, key, value, bias, implementation="cudnn")


def cudnn_packed(query, key, value, ids):
    """cuDNN's layout of packed rows, by the lengths and the first positions of the texts."""
    from jax import numpy as jnp
    from jax._src.cudnn import fused_attention_stablehlo as cudnn

    lengths = (ids[:, None, :] == jnp.arange(1, TEXTS + 1)[None, :, None]).sum(axis=2, dtype="int32")
    ends = jnp.cumsum(lengths, axis=1, dtype="int32")
    starts = jnp.concatenate([jnp.zeros_like(ends[:, :1]), ends], axis=1)
    options = dict(q_seqlen=lengths, kv_seqlen=lengths, q_offsets=starts, kv_offsets=starts)
    scale = query.shape[-1] ** -0.5
    return cudnn.dot_product_attention(query, key, value, scale=scale, mask_type=cudnn.MaskType.PADDING, **options)


def pallas(query, key, value, ids, **mask):
    """The package's flash attention."""
    from kerasbert.backend.flash_attention import flash_attention
    from kerasbert.layers.masks import AttentionMask

    packed = {} if mask else {"sequence_ids": ids}
    return flash_attention(query, key, value, AttentionMask(**packed, **mask), None, query.shape[-1] ** -0.5)


def blocks_of(attention, query, key, value, _):
    """Blocks of a window and their neighbors as rows, whose masks are dense."""
    from kerasbert.layers.local_attention import in_blocks, whole_rows
    from kerasbert.layers.masks import AttentionMask

    *rows, mask = in_blocks(query, key, value, AttentionMask(window=WINDOW))
    return whole_rows(attention(*rows, mask), query.shape[1])


def in_flash_attention(query, key, value, mask):
    from kerasbert.backend.flash_attention import flash_attention

    return flash_attention(query, key, value, mask, None, query.shape[-1] ** -0.5)


def with_scores(query, key, value, mask):
    from jax import numpy as jnp

    from kerasbert.layers.attention import attention_scores

    weights = jnp.exp(attention_scores(query, key, mask))
    weights = (weights / weights.sum(axis=-1, keepdims=True)).astype(value.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value)


def cudnn_window(query, key, value, _):
    """cuDNN's sliding window, which is causal."""
    import jax

    window = dict(is_causal=True, local_window_size=(CAUSAL_WINDOW, 0))
    return jax.nn.dot_product_attention(query, key, value, implementation="cudnn", **window)


# {name: (sizes, function, what it is)}
WAYS = {
    "packed cudnn_bias": (PACKED, cudnn_bias, "cuDNN, the mask as a bias"),
    "packed cudnn_packed": (PACKED, cudnn_packed, "cuDNN, its layout of packed rows"),
    "packed pallas": (PACKED, pallas, "flash attention of the package, by sequence ids"),
    "window blocks_scores": (LONG, functools.partial(blocks_of, with_scores), "blocks, their scores stored"),
    "window blocks_flash": (LONG, functools.partial(blocks_of, in_flash_attention), "blocks, each by flash attention"),
    "window pallas": (LONG, functools.partial(pallas, window=WINDOW), "flash attention of the package, by its window"),
    "causal_window cudnn": (LONG, cudnn_window, "cuDNN, its sliding window"),
    "causal_window pallas": (
        LONG,
        functools.partial(pallas, causal=True, window=CAUSAL_WINDOW),
        "flash attention of the package, by its window",
    ),
}


def lowered_attention(name, device, **target):
    """Lowers the gradients of one of the `WAYS`."""
    import jax

    from kerasbert.backend import compiling_for

    sizes, attention, _ = WAYS[name]
    place = jax.sharding.SingleDeviceSharding(device)
    shape = (sizes["batch"], sizes["length"], sizes["heads"], sizes["width"])
    array = jax.ShapeDtypeStruct(shape, "bfloat16", sharding=place)
    ids = jax.ShapeDtypeStruct(shape[:2], "int32", sharding=place)

    def loss(query, key, value, ids):
        return attention(query, key, value, ids).astype("float32").sum()

    with compiling_for(**target):
        return jax.jit(jax.grad(loss, argnums=(0, 1, 2)), out_shardings=place).lower(array, array, array, ids)
