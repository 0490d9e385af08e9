"""Windowed attention in blocks, whose cost per token depends on the window size, not on the length of the row.

Rows are cut into blocks of at least the window size, so that each token attends only to keys of its block and of the
neighboring blocks. `attend` then treats each block as a separate row (Beltagy et al. 2020, arXiv 2004.05150,
section 3.1).
"""

import numpy as np
from keras import ops

from .masks import AttentionMask

SHORTEST_BLOCK = 16
ENOUGH_BLOCKS = 8  # with fewer blocks, whole rows are as fast
PARTS = {"padding_mask", "lengths", "sequence_ids", "causal", "window"}  # supported fields of an `AttentionMask`


def in_blocks(query, key, value, mask):
    """Cuts the rows of a windowed attention into n blocks of w tokens.

    Args:
        query, key, value: float (b, s, h, d).
        mask: an `AttentionMask` with a window.

    Returns: the arguments for calling `attend` on blocks: query (b * n, w, h, d), key and value (b * n, c * w, h, d),
        and an `AttentionMask`. The keys of a block lie in c = 3 blocks (c = 2 if causal). None if blocks would not be
        cheaper, or do not support the mask.
    """
    length = query.shape[1]
    others = [name for name in mask.__dataclass_fields__ if name not in PARTS and getattr(mask, name) is not None]
    if mask.window is None or others or not isinstance(length, int) or length != key.shape[1]:
        return None
    size = max(mask.window, SHORTEST_BLOCK)
    if length < ENOUGH_BLOCKS * size:
        return None
    beside = (-1, 0) if mask.causal else (-1, 0, 1)
    keys, values = (_with_neighbors(_cut(x, size), beside) for x in (key, value))
    return _flat(_cut(query, size)), keys, values, AttentionMask(allowed=_allowed(query, mask, size, beside))


def whole_rows(y, length):
    """Joins blocks (b * n, w, h, d) into rows (b, length, h, d), without the padding of the last block."""
    size, *rest = y.shape[1:]
    return ops.reshape(y, (-1, -(-length // size) * size, *rest))[:, :length]


def _allowed(query, mask, size, beside):
    """bool (b * n, 1, w, c * w), True where a query may attend to a key of its block or of a neighboring block."""
    ids = ops.ones_like(query[:, :, 0, 0], dtype="int32")  # number of the sequence of each token, 0 for padding
    if mask.sequence_ids is not None:
        ids = ids * ops.cast(mask.sequence_ids, "int32")
    if mask.padding_mask is not None:
        ids = ids * ops.cast(mask.padding_mask, "int32")
    if mask.lengths is not None:
        ids = ids * ops.cast(ops.arange(query.shape[1]) < mask.lengths[:, None], "int32")
    ids = _cut(ids, size)
    of_queries, of_keys = _flat(ids)[:, None, :, None], _with_neighbors(ids, beside)[:, None, None, :]
    distance = np.arange(size)[:, None] - np.concatenate([np.arange(size) + block * size for block in beside])
    near = np.abs(distance) <= mask.window
    near = near & (distance >= 0) if mask.causal else near
    allowed = ops.convert_to_tensor(near)[None, None] & (of_keys > 0)
    return allowed if mask.sequence_ids is None else allowed & (of_queries == of_keys)


def _cut(x, size):
    """Cuts (b, s, ...) into blocks (b, n, size, ...), and pads the last block with zeros."""
    length, *rest = x.shape[1:]
    count = -(-length // size)
    x = ops.pad(x, [[0, 0], [0, count * size - length], *([0, 0] for _ in rest)])
    return ops.reshape(x, (-1, count, size, *rest))


def _flat(x):
    """Reshapes blocks (b, n, w, ...) to (b * n, w, ...)."""
    return ops.reshape(x, (-1, *x.shape[2:]))


def _with_neighbors(x, beside):
    """Concatenates each block with its neighbors: (b, n, w, ...) becomes (b * n, c * w, ...).

    `beside` holds the c offsets of the blocks to concatenate, such as (-1, 0, 1). Blocks beyond the ends of a row are
    zeros.
    """
    count = x.shape[1]
    x = ops.pad(x, [[0, 0], [1, 1], *([0, 0] for _ in x.shape[2:])])
    return _flat(ops.concatenate([x[:, 1 + block : 1 + block + count] for block in beside], axis=2))
