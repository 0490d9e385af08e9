"""Base class of encoder-decoder backbones, whose batches hold encoder and decoder inputs."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.inputs import checked_inputs, inputs_are_checked
from ..layers.masks import AttentionMask
from .backbone import Backbone


class EncoderDecoderBackbone(Backbone):
    """A backbone that maps the token ids of sources and targets to the hidden states of encoder and decoder.

    A family implements `encode(inputs)`, which returns the output of the encoder. For generation, it also implements
    `start_cache(context, batch_size, length)`, and its `call` accepts `cache=` together with decoder inputs only.
    """

    def example_inputs(self):
        example = super().example_inputs()
        return {**example, "decoder_token_ids": example["token_ids"]}

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

    def input_limits(self):
        size = self.config.vocabulary_size
        return [*super().input_limits(), ("decoder_token_ids", size, "vocabulary_size")]


def decoder_inputs(inputs):
    """Returns the decoder inputs of a batch without the prefix of their keys: `token_ids`, `padding_mask`, ..."""
    return {key.removeprefix("decoder_"): value for key, value in inputs.items() if key.startswith("decoder_")}


def cross_mask(inputs):
    """Builds the `AttentionMask` of cross-attention, which hides padding of the source.

    In packed rows, each target attends only to the source with the same number.
    """
    return AttentionMask.from_inputs(inputs, query_sequence_ids=inputs.get("decoder_sequence_ids"))
