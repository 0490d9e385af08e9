"""Base class of encoder-decoder backbones, whose batches hold encoder and decoder inputs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from keras import ops

from ..core.inputs import checked_inputs, inputs_are_checked
from ..layers.embeddings import gather_positions
from ..layers.masks import AttentionMask, real_tokens
from .backbone import Backbone


class EncoderDecoderBackbone(Backbone):
    """A backbone that maps the token ids of sources and targets to the hidden states of encoder and decoder.

    A family implements `encode(inputs)`, which returns the output of the encoder. For generation, it also implements
    `start_cache(context, batch_size, length)`, and its `call` accepts `cache=` together with decoder inputs only.
    """

    shifts_inputs = False  # whether a batch without `decoder_token_ids` is read by the decoder, too, shifted right

    def example_inputs(self):
        example = super().example_inputs()
        return example if self.shifts_inputs else {**example, "decoder_token_ids": example["token_ids"]}

    def __call__(self, inputs: Mapping[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        if kwargs.get("cache") is None or inputs_are_checked():
            return super().__call__(inputs, *args, **kwargs)
        rows = tuple(inputs["decoder_token_ids"].shape[:1]) if "decoder_token_ids" in inputs else (1,)
        self.check_inputs({"token_ids": np.ones((*rows, 1), "int32"), **inputs})  # the encoder's output is in the cache
        with checked_inputs():
            return super().__call__(inputs, *args, **kwargs)

    def check_inputs(self, inputs):
        """Raises a ValueError for invalid encoder or decoder inputs; see `Backbone.check_inputs`."""
        super().check_inputs(inputs)
        if inputs.get("decoder_token_ids") is None:
            if self.shifts_inputs:
                return
            raise ValueError(
                f"{type(self).__name__} needs both `token_ids` and `decoder_token_ids`. Received: {sorted(inputs)}. "
                f"`decoder_token_ids` are the start token {self.config.decoder_start_id} followed by the targets; "
                "to run only the encoder, use encode(inputs)."
            )
        packed = [key for key in ("sequence_ids", "decoder_sequence_ids") if inputs.get(key) is not None]
        if len(packed) == 1:
            raise ValueError(
                "Packed rows need both `sequence_ids` and `decoder_sequence_ids`, which match sources with targets. "
                f"Received: {packed[0]} only."
            )
        self.check_length(inputs, "decoder_")

    def input_limits(self):
        limits = super().input_limits()
        shared = ("token_ids", "position_ids")
        return [*limits, *((f"decoder_{key}", *rest) for key, *rest in limits if key in shared)]


def decoder_inputs(inputs):
    """Returns the decoder inputs of a batch without the prefix of their keys: `token_ids`, `padding_mask`, ..."""
    return {key.removeprefix("decoder_"): value for key, value in inputs.items() if key.startswith("decoder_")}


def cross_mask(inputs):
    """Builds the `AttentionMask` of cross-attention, which hides padding of the source.

    In packed rows, each target attends only to the source with the same number.
    """
    return AttentionMask.from_inputs(inputs, query_sequence_ids=inputs.get("decoder_sequence_ids"))


def cross_cache(x, context, blocks):
    """Returns the entries of a cache that cross-attention reads: the keys and values of each block, and the mask.

    Args:
        x: float (b, s, m), the output of the encoder.
        context: the inputs of the encoder, a batch.
        blocks: the blocks of the decoder.
    """
    real = real_tokens(context)
    return {
        "contexts": [block.cross_attention.keys_and_values(x) for block in blocks],
        "real_context": ops.ones(context["token_ids"].shape, "bool") if real is None else real,
    }


def shifted_right(inputs, start_id):
    """Returns the decoder inputs for a batch that has none: the tokens of the encoder, shifted right by one.

    Each sequence begins with the start token.

    Args:
        inputs: a batch with `token_ids` (b, s).
        start_id: id of the start token, or int32 (b, 1), one for each row.

    Returns: a dict of `decoder_token_ids` (b, s), and `decoder_padding_mask` and `decoder_sequence_ids` if needed.
    """

    def rolled(x):  # `ops.roll`, which LiteRT does not have
        return ops.concatenate([x[:, -1:], x[:, :-1]], axis=1)

    ids: Any = ops.convert_to_tensor(inputs["token_ids"])
    sequences, real = inputs.get("sequence_ids"), real_tokens(inputs)
    first = ops.arange(ops.shape(ids)[1], dtype="int32") == 0
    if sequences is not None:
        first = first | (sequences != rolled(sequences))
    elif real is not None:
        first = first | ops.logical_not(rolled(real))
    half = {"token_ids": ops.where(first, start_id, rolled(ids)), "padding_mask": real}
    half["sequence_ids"] = sequences
    return {f"decoder_{key}": value for key, value in half.items() if value is not None}


def end_tokens(x, inputs, end_id):
    """Returns the vectors of x at the last end token of each sequence, or at its last token if it has no end token.

    Args:
        x: float (b, s, m).
        inputs: the batch from which x was computed.
        end_id: id of the end token.

    Returns: float (b, m), or (b, n, m) for packed rows. None for packed rows without `first_positions`.
    """
    ids: Any = ops.convert_to_tensor(inputs["token_ids"])
    real, sequences, first = real_tokens(inputs), inputs.get("sequence_ids"), inputs.get("first_positions")
    length: Any = ops.shape(ids)[1]
    rank: Any = ops.arange(length, dtype="int32") + ops.cast(ids == end_id, "int32") * length
    rank = rank if real is None else ops.where(real, rank, -1)
    if sequences is None:
        return gather_positions(x, ops.argmax(rank, axis=1)[:, None])[:, 0]
    if first is None:
        return None
    here: Any = ops.take_along_axis(ops.convert_to_tensor(sequences), ops.maximum(first, 0), axis=1)
    rank = ops.where(here[:, :, None] == sequences[:, None, :], rank[:, None, :], -1)
    return gather_positions(x, ops.argmax(rank, axis=-1))
