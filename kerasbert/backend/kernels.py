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
        if query.shape[1] is None or key.shape[1] is None or isinstance(query, keras.KerasTensor):
            return None
        ways = (_jax_attention, _jax_attention_in_pieces, _jax_attention_by_heads)
        found = (way(query, key, value, mask, bias, scale) for way in ways)
        return next((y for y in found if y is not None), None)
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


def _jax_attention_by_heads(query, key, value, mask, bias, scale):
    """On a CPU, as products of matrices that lie one behind the other, a head each."""
    import jax
    from jax import numpy as jnp

    if jax.default_backend() != "cpu":
        return None
    query, key, value = (x.transpose(0, 2, 1, 3) for x in (query * scale, key, value))
    scores = (query @ key.swapaxes(2, 3)).astype("float32")
    if bias is not None:
        scores = scores + jnp.asarray(bias).astype("float32")
    allowed = None if mask is None else mask.dense(query.shape[2], key.shape[2])
    scores = scores if allowed is None else jnp.where(allowed, scores, -1e30)
    weights, total = softmax_parts(scores)
    y = (weights.astype(value.dtype) @ value) / total.astype(value.dtype)
    return y.transpose(0, 2, 1, 3)


PIECE = 256  # queries at a time
LONG_ROW = 1_024  # tokens, from which on the scores of a head leave the cache of a CPU


def _jax_attention_in_pieces(query, key, value, mask, bias, scale):
    """On a CPU, long rows by the head and a few queries at a time: scores stay in the cache, and are not kept."""
    import jax
    from jax import numpy as jnp

    batch, length, heads, _ = query.shape
    long = min(length, key.shape[1]) >= LONG_ROW
    if not long or bias is not None or jax.default_backend() != "cpu":
        return None
    allowed = None if mask is None else mask.dense(length, key.shape[1])
    count = -(-length // PIECE)
    missing = count * PIECE - length
    query = jnp.pad(query * scale, ((0, 0), (0, missing), (0, 0), (0, 0)))
    query = query.reshape(batch, count, PIECE, heads, -1).transpose(0, 3, 1, 2, 4)
    if allowed is not None and allowed.shape[2] > 1:
        allowed = jnp.pad(allowed, ((0, 0), (0, 0), (0, missing), (0, 0)))

    def of_head(inputs):
        row, head, pieces, keys, values = inputs

        @jax.checkpoint
        def of_piece(inputs):
            number, piece = inputs
            scores = (piece @ keys.T).astype("float32")
            if allowed is not None:
                places = [
                    place if size > 1 else 0 for place, size in zip((row, head, number), allowed.shape, strict=False)
                ]
                places[2] = places[2] * PIECE
                shown = jax.lax.dynamic_slice(
                    allowed, (*places, 0), (1, 1, min(PIECE, allowed.shape[2]), keys.shape[0])
                )
                scores = jnp.where(shown[0, 0], scores, -1e30)
            weights, total = softmax_parts(scores)
            return (weights.astype(values.dtype) @ values) / total.astype(values.dtype)

        return jax.lax.map(of_piece, (jnp.arange(count), pieces))

    def flat(x):
        return x.reshape(batch * heads, *x.shape[2:])

    rows, columns = jnp.repeat(jnp.arange(batch), heads), jnp.tile(jnp.arange(heads), batch)
    y = jax.lax.map(of_head, (rows, columns, flat(query), *(flat(x.transpose(0, 2, 1, 3)) for x in (key, value))))
    return y.reshape(batch, heads, count * PIECE, -1)[:, :, :length].transpose(0, 2, 1, 3)
