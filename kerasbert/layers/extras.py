"""What attention layers and blocks return beside their output, whatever they are asked for."""

from typing import Any, NamedTuple


class Extras(NamedTuple):
    """The second part of what every attention layer and block returns; None where it was not asked for.

    Args:
        weights: float32 (b, h, q, k), the attention probabilities before dropout.
        cache: the keys and values so far, each (b, k, h, d).
        cross_weights: float32 (b, h, q, s), the probabilities of the attention to an encoder.
    """

    weights: Any = None
    cache: Any = None
    cross_weights: Any = None
