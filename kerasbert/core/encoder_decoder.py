"""What backbones with an encoder and a decoder have in common: a batch of two halves."""

import numpy as np

from ..layers.masks import AttentionMask
from .backbone import Backbone
from .inputs import checked_inputs, inputs_are_checked


class EncoderDecoderBackbone(Backbone):
    """Token ids of two sequences in, hidden states of both out.

    A family gives `encode(inputs)`, the encoder's output, and for generation `start_cache(context, batch_size, length)`
    and a `call` with `cache=` on the decoder's inputs alone.
    """

    def example_inputs(self):
        return {"token_ids": np.zeros((1, 2), "int32"), "decoder_token_ids": np.zeros((1, 2), "int32")}

    def __call__(self, inputs, *args, **kwargs):
        if kwargs.get("cache") is None or inputs_are_checked():
            return super().__call__(inputs, *args, **kwargs)
        rows = tuple(inputs["decoder_token_ids"].shape[:1]) if "decoder_token_ids" in inputs else (1,)
        self.check_inputs({"token_ids": np.ones((*rows, 1), "int32"), **inputs})  # nothing is left to encode
        with checked_inputs():
            return super().__call__(inputs, *args, **kwargs)

    def check_inputs(self, inputs):
        """As `Backbone.check_inputs`, of both halves."""
        super().check_inputs(inputs)
        if inputs.get("decoder_token_ids") is None:
            raise ValueError(
                f"{type(self).__name__} is called with `token_ids` and `decoder_token_ids`. Received: "
                f"{sorted(inputs)}. The decoder's are the targets behind the start token "
                f"{self.config.decoder_start_id}; for the encoder alone use encode(inputs)."
            )
        packed = [key for key in ("sequence_ids", "decoder_sequence_ids") if inputs.get(key) is not None]
        if len(packed) == 1:
            raise ValueError(
                "Packed rows have both `sequence_ids` and `decoder_sequence_ids`, which say what belongs together. "
                f"Received: {packed[0]} only."
            )

    def input_limits(self):
        size = self.config.vocabulary_size
        return [*super().input_limits(), ("decoder_token_ids", size, "vocabulary_size")]


def decoder_inputs(inputs):
    """The decoder's half of a batch under the names of a decoder that stands alone: `token_ids`, `padding_mask`, ..."""
    return {key.removeprefix("decoder_"): value for key, value in inputs.items() if key.startswith("decoder_")}


def cross_mask(inputs):
    """The `AttentionMask` of the decoder over the encoder's tokens: real ones, of the same sequence in packed rows."""
    return AttentionMask.from_inputs(inputs, query_sequence_ids=inputs.get("decoder_sequence_ids"))
