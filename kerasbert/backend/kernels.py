"""Fused attention kernels of the backends.

Each function returns None if it does not support the backend, device, mask or bias, so that the reference
implementation in `layers/attention.py` is used. Otherwise, it returns the same result as the reference, up to the
precision of the dtype. The kernels are:

                           JAX, GPU, half precision    JAX, TPU             torch
    full rows, causal      cuDNN                       Splash attention     chosen by torch
    right padding          cuDNN, by lengths           segment ids          a mask
    packed rows            cuDNN, a mask as bias       segment ids          a mask
    prefixes               cuDNN, a mask as bias       none                 a mask
    biases                 cuDNN                       flash attention      a mask
    local windows          blocks (`local_attention`)  Splash attention     blocks

On CPUs, JAX computes one matrix product per head, and processes long rows in pieces. TensorFlow uses only the
reference.
"""

import keras

from .devices import target
from .tpu_attention import tpu_attention


def fused_attention(query, key, value, mask, bias, scale, dropout=None):
    """Computes attention with a fused kernel. Returns float (b, q, h, d), or None if no kernel supports the arguments.

    The arguments are those of `attend`. Few kernels support `dropout`, which may be a layer or a function.
    """
    backend = keras.backend.backend()
    if backend == "torch":
        return _torch_attention(query, key, value, mask, bias, scale, dropout)
    if backend == "jax":
        if query.shape[1] is None or key.shape[1] is None or isinstance(query, keras.KerasTensor):
            return None
        if dropout is not None:
            return _jax_attention_by_heads(query, key, value, mask, bias, scale, dropout)
        ways = (tpu_attention, _cudnn_attention, _jax_attention_in_pieces, _jax_attention_by_heads)
        found = (way(query, key, value, mask, bias, scale) for way in ways)
        return next((y for y in found if y is not None), None)
    return None


def fused_window_attention(query, key, value, mask, bias, scale):
    """Computes windowed attention with a kernel that skips keys outside the windows.

    Arguments and result are the same as in `fused_attention`. Only JAX on TPUs has such a kernel.
    """
    whole = query.shape[1] is not None and not isinstance(query, keras.KerasTensor)
    if keras.backend.backend() != "jax" or not whole:
        return None
    return tpu_attention(query, key, value, mask, bias, scale)


def softmax_parts(scores):
    """Returns (weights, total) such that softmax(scores) = weights / total.

    On JAX, the caller divides the weighted sum of the values by `total`, float (..., 1), because it has far fewer
    elements than the weights. On other backends, the weights are normalized, and `total` is None.
    """
    if keras.backend.backend() != "jax":
        return keras.ops.softmax(scores, axis=-1), None
    import jax.numpy as jnp
    from jax.lax import stop_gradient

    weights = jnp.exp(scores - stop_gradient(jnp.max(scores, axis=-1, keepdims=True)))
    return weights, jnp.sum(weights, axis=-1, keepdims=True)


def _torch_attention(query, key, value, mask, bias, scale, dropout):
    """Uses torch's `scaled_dot_product_attention`, which selects flash or memory-efficient attention for some masks."""
    import torch

    if not isinstance(query, torch.Tensor) or query.device.type == "meta":
        return None
    # Dropout layers without a seed use torch's global generator, as the kernels do. On CPUs, no kernel supports
    # dropout, and the masks of our layer are cheaper than those of torch's fallback.
    ours = isinstance(dropout, keras.layers.Dropout) and dropout.seed is None and query.device.type != "cpu"
    if dropout is not None and not ours:
        return None
    rate = 0.0 if dropout is None else dropout.rate
    # Flash attention on a GPU supports causality, but no masks.
    causal = mask is not None and bias is None and mask.only_causal() and bool(query.shape[1] == key.shape[1])
    allowed = None if mask is None or causal else mask.dense(query.shape[1], key.shape[1])
    if bias is not None:
        hidden = torch.finfo(query.dtype).min
        scores = bias.to(query.dtype) if allowed is None else torch.where(allowed, bias.to(query.dtype), hidden)
    else:
        scores = allowed
    heads_first = [x.transpose(1, 2) for x in (query, key, value)]
    y = torch.nn.functional.scaled_dot_product_attention(*heads_first, scores, rate, causal, scale=scale)
    return y.transpose(1, 2)


def _cudnn_attention(query, key, value, mask, bias, scale):
    """Uses cuDNN's flash attention on GPUs, in half precision.

    The kernel skips right padding and future tokens. Other masks are passed as a bias (b, 1, q, k), where q and k must
    be even.
    """
    import jax
    from jax import numpy as jnp

    if not _has_flash_attention():
        return None
    half = query.dtype == key.dtype == value.dtype and query.dtype in ("bfloat16", "float16")
    width = query.shape[-1]
    if not half or width % 8 or width > 128 or value.shape[-1] != width:
        return None
    lengths, causal, allowed = None, False, None
    if mask is not None:
        if mask.allowed is not None:
            return None
        causal = mask.causal and mask.prefix_mask is None and mask.query_start is None
        causal = causal and query.shape[1] == key.shape[1]
        lengths = mask.lengths
        allowed = mask.replace(lengths=None, causal=mask.causal and not causal).dense(query.shape[1], key.shape[1])
    if allowed is not None or bias is not None:
        if query.shape[1] % 2 or key.shape[1] % 2:
            return None
        sizes = query.shape[1], key.shape[1]
        allowed = None if allowed is None else jnp.broadcast_to(allowed, (*allowed.shape[:2], *sizes))
        bias = None if bias is None else jnp.broadcast_to(bias, (*bias.shape[:2], *sizes)).astype(query.dtype)
    return jax.nn.dot_product_attention(
        query,
        key,
        value,
        bias,
        allowed,
        scale=scale,
        is_causal=causal,
        key_value_seq_lengths=None if lengths is None else jnp.asarray(lengths, "int32"),
        implementation="cudnn",
    )


def _has_flash_attention():
    """Whether the first device is an NVIDIA GPU of the Ampere generation or later."""
    import jax

    if target() != "gpu":
        return False
    capability = str(getattr(jax.local_devices()[0], "compute_capability", ""))
    return capability.replace(".", "").isdigit() and float(capability) >= 8


def _jax_attention_by_heads(query, key, value, mask, bias, scale, dropout=None):
    """Computes attention on CPUs with one product per head, of matrices that are contiguous in memory."""
    from jax import numpy as jnp

    if target() != "cpu":
        return None
    query, key, value = (x.transpose(0, 2, 1, 3) for x in (query * scale, key, value))
    scores = (query @ key.swapaxes(2, 3)).astype("float32")
    if bias is not None:
        scores = scores + jnp.asarray(bias).astype("float32")
    allowed = None if mask is None else mask.dense(query.shape[2], key.shape[2])
    scores = scores if allowed is None else jnp.where(allowed, scores, -1e30)
    weights, total = softmax_parts(scores)
    weights = weights if dropout is None else dropout(weights)
    y = (weights.astype(value.dtype) @ value) / total.astype(value.dtype)
    return y.transpose(0, 2, 1, 3)


PIECE = 256  # number of queries that are processed at a time
LONG_ROW = 1_024  # length in tokens from which the scores of a head do not fit into the cache of a CPU


def _jax_attention_in_pieces(query, key, value, mask, bias, scale):
    """Computes attention in long rows on CPUs, for one head and a few queries at a time.

    The scores then fit into the cache. They are recomputed in the backward pass.
    """
    import jax
    from jax import numpy as jnp

    batch, length, heads, _ = query.shape
    known = all(isinstance(size, int) for size in (batch, length, key.shape[1]))  # False in Keras's symbolic calls
    long = known and min(length, key.shape[1]) >= LONG_ROW
    if not long or bias is not None or target() != "cpu":
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
