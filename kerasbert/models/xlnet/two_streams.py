"""Two-stream attention: the content stream has access to each token, the query stream only to its position.

Yang et al. 2019, arXiv 1906.08237, sections 2.3 to 2.6 and appendix A.2.
"""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from ...backend.compilation import concrete_array
from ...layers.attention import attend, attention_probabilities, merge_heads, split_heads
from ...layers.composite import Composite, Layer
from ...layers.dense import Dense
from ...layers.dropout import Dropout
from ...layers.embeddings import gather_positions
from ...layers.extras import Extras
from ...layers.masks import AttentionMask, real_tokens
from ...layers.memory import memory_of
from ...layers.relative_attention import relative_shift

# === Attention masks of the two streams ===


@dataclasses.dataclass(frozen=True)
class StreamView:
    """The attention mask of one stream, and the positions and segments of its queries.

    Args:
        mask: the `AttentionMask` of the stream.
        other_segment: bool (b, q, k), True if query and key are in different segments. None: all are in the same.
        places: int32 (b, q), the position of each query in the row. None: the queries are all tokens in order.
        sees_nothing: bool (b, q), True for queries that may not attend to any key. None: there are no such queries.
    """

    mask: AttentionMask
    other_segment: Any = None
    places: Any = None
    sees_nothing: Any = None


@dataclasses.dataclass(frozen=True)
class SharedInputs:
    """Inputs that all blocks share.

    Args:
        views: list with the `StreamView` of each stream.
        encodings: float (1, r, m), the sinusoidal encodings of r distances in decreasing order. For s tokens and a
            memory of mem tokens, the first distance is s + mem - 1. With `backward`, (2, r, m): the second row holds
            the encodings of the negated distances.
        backward: bool (b,), True for rows that use the negated distances. None: there are no such rows.
        relative_queries: a `RelativeQueries` that all blocks share, or None if each block has a separate one.
    """

    views: list
    encodings: Any
    backward: Any = None
    relative_queries: Any = None


def _visible(inputs):
    """bool (b, s, s), True where the permutation lets token i attend to token j; None without a permutation."""
    if inputs.get("query_ranks") is not None:
        queries, keys = (ops.convert_to_tensor(inputs[name]) for name in ("query_ranks", "key_ranks"))
        return queries[:, :, None] > keys[:, None, :]
    if inputs.get("permutation_mask") is not None:
        return ops.logical_not(ops.cast(inputs["permutation_mask"], "bool"))
    return None


def stream_views(inputs, causal=False, same_length=False):
    """Returns the `StreamView` of the content stream and, if there is one, of the query stream.

    Section 2.3, equations 1 and 2. The query stream exists if a permutation and `masked_positions` are given.

    Args:
        inputs: a batch.
        causal: whether tokens attend only to themselves and earlier tokens.
        same_length: with `causal`, whether a token attends to at most as many earlier tokens as the memory holds.
    """
    length, (memory, remembered) = ops.shape(inputs["token_ids"])[1], memory_of(inputs)
    memory_length = 0 if memory is None else memory.shape[2]
    mask = AttentionMask.from_inputs(inputs, causal=causal, window=memory_length if causal and same_length else None)
    if memory is not None:
        real = real_tokens(inputs)
        real = ops.ones_like(inputs["token_ids"], "bool") if real is None else real
        mask = mask.replace(lengths=None, padding_mask=ops.concatenate([remembered, real], axis=1))
    other_segment = None
    if inputs.get("segment_ids") is not None:  # tokens in the memory count as segment 0
        segments = ops.convert_to_tensor(inputs["segment_ids"])
        other_segment = segments[:, :, None] != ops.pad(segments, ((0, 0), (memory_length, 0)))[:, None, :]
    visible, slots = _visible(inputs), inputs.get("masked_positions")
    if visible is None:
        return [StreamView(mask, other_segment)]
    # Both streams attend to the memory; a token of the content stream also attends to itself.
    visible = ops.pad(visible, ((0, 0), (0, 0), (memory_length, 0)), constant_values=True)
    itself = ops.arange(length, dtype="int32")[:, None] + memory_length == ops.arange(
        length + memory_length, dtype="int32"
    )
    views = [StreamView(mask.replace(allowed=(visible | itself)[:, None]), other_segment)]
    if slots is not None:
        slots = ops.maximum(ops.convert_to_tensor(slots), 0)
        mask = mask.replace(allowed=visible[:, None])
        allowed = gather_positions(mask.dense(length, length + memory_length)[:, 0], slots)
        other_segment = None if other_segment is None else gather_positions(other_segment, slots)
        sees_nothing = ops.logical_not(ops.any(allowed, axis=-1))
        views.append(StreamView(AttentionMask(allowed=allowed[:, None]), other_segment, slots, sees_nothing))
    return views


def check_permutation(inputs):
    """Raises a ValueError if the permutation is incomplete, has the wrong shape or hides every token of a row."""
    shape = tuple(inputs["token_ids"].shape)
    queries, keys, mask = (inputs.get(name) for name in ("query_ranks", "key_ranks", "permutation_mask"))
    if (queries is None) != (keys is None) or (queries is not None and mask is not None):
        given = [name for name in ("query_ranks", "key_ranks", "permutation_mask") if inputs.get(name) is not None]
        raise ValueError(
            "A permutation must be given by `query_ranks` and `key_ranks`, or by `permutation_mask` alone. Received: "
            f"{', '.join(given)}."
        )
    if mask is not None and tuple(mask.shape) != (*shape, shape[1]):
        raise ValueError(f"`permutation_mask` must be (b, s, s), {(*shape, shape[1])}. Received: {tuple(mask.shape)}.")
    if inputs.get("memory") is not None:
        return
    queries, keys, mask, slots = map(concrete_array, (queries, keys, mask, inputs.get("masked_positions")))
    if mask is not None:
        hidden = (mask.astype(bool) | np.eye(shape[1], dtype=bool)).all(axis=(1, 2))
    elif queries is not None and keys is not None:
        hidden = queries.max(axis=1) <= keys.min(axis=1)
    else:
        return
    used = (slots >= 0).any(axis=1) if slots is not None else shape[1] > 1
    if (hidden & used).any():
        raise ValueError(
            "A permutation must let at least one token attend to another. Received: one that hides everything in row "
            f"{int((hidden & used).argmax())}. In `permutation_mask`, True means hidden; with ranks, token i attends "
            "to token j if query_ranks[i] > key_ranks[j]."
        )


# === Attention ===


class RelativeQueries(Layer):
    """Adds a learned vector to the queries for each of the three attention scores: by content, distance and segment.

    Args:
        initializer: initializer of the three vectors.

    Call:
        query: float (b, q, h, d).

    Returns: a tuple of three queries, each float (b, q, h, d).
    """

    def __init__(self, initializer, **kwargs):
        super().__init__(**kwargs)
        self.initializer = initializer

    def build(self, shape):
        self.content, self.distance, self.segment = (
            self.add_weight(name=name, shape=shape[-2:], initializer=self.initializer)
            for name in ("content", "distance", "segment")
        )

    def call(self, query):
        return query + self.content, query + self.distance, query + self.segment


class TwoStreamAttention(Composite):
    """Relative attention in which the content stream, and optionally a query stream, attend to the content stream.

    The score of a key is the sum of a score by content, a score by distance and a score by segment (appendix A.2).

    Args:
        hidden_dim: width m of the streams.
        num_heads: number of attention heads. Must divide `hidden_dim`.
        dropout: dropout rate of the attention probabilities.
        kernel_initializer: initializer of all weights.
        untied_queries: whether this layer has a separate `RelativeQueries`. Otherwise it uses the one in `shared`.

    Call:
        streams: list of the hidden states of the content stream, float (b, s, m), and optionally those of the query
            stream, float (b, p, m).
        shared: a `SharedInputs`.
        memory: float (b, mem, m), hidden states of the preceding tokens, or None.
        return_weights: whether to return the attention probabilities of the content stream.

    Returns: a list with the output of each stream, in the shape of its input, and `Extras` with the attention
        probabilities (b, h, s, mem + s) if requested.
    """

    def __init__(self, hidden_dim, num_heads, dropout, kernel_initializer, untied_queries=True, **kwargs):
        super().__init__(**kwargs)
        common: dict[str, Any] = dict(dtype=self.dtype_policy)
        dense: dict[str, Any] = dict(use_bias=False, kernel_initializer=kernel_initializer, **common)
        self.num_heads = num_heads
        self.query = Dense(hidden_dim, name="query", **dense)
        self.key = Dense(hidden_dim, name="key", **dense)
        self.value = Dense(hidden_dim, name="value", **dense)
        self.distance = Dense(hidden_dim, name="distance", **dense)
        self.project = Dense(hidden_dim, name="project", **dense)
        self.relative_queries = None
        if untied_queries:
            self.relative_queries = RelativeQueries(kernel_initializer, name="relative_queries", **common)
        self.segment_embedding = keras.layers.Embedding(
            2, hidden_dim, kernel_initializer, name="segment_embedding", **common
        )
        self.dropout = Dropout(dropout, dtype="float32", name="dropout")

    def call(self, streams, shared=None, memory=None, return_weights=False, training=None):
        context = streams[0] if memory is None else ops.concatenate([memory, streams[0]], axis=1)
        key = split_heads(self.key(context), self.num_heads)
        value = split_heads(self.value(context), self.num_heads)
        distances = split_heads(self.distance(shared.encodings), self.num_heads)
        segments = split_heads(self.segment_embedding(ops.arange(2, dtype="int32")[None]), self.num_heads)[0]
        dropout = self.dropout if training and self.dropout.rate > 0 else None
        scale = key.shape[-1] ** -0.5

        outputs, weights = [], None
        for x, view in zip(streams, shared.views, strict=True):
            query = split_heads(self.query(x), self.num_heads)
            by_content, by_distance, by_segment = (self.relative_queries or shared.relative_queries)(query)
            bias = _distance_scores(by_distance * scale, distances, shared.backward)
            bias = _moved_to_keys(bias, view.places, ops.shape(streams[0])[1], ops.shape(key)[1])
            same, other = ops.split(ops.einsum("bqhd,ghd->bhqg", by_segment * scale, segments), 2, axis=-1)
            bias = bias + (same if view.other_segment is None else ops.where(view.other_segment[:, None], other, same))
            y = attend(by_content, key, value, view.mask, bias, scale, dropout)
            if view.sees_nothing is not None:
                y = ops.where(view.sees_nothing[:, :, None, None], ops.zeros((), y.dtype), y)
            outputs.append(self.project(merge_heads(y)))
            if return_weights and weights is None:
                weights = attention_probabilities(by_content, key, view.mask, bias, scale)
        return outputs, Extras(weights)


def _distance_scores(query, distances, backward):
    """Computes one score for each query and distance, float (b, h, q, r).

    Args:
        query: float (b, q, h, d).
        distances: float (1, r, h, d), or (2, r, h, d) with `backward`; the second row is for backward texts.
        backward: bool (b,), or None.
    """
    if backward is None:
        return ops.einsum("bqhd,rhd->bhqr", query, distances[0])
    distances = ops.where(backward[:, None, None, None], distances[1:], distances[:1])
    return ops.einsum("bqhd,brhd->bhqr", query, distances)


def _moved_to_keys(scores, places, num_tokens, num_keys):
    """Rearranges scores with one column per distance, (b, h, q, r), to one column per key, (b, h, q, k).

    Args:
        scores: float (b, h, q, r).
        places: int32 (b, q), the position of each query among the last `num_tokens` keys. None: the queries are these
            tokens in order.
        num_tokens: number of tokens in a row, without the memory.
        num_keys: number of keys k, including the memory.
    """
    if places is None:
        return relative_shift(scores, num_keys)
    index = num_tokens - 1 - places[:, :, None] + ops.arange(num_keys, dtype="int32")
    index = ops.minimum(index, ops.shape(scores)[-1] - 1)  # causal models have no scores for later keys
    return ops.take_along_axis(scores, index[:, None], axis=-1)
