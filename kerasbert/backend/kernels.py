"""Fused attention kernels of the backends.

Each function returns None if it does not support the backend, device, mask or bias, so that the reference
implementation in `layers/attention.py` is used. Otherwise, it returns the same result as the reference, up to the
precision of the dtype. The kernels are:

                           JAX, NVIDIA GPU, half precision    JAX, TPU             torch
    full rows, causal      cuDNN                              Splash attention     chosen by torch
    right padding          cuDNN, by lengths                  segment ids          a mask
    biases                 cuDNN                              flash attention      a mask
    padding masks          flash attention                    segment ids          a mask
    packed rows            flash attention                    segment ids          a mask
    prefixes               flash attention                    flash attention      a mask
    other masks            flash attention                    flash attention      a mask
    local windows          flash attention                    Splash attention     blocks (`local_attention`)
    causal windows         cuDNN                              Splash attention     blocks
    dropout, any of these  flash attention                    flash attention      chosen by torch, not on CPUs

Flash attention is that of this package (`flash_attention`), but for biases on TPUs without dropout. GPUs need the
Ampere generation or later. On CPUs, JAX computes one matrix product per head, and processes long rows in pieces, and
torch trains on short rows in bfloat16 without a kernel. TensorFlow uses only the reference.
"""

import logging

import keras

from .devices import device, target
from .flash_attention import LARGEST_HEAD, SHORTEST, flash_attention
from .tpu_attention import tpu_attention

log = logging.getLogger("kerasbert")
_said = set()
# Up to this length of rows, torch computes gradients in bfloat16 faster without its kernel on CPUs.
LONGEST_UNFUSED = 256


def fused_attention(query, key, value, mask, bias, scale, dropout=None):
    """Computes attention with a fused kernel. Returns float (b, q, h, d), or None if no kernel supports the arguments.

    The arguments are those of `attend`. `dropout` may be a layer or a function; kernels support layers only.
    """
    backend = keras.backend.backend()
    if backend == "torch":
        return _torch_attention(query, key, value, mask, bias, scale, dropout)
    if backend != "jax" or query.shape[1] is None or key.shape[1] is None or isinstance(query, keras.KerasTensor):
        return None
    if target() == "cpu":
        y = None if dropout is not None else _jax_attention_in_pieces(query, key, value, mask, bias, scale)
        return _jax_attention_by_heads(query, key, value, mask, bias, scale, dropout) if y is None else y
    ways = (flash_attention,) if dropout is not None else (tpu_attention, _cudnn_attention, flash_attention)
    options = {} if dropout is None else {"dropout": dropout}
    found = (way(query, key, value, mask, bias, scale, **options) for way in ways)
    y = next((y for y in found if y is not None), None)
    if y is None:
        _say_why(query, key, dropout)
    return y


def fused_window_attention(query, key, value, mask, bias, scale, dropout=None):
    """Computes windowed attention with a kernel that skips keys outside the windows.

    Arguments and result are the same as in `fused_attention`. Only JAX on GPUs and TPUs has such kernels.
    """
    if keras.backend.backend() != "jax" or isinstance(query, keras.KerasTensor) or target() == "cpu":
        return None
    if query.shape[1] is None or key.shape[1] is None:
        return None
    if dropout is not None:
        return flash_attention(query, key, value, mask, bias, scale, dropout)
    ways = (tpu_attention, _cudnn_attention, flash_attention)
    found = (way(query, key, value, mask, bias, scale) for way in ways)
    return next((y for y in found if y is not None), None)


def _say_why(query, key, dropout):
    """Logs once why attention is not fused on a GPU or TPU, and what to change."""
    found, dtype, width = device(), str(query.dtype), query.shape[-1]
    if found.kind == "gpu" and not found.is_nvidia:
        name = "not from NVIDIA" if found.capability is None else f"of compute capability {found.capability}"
        reason = f"on a GPU {name}. NVIDIA GPUs of compute capability 8.0 or later have kernels."
    elif found.kind == "gpu" and dtype not in ("bfloat16", "float16"):
        reason = f"in {dtype} on a GPU. Use the dtype mixed_bfloat16."
    elif width > LARGEST_HEAD:
        reason = f"with heads of {width}. Kernels support up to {LARGEST_HEAD}."
    elif dropout is not None and key.shape[1] >= SHORTEST:
        reason = f"with dropout, for rows of {key.shape[1]} tokens and {dtype}. Use attention_dropout=0 for a kernel."
    else:
        return  # short rows, and masks of generation
    if reason not in _said:
        _said.add(reason)
        log.warning("Attention is computed without a fused kernel %s", reason)


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
    # Dropout layers without a seed use torch's global generator, as the kernels do, which drop single probabilities. On
    # CPUs, no kernel supports dropout, and the masks of our layer are cheaper than those of torch's fallback.
    usual = isinstance(dropout, keras.layers.Dropout) and dropout.seed is None and dropout.noise_shape is None
    if dropout is not None and (not usual or query.device.type == "cpu"):
        return None
    if _trains_faster_unfused(query, key, value):
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


def _trains_faster_unfused(query, key, value):
    """Whether torch computes the gradients of plain matrix products sooner than those of its kernel.

    In bfloat16 on CPUs, the backward pass of the kernel is slow. With rows of 128 tokens, forward and backward passes
    take three times as long as without it.
    """
    import torch

    if query.device.type != "cpu" or query.dtype != torch.bfloat16:
        return False
    return any(x.requires_grad for x in (query, key, value)) and max(query.shape[1], key.shape[1]) <= LONGEST_UNFUSED


def _cudnn_attention(query, key, value, mask, bias, scale):
    """Uses cuDNN's flash attention on GPUs, in half precision.

    The kernel skips right padding, future tokens and tokens before a causal window. In training, it needs even numbers
    of queries and keys, so odd rows get a token more, which is hidden and dropped.
    """
    import jax
    from jax import numpy as jnp

    if not _fits_cudnn(query, key, value, mask):
        return None
    queries, keys = query.shape[1], key.shape[1]
    even = [queries + queries % 2, keys + keys % 2]
    causal = mask is not None and mask.causal
    lengths = None if mask is None else mask.lengths
    if keys % 2 and lengths is None and not causal:
        lengths = jnp.full((key.shape[0],), keys)
    if bias is not None:
        bias = jnp.broadcast_to(bias, (*bias.shape[:2], queries, keys)).astype(query.dtype)
        bias = jnp.pad(bias, [(0, 0), (0, 0), *((0, size % 2) for size in (queries, keys))])
    query, key, value = (
        jnp.pad(x, ((0, 0), (0, size - x.shape[1]), (0, 0), (0, 0)))
        for x, size in ((query, even[0]), (key, even[1]), (value, even[1]))
    )
    y = jax.nn.dot_product_attention(
        query,
        key,
        value,
        bias,
        scale=scale,
        is_causal=causal,
        key_value_seq_lengths=None if lengths is None else jnp.asarray(lengths, "int32"),
        local_window_size=None if mask is None or mask.window is None else (mask.window, 0),
        implementation="cudnn",
    )
    return y[:, :queries]


def _fits_cudnn(query, key, value, mask):
    """Whether cuDNN's attention supports the device, dtype, head size and mask."""
    found, width = device(), query.shape[-1]
    half = query.dtype == key.dtype == value.dtype and query.dtype in ("bfloat16", "float16")
    if not found.has_cudnn_attention or not half or width % 8 or width > found.largest_cudnn_head:
        return False
    if value.shape[-1] != width or not all(isinstance(size, int) for size in (*query.shape, *key.shape)):
        return False
    if mask is None:
        return True
    others = (mask.padding_mask, mask.sequence_ids, mask.prefix_mask, mask.query_start, mask.allowed)
    if any(part is not None for part in others) or (mask.window is not None and not mask.causal):
        return False
    return not mask.causal or query.shape[1] == key.shape[1]


def _jax_attention_by_heads(query, key, value, mask, bias, scale, dropout=None):
    """Computes attention on CPUs with one product per head, of matrices that are contiguous in memory."""
    from jax import numpy as jnp

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
    if not long or bias is not None:
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
