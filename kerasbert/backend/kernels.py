"""Fused attention kernels, where a backend has one for the case at hand.

Every branch returns what the reference in `layers/attention.py` returns, to the accuracy of the dtype, or None when
the case is not its own: the reference then serves.
"""

import keras


def fused_attention(query, key, value, mask, bias, scale):
    """Attention (b, q, h, d) by a fused kernel, or None."""
    backend = keras.backend.backend()
    if backend == "torch":
        return _torch_attention(query, key, value, mask, bias, scale)
    if backend == "jax":
        return _jax_attention(query, key, value, mask, bias, scale)
    return None


def softmax_parts(scores):
    """(weights, total) with softmax(scores) = weights / total; total (..., 1) is None when the weights are divided.

    XLA divides the weighted values in the place of the weights, which are many more.
    """
    if keras.backend.backend() != "jax":
        return keras.ops.softmax(scores, axis=-1), None
    import jax.numpy as jnp
    from jax.lax import stop_gradient

    weights = jnp.exp(scores - stop_gradient(jnp.max(scores, axis=-1, keepdims=True)))
    return weights, jnp.sum(weights, axis=-1, keepdims=True)


def _torch_attention(query, key, value, mask, bias, scale):
    """`scaled_dot_product_attention`: flash or memory-efficient attention where torch has it for the mask."""
    import torch

    if not isinstance(query, torch.Tensor) or query.device.type == "meta":
        return None
    allowed = None if mask is None else mask.dense(query.shape[1], key.shape[1])
    if bias is not None:
        hidden = torch.finfo(query.dtype).min
        scores = bias.to(query.dtype) if allowed is None else torch.where(allowed, bias.to(query.dtype), hidden)
    else:
        scores = allowed
    heads_first = [x.transpose(1, 2) for x in (query, key, value)]
    y = torch.nn.functional.scaled_dot_product_attention(*heads_first, attn_mask=scores, scale=scale)
    return y.transpose(1, 2)


def _jax_attention(query, key, value, mask, bias, scale):
    """cuDNN's flash attention on a GPU, in half precision, for full or right-padded rows and for plain masks."""
    import jax

    half = query.dtype in ("bfloat16", "float16")
    if not half or query.shape[-1] % 8 or query.shape[-1] > 128 or jax.default_backend() != "gpu":
        return None
    parts = ("padding_mask", "sequence_ids", "prefix_mask", "allowed")
    plain = mask is None or all(getattr(mask, part) is None for part in parts)
    if not plain or (mask is not None and mask.window is not None) or bias is not None:
        return None
    causal = mask is not None and mask.causal
    if causal and query.shape[1] != key.shape[1]:
        return None
    lengths = None if mask is None else mask.lengths
    return jax.nn.dot_product_attention(
        query,
        key,
        value,
        scale=scale,
        is_causal=causal,
        key_value_seq_lengths=lengths,
        implementation="cudnn",
    )
