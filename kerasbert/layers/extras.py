"""Optional outputs of attention layers and blocks."""

from typing import Any, NamedTuple


class Extras(NamedTuple):
    """The second result of every attention layer and block; fields that were not requested are None.

    Args:
        weights: float32 (b, h, q, k), the attention probabilities before dropout.
        cache: the keys and values so far, each (b, k, h, d).
        cross_weights: float32 (b, h, q, s), the attention probabilities over the output of an encoder.
    """

    weights: Any = None
    cache: Any = None
    cross_weights: Any = None
