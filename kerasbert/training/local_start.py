"""An initialization for models with learned positions whose first blocks attend to neighboring tokens.

Transformers with learned absolute positions must first learn which positions are neighbors. For most of a short
pretraining run, their loss therefore stays near that of a unigram model. Models with relative or rotary positions do
not have this problem. Here, the position table is initialized with sinusoids, and the query and key kernels are chosen
so that every head of the first blocks attends to the token at a given distance. The architecture stays the same, and
training may change all of these weights.
"""

import keras
import numpy as np
from keras import ops

# Angular frequencies of the sinusoids, in radians per position. The highest lies below pi, so that positions at a
# distance of one differ in all of them. Heads compare positions by those down to LOWEST_READ, which has a period of 16
# positions, since lower ones cannot tell neighbors apart. The lowest has a period of about 2,500 positions.
HIGHEST, LOWEST_READ, LOWEST = 2.5, 0.4, 2.5e-3


def start_with_local_attention(
    backbone: keras.Model,
    num_blocks: int = 2,
    offsets: tuple[int, ...] = (-1, 1, -2, 2),
    strength: float = 1.2,
    deviation: float | None = None,
) -> None:
    """Initializes the position table with sinusoids, and lets the heads of the first blocks attend to neighbors.

    Head h of these blocks attends mainly to the token at distance `offsets[h % len(offsets)]`: the score between
    positions i and j gets the term c * sum_f cos(frequency_f * (i + offset - j)), which is largest for j = i + offset.
    For this, an identity and a rotation are added to the initial query and key kernels.

    Args:
        backbone: a model with a learned position table, and with `MultiHeadAttention` in its blocks, such as `Bert`,
            `Roberta`, `DistilBert` or `GPT2`. The table is as wide as the hidden states, or narrower and projected to
            them, as in `Albert`. If blocks share their weights, the heads of all of them change.
        num_blocks: number of blocks to change, counted from the input.
        offsets: distances in tokens, one for each head; they repeat if there are more heads. Use negative offsets for
            causal models.
        strength: factor of the terms that are added to the kernels. 0 changes only the position table.
        deviation: root mean square of the entries of the new position table. Default: the same as for the token
            embeddings.

    Raises:
        ValueError: if the backbone has no such position table or attention, or an argument is out of range.
    """
    table = _position_table(backbone)
    if not 0 <= num_blocks <= len(backbone.blocks):
        raise ValueError(
            f"`num_blocks` must lie between 0 and the number of blocks, {len(backbone.blocks)}. Received: {num_blocks}."
        )
    if not offsets:
        raise ValueError(f"`offsets` must contain at least one distance, such as (-1, 1). Received: {offsets!r}.")
    attentions = [_attention(backbone, block) for block in backbone.blocks[:num_blocks]]
    rows, width = table.shape
    if deviation is None:
        embeddings = ops.cast(backbone.token_embedding.embeddings, "float32")
        deviation = float(ops.convert_to_numpy(ops.sqrt(ops.mean(ops.square(embeddings)))))
    frequencies = _frequencies(width // 2, min([_head_size(attention) // 2 for attention in attentions], default=0))
    angles = np.arange(rows)[:, None] * frequencies
    table.assign(np.sqrt(2.0) * deviation * np.concatenate([np.sin(angles), np.cos(angles)], axis=1))
    projection = getattr(backbone, "embedding_projection", None)
    for attention in attentions:
        _attend_to(attention, offsets, strength, frequencies, projection and projection.kernel)


def _frequencies(count: int, read: int) -> np.ndarray:
    """Returns angular frequencies in decreasing order. Heads read the first ones, which are at least LOWEST_READ."""
    frequencies, read = np.geomspace(HIGHEST, LOWEST, count), min(count, read)
    if read and frequencies[read - 1] < LOWEST_READ:
        rest = np.geomspace(LOWEST_READ, LOWEST, count - read + 1)[1:]
        frequencies = np.concatenate([np.geomspace(HIGHEST, LOWEST_READ, read), rest])
    return frequencies


def _position_table(backbone):
    """Returns the variable with one vector for each position, of shape (positions, m) or (positions, e) with e < m."""
    layer, width = getattr(backbone, "position_embedding", None), backbone.config.hidden_dim
    table = getattr(layer, "embeddings", None)
    if table is None or table.shape[-1] > width or table.shape[-1] % 2 or not table.trainable:
        received = "none" if table is None else f"{tuple(table.shape)} for hidden states of width {width}"
        raise ValueError(
            "`start_with_local_attention` needs a trainable position table whose width is an even number, and at most "
            f"that of the hidden states. {type(backbone).__name__} has: {received}. Models with relative or rotary "
            "positions do not need this initialization."
        )
    return table


def _attention(backbone, block):
    """Returns the attention layer of a block, which computes queries and keys from the hidden states."""
    block = block[0] if isinstance(block, tuple) else block  # in ALBERT, attention and feed-forward blocks
    attention, width = getattr(block, "attention", None), backbone.config.hidden_dim
    kernels = [getattr(getattr(attention, name, None), "kernel", None) for name in ("query", "key")]
    if not hasattr(attention, "num_heads") or any(kernel is None or kernel.shape[0] != width for kernel in kernels):
        raise ValueError(
            "`start_with_local_attention` needs blocks with an `attention` whose dense layers `query` and `key` read "
            f"the hidden states, as in `MultiHeadAttention`. Received: {type(backbone).__name__}, whose blocks have "
            f"{type(attention).__name__}."
        )
    return attention


def _head_size(attention) -> int:
    return attention.query.kernel.shape[1] // attention.num_heads


def _attend_to(attention, offsets, strength: float, frequencies, projection=None) -> None:
    """Adds terms to the kernels of queries and keys so that head h attends to the token at its offset.

    Args:
        projection: the kernel that maps embeddings to hidden states, (e, m), if there is one. The terms then read the
            embeddings from the hidden states by its pseudo-inverse.
    """
    head_size, width = _head_size(attention), 2 * len(frequencies)
    shape = width, attention.query.kernel.shape[1]
    query, key = np.zeros(shape, "float32"), np.zeros(shape, "float32")
    pairs = np.arange(min(head_size // 2, width // 2))  # a head reads the pairs (sin, cos) of the highest frequencies
    for head in range(attention.num_heads):
        angle = frequencies[pairs] * offsets[head % len(offsets)]
        sin, cos = pairs, width // 2 + pairs
        first = head * head_size + pairs
        second = first + len(pairs)
        query[sin, first] = query[cos, second] = strength
        # The rotation maps the key of position j to the key of position j - offset.
        key[sin, first] = key[cos, second] = strength * np.cos(angle)
        key[cos, first] = -strength * np.sin(angle)
        key[sin, second] = strength * np.sin(angle)
    # No kernel is read as a whole: its parts can be on the devices of several hosts.
    for kernel, term in ((attention.query.kernel, query), (attention.key.kernel, key)):
        if projection is not None:
            rows = ops.cast(projection, "float32")
            term = ops.matmul(ops.transpose(rows), ops.solve(ops.matmul(rows, ops.transpose(rows)), term))
        kernel.assign(kernel + ops.cast(term, kernel.dtype))
