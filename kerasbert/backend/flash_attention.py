"""Flash attention with dropout inside the kernel, for GPUs and TPUs, in Pallas.

Dao et al. 2022, arXiv 2205.14135 (algorithm 1), and Dao 2023, arXiv 2307.08691 (the backward pass): the scores of a
block of queries and a block of keys exist only inside the kernel, and the backward pass computes them again. A dropout
mask is a hash of the position of a score and of the seed (`random_masks`), so the backward pass computes the same mask
again, too. The masks are those of the reference implementation, and an interrupted run resumes with the same masks.

Kernels of libraries cannot do this: the masks of cuDNN's attention depend on a counter in the memory of the process,
which starts at 0 when the program is loaded.

The kernel lowers through Triton for NVIDIA GPUs and through Mosaic for TPUs. `compiling_for` and Pallas's interpreter
make it testable on CPUs.
"""

import dataclasses
import functools

import keras
import numpy as np

from .device_parts import head_parts, on_each_device, places
from .devices import device
from .flash_kernels import Plan, attention
from .kernel_inputs import padded, segment_ids
from .random_masks import words_of

LARGEST_HEAD = 256
GPU_BLOCK, TPU_BLOCK = 64, 256  # queries and keys that are processed at a time
LEAST = {"gpu": 16, "tpu": 128}  # smallest size of a block
SHORTEST = 32  # rows with fewer keys take less time without the kernel
# Axes of the masks; see `_masks`.
LETTERS = dict(
    query_ids="bqo", key_ids="bok", prefix="bok", allowed="bhqk", words="w", key_blocks="bnr", query_blocks="bnr"
)
TPU_MEMORY = 10 * 2**20  # bytes of the rows of a head that a TPU's core may hold


def flash_attention(query, key, value, mask, bias, scale, dropout=None):
    """Computes attention (b, q, h, d). Returns None if the kernel does not support the arguments.

    The arguments are the same as for `attend`.

    Args:
        dropout: a Keras `Dropout` layer, or None.
    """
    from jax import numpy as jnp

    if not _is_supported(query, key, value, mask, bias, dropout):
        return None
    parts = head_parts(query.shape[2])
    if parts is None:
        return None
    plan = _plan(query, key, mask, scale, dropout)
    inputs = _masks(plan, query, key, mask)
    if dropout is not None:
        first, second = words_of(dropout.seed_generator.next())
        inputs["words"] = jnp.stack([first, second]).astype("int32")
    if bias is not None:
        bias = jnp.broadcast_to(bias, (*bias.shape[:2], *plan.lengths))
        bias = padded(padded(bias, plan.blocks[0] * plan.count, 2), plan.blocks[1] * plan.count, 3)
    arrays = [
        padded(padded(x, block * plan.count, 1), _head_size(plan, x.shape[3]), 3)
        for x, block in zip((query, key, value), (plan.blocks[0], plan.blocks[1], plan.blocks[1]), strict=True)
    ]
    letters = ["bshd", "bshd", "bshd", None if bias is None else "bhqk", {name: LETTERS[name] for name in inputs}]
    y = on_each_device(functools.partial(_placed, plan), parts, [*letters, "bshd"], [*arrays, bias, inputs])
    return y[:, : plan.lengths[0], :, : value.shape[3]]


def _head_size(plan, size):
    """The size of a head in the kernel: blocks of GPUs have powers of two."""
    return max(LEAST["gpu"], _power_of_two(size)) if plan.kind == "gpu" else size


def _is_supported(query, key, value, mask, bias, dropout):
    """Whether the kernel can compute attention with these arguments on the device for which programs are compiled."""
    target, dtypes = device(), {str(x.dtype) for x in (query, key, value)}
    sizes = (*query.shape, *key.shape, *value.shape)
    if target.kind not in LEAST or not all(isinstance(size, int) for size in sizes) or len(dtypes) > 1:
        return False
    width = max(query.shape[-1], value.shape[-1])
    if key.shape[1] < SHORTEST or width > LARGEST_HEAD or (mask is not None and mask.query_start is not None):
        return False
    if dropout is not None and not isinstance(dropout, keras.layers.Dropout):
        return False
    if target.kind == "gpu":
        return target.is_nvidia and dtypes <= {"bfloat16", "float16"}
    rows = query.shape[1] * 3 + key.shape[1] * 4  # of the backward pass: y, dy, dq beside q; dk and dv beside k and v
    scores = 0 if bias is None else 3 * query.shape[1] * key.shape[1]
    held = 4 * (rows * max(width, LEAST["tpu"]) + scores)
    long = key.shape[1] >= LEAST["tpu"] and (dropout is not None or query.shape[1] >= LEAST["tpu"])
    return dtypes <= {"bfloat16", "float32"} and long and held <= TPU_MEMORY


def _plan(query, key, mask, scale, dropout):
    batch, queries, heads, _ = query.shape
    kind, lengths = device().kind, (queries, key.shape[1])
    block = TPU_BLOCK if kind == "tpu" else GPU_BLOCK if query.shape[-1] <= 128 else GPU_BLOCK // 2
    count = -(-max(lengths) // block)  # the same for queries and keys, so that one program computes the gradients
    blocks = tuple(max(LEAST[kind], _power_of_two(-(-length // count))) for length in lengths)
    plan = Plan(kind, scale, lengths, blocks, count, offset=lengths[1] - queries)
    if mask is not None:
        plan = dataclasses.replace(plan, causal=mask.causal, window=mask.window)
    if dropout is None:
        return plan
    sizes = (batch, heads, *lengths)
    shape = [fixed or size for fixed, size in zip(dropout.noise_shape or (None,) * 4, sizes, strict=True)]
    strides = [int(np.prod(shape[axis + 1 :])) if shape[axis] > 1 else 0 for axis in range(4)]
    strides = [(stride + 2**31) % 2**32 - 2**31 for stride in strides]  # positions are counted modulo 2 ** 32
    return dataclasses.replace(plan, rate=dropout.rate, strides=tuple(strides))


def _power_of_two(size):
    return 1 << (size - 1).bit_length()


# === Masks ===


def _masks(plan, query, key, mask):
    """Returns the arrays from which the kernel computes the mask, and the blocks that it has to visit, by name.

    Returns: a dict with any of
        query_ids: int32 (b, q, 1), and key_ids: int32 (b, 1, k). A query attends to the keys with the same id, if it
            is not 0.
        prefix: int32 (b, 1, k), 1 for keys to which all queries attend despite `causal`.
        allowed: int8 (b or 1, h or 1, q, k), 1 where attention is allowed.
        key_blocks: int32 (b, n, 2), the first key block that each block of queries has to visit, and the one after the
            last. query_blocks: the same for each block of keys.
    """
    from jax import numpy as jnp

    found = {}
    if mask is None:
        return found
    sizes = [block * plan.count for block in plan.blocks]
    if any(part is not None for part in (mask.padding_mask, mask.lengths, mask.sequence_ids)):
        of_queries, of_keys = segment_ids(query, key, mask)
        of_queries, of_keys = padded(of_queries, sizes[0], 1), padded(of_keys, sizes[1], 1)
        met = _meeting(
            of_queries.reshape(-1, plan.count, plan.blocks[0]), of_keys.reshape(-1, plan.count, plan.blocks[1])
        )
        found |= dict(query_ids=of_queries[:, :, None], key_ids=of_keys[:, None, :])
        found |= dict(key_blocks=_range(met), query_blocks=_range(met.swapaxes(1, 2)))
    if mask.prefix_mask is not None and mask.causal:
        found["prefix"] = padded(jnp.asarray(mask.prefix_mask, "int32"), sizes[1], 1)[:, None, :]
    if mask.allowed is not None:
        allowed = jnp.broadcast_to(mask.allowed, (*mask.allowed.shape[:2], *plan.lengths)).astype("int8")
        found["allowed"] = padded(padded(allowed, sizes[0], 2), sizes[1], 3)
    return found


def _meeting(of_queries, of_keys):
    """Whether blocks of queries may attend to blocks of keys: bool (b, n, n) for ids (b, n, block)."""
    from jax import numpy as jnp

    least = [jnp.where(ids > 0, ids, np.iinfo("int32").max).min(axis=2) for ids in (of_queries, of_keys)]
    most = [ids.max(axis=2) for ids in (of_queries, of_keys)]
    return (most[1][:, None, :] >= least[0][:, :, None]) & (most[0][:, :, None] >= least[1][:, None, :])


def _range(met):
    """Returns the first index of True along the last axis, and the index after the last, int32 (b, n, 2)."""
    from jax import numpy as jnp

    count = met.shape[-1]
    end = jnp.where(met.any(-1), count - jnp.argmax(met[..., ::-1], axis=-1), 0)
    return jnp.stack([jnp.argmax(met, axis=-1), end], axis=-1).astype("int32")


def _placed(plan, query, key, value, bias, inputs):
    """Computes attention on one device, which may hold only some of the rows and heads of the dropout mask."""
    from jax import numpy as jnp

    if plan.rate:
        rows, heads = places(query.shape[0], query.shape[2])
        base = jnp.asarray(rows * plan.strides[0] + heads * plan.strides[1], "int32")
        inputs = {**inputs, "words": jnp.concatenate([inputs["words"], base[None]])}
    return attention()(plan, query, key, value, bias, inputs)
