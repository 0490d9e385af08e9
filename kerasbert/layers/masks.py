"""Attention masks that keep their parts separate.

A dense boolean matrix can no longer be routed to a fused kernel; lengths, windows and causality can. A mask is
therefore passed as its parts, and only the reference path of `attend` calls `.dense()`.
"""

import dataclasses
from typing import Any

from keras import ops


@dataclasses.dataclass(frozen=True)
class AttentionMask:
    """Which keys a query may attend to: those that all given parts allow.

    Args:
        padding_mask: bool (b, k), True where the key is real.
        lengths: int32 (b,), the number of real keys per row, all on the left (right padding).
        sequence_ids: int32 (b, k), packed rows: attention stays within equal ids; 0 is padding.
        query_sequence_ids: int32 (b, q), the sequence ids of the queries; default: those of the last keys.
        causal: whether a query sees no later key.
        query_start: int32 scalar, the column of the first query among the keys; default: the queries are the last ones.
        prefix_mask: bool (b, k), keys that a causal mask shows to every query (prefix language model).
        window: maximum distance of a key from the query on either side (inclusive).
        allowed: bool, broadcastable to (b, h, q, k), for all other cases.
    """

    padding_mask: Any = None
    lengths: Any = None
    sequence_ids: Any = None
    query_sequence_ids: Any = None
    causal: bool = False
    query_start: Any = None
    prefix_mask: Any = None
    window: int | None = None
    allowed: Any = None

    @classmethod
    def from_inputs(cls, inputs, prefix="", **parts):
        """The mask of a batch, from its `padding_mask`, `lengths` and `sequence_ids` (keys preceded by `prefix`)."""
        return cls(
            padding_mask=inputs.get(prefix + "padding_mask"),
            lengths=_lengths(inputs, prefix),
            sequence_ids=inputs.get(prefix + "sequence_ids"),
            **parts,
        )

    def replace(self, **parts):
        return dataclasses.replace(self, **parts)

    def only_causal(self):
        """Whether the mask is causal and has no other part."""
        others = [name for name in self.__dataclass_fields__ if name != "causal"]
        return self.causal and all(getattr(self, name) is None for name in others)

    def of_queries(self, positions):
        """The mask for the queries at `positions`, int32 (b, q). Not for causal masks, windows or `allowed`."""
        if self.sequence_ids is None:
            return self
        return self.replace(query_sequence_ids=ops.take_along_axis(self.sequence_ids, positions, axis=1))

    def dense(self, query_length, key_length):
        """bool, broadcastable to (b, h, query_length, key_length); None when everything is allowed."""
        allowed = self.allowed
        if self.padding_mask is not None:
            allowed = _both(allowed, ops.cast(self.padding_mask, "bool")[:, None, None, :])
        if self.lengths is not None:
            lengths = ops.convert_to_tensor(self.lengths)[:, None]
            allowed = _both(allowed, (ops.arange(key_length) < lengths)[:, None, None, :])
        if self.sequence_ids is not None:
            keys = self.sequence_ids[:, None, None, :]
            queries = (
                self.sequence_ids[:, -query_length:] if self.query_sequence_ids is None else self.query_sequence_ids
            )
            queries = queries[:, None, :, None]
            allowed = _both(allowed, (queries == keys) & (keys > 0))
        if self.causal or self.window is not None:
            start = key_length - query_length if self.query_start is None else self.query_start
            distance = (start + ops.arange(query_length))[:, None] - ops.arange(key_length)
            if self.causal:
                seen = (distance >= 0)[None, None]
                if self.prefix_mask is not None:
                    seen = seen | ops.cast(self.prefix_mask, "bool")[:, None, None, :]
                allowed = _both(allowed, seen)
            if self.window is not None:
                allowed = _both(allowed, (ops.abs(distance) <= self.window)[None, None])
        return allowed


def _both(first, second):
    return second if first is None else ops.logical_and(first, second)


def _lengths(inputs, prefix):
    lengths = inputs.get(prefix + "lengths")
    return None if lengths is None else ops.cast(lengths, "int32")


def real_tokens(inputs, prefix=""):
    """bool (b, s), True at real tokens, from whichever padding key the batch has; None if all are real."""
    if inputs.get(prefix + "padding_mask") is not None:
        return ops.cast(inputs[prefix + "padding_mask"], "bool")
    if inputs.get(prefix + "lengths") is not None:
        return ops.arange(ops.shape(inputs[prefix + "token_ids"])[-1]) < _lengths(inputs, prefix)[:, None]
    if inputs.get(prefix + "sequence_ids") is not None:
        return inputs[prefix + "sequence_ids"] > 0
    return None
