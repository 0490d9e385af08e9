"""Optional outputs of attention layers and blocks."""

from typing import Any, NamedTuple


class Extras(NamedTuple):
    """The second return value of every attention layer and block. Fields that were not requested are None.

    Args:
        weights: float32 (b, h, q, k), the attention probabilities before dropout.
        cache: tuple of the keys and values of all tokens so far, each (b, k, h, d).
        cross_weights: float32 (b, h, q, s), the probabilities of the cross-attention to the output of an encoder.
    """

    weights: Any = None
    cache: Any = None
    cross_weights: Any = None
