"""Attention masks that store their conditions (padding, causality, window, ...) separately.

Fused attention kernels accept lengths, windows and causality as arguments, but cannot recognize them in a dense boolean
matrix. So, masks are passed as an `AttentionMask`, and only the reference implementation of `attend` calls `.dense()`.
"""

import dataclasses
from typing import Any

from keras import ops


@dataclasses.dataclass(frozen=True)
class AttentionMask:
    """Specifies which keys each query may attend to. All given conditions must allow a key.

    Args:
        padding_mask: bool (b, k), True for keys that are real tokens.
        lengths: int32 (b,), the number of real keys per row, with all padding on the right.
        sequence_ids: int32 (b, k), for packed rows: queries attend only to keys with the same id, and 0 is padding.
        query_sequence_ids: int32 (b, q), the sequence ids of the queries. Default: the ids of the last q keys.
        causal: whether queries attend only to keys at their position or before it.
        query_start: int32 scalar, the position of the first query among the keys. Default: the queries are the last q
            keys.
        prefix_mask: bool (b, k), True for keys to which all queries attend despite `causal` (prefix language models).
        window: maximum distance between query and key, in tokens, in both directions.
        allowed: bool, broadcastable to (b, h, q, k), for any other condition: True where attention is allowed.
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
        """Creates the mask of a batch from its `padding_mask`, `lengths` and `sequence_ids`.

        Args:
            inputs: a batch.
            prefix: prefix of these three keys, such as "decoder_".
            **parts: other fields of the mask.
        """
        return cls(
            padding_mask=inputs.get(prefix + "padding_mask"),
            lengths=_lengths(inputs, prefix),
            sequence_ids=inputs.get(prefix + "sequence_ids"),
            **parts,
        )

    def replace(self, **parts):
        """Returns a copy of the mask with other values for the given fields."""
        return dataclasses.replace(self, **parts)

    def only_causal(self):
        """Whether the mask is causal and has no other condition."""
        others = [name for name in self.__dataclass_fields__ if name != "causal"]
        return self.causal and all(getattr(self, name) is None for name in others)

    def of_queries(self, positions):
        """Returns the mask for only the queries at `positions`, int32 (b, q).

        Causal masks, windows and `allowed` are not supported.
        """
        if self.sequence_ids is None:
            return self
        return self.replace(query_sequence_ids=ops.take_along_axis(self.sequence_ids, positions, axis=1))

    def dense(self, query_length, key_length):
        """Returns the mask as one bool tensor, broadcastable to (b, h, query_length, key_length).

        True where attention is allowed. None if everything is allowed.
        """
        allowed = self.allowed
        if self.padding_mask is not None:
            allowed = _both(allowed, ops.cast(self.padding_mask, "bool")[:, None, None, :])
        if self.lengths is not None:
            lengths = ops.convert_to_tensor(self.lengths)[:, None]
            allowed = _both(allowed, (_places(key_length) < lengths)[:, None, None, :])
        if self.sequence_ids is not None:
            keys = self.sequence_ids[:, None, None, :]
            queries = (
                self.sequence_ids[:, -query_length:] if self.query_sequence_ids is None else self.query_sequence_ids
            )
            queries = queries[:, None, :, None]
            allowed = _both(allowed, (queries == keys) & (keys > 0))
        if self.causal or self.window is not None:
            start = key_length - query_length if self.query_start is None else self.query_start
            distance = (start + _places(query_length))[:, None] - _places(key_length)
            if self.causal:
                seen = (distance >= 0)[None, None]
                if self.prefix_mask is not None:
                    seen = seen | ops.cast(self.prefix_mask, "bool")[:, None, None, :]
                allowed = _both(allowed, seen)
            if self.window is not None:
                allowed = _both(allowed, (ops.abs(distance) <= self.window)[None, None])
        return allowed


def _places(length):
    return ops.arange(length, dtype="int32")  # without the dtype, torch could not trace an unknown length


def _both(first, second):
    return second if first is None else ops.logical_and(first, second)


def _lengths(inputs, prefix):
    lengths = inputs.get(prefix + "lengths")
    return None if lengths is None else ops.cast(lengths, "int32")


def real_tokens(inputs, prefix=""):
    """Returns bool (b, s), True at tokens that are not padding, or None if no key of the batch describes padding.

    Args:
        inputs: a batch, which may have a `padding_mask`, `lengths` or `sequence_ids`.
        prefix: prefix of these keys, such as "decoder_".
    """
    if inputs.get(prefix + "padding_mask") is not None:
        return ops.cast(inputs[prefix + "padding_mask"], "bool")
    if inputs.get(prefix + "lengths") is not None:
        return _places(ops.shape(inputs[prefix + "token_ids"])[-1]) < _lengths(inputs, prefix)[:, None]
    if inputs.get(prefix + "sequence_ids") is not None:
        return inputs[prefix + "sequence_ids"] > 0
    return None
