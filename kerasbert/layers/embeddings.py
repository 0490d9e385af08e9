"""Functions that gather, pool and scatter vectors of a sequence, and gradient-disentangled embeddings."""

from keras import ops

from .composite import Layer
from .masks import real_tokens


def gather_positions(x, positions):
    """The vectors of `x` at `positions`; a negative position is an unused slot and reads position 0.

    Call:
        x: (b, s, m).
        positions: int32 (b, p).

    Returns: (b, p, m).
    """
    return ops.take_along_axis(x, ops.maximum(positions, 0)[:, :, None], axis=1)


def scatter_positions(x, values, positions):
    """`x` with `values` at `positions`; a negative position is an unused slot. Ties go to the first slot.

    Call:
        x: (b, s).
        values: (b, p), of the dtype of `x`.
        positions: int32 (b, p).

    Returns: (b, s).
    """
    here = positions[:, None, :] == ops.arange(ops.shape(x)[1], dtype="int32")[None, :, None]
    chosen = ops.take_along_axis(values, ops.argmax(ops.cast(here, "int32"), axis=-1), axis=1)
    return ops.where(ops.any(here, axis=-1), chosen, x)


def first_tokens(x, inputs):
    """The first vector of each sequence: (b, m), or (b, n, m) for packed rows with `first_positions`.

    None for packed rows without `first_positions`; only heads that need the vectors raise an error then.
    """
    if inputs.get("first_positions") is not None:
        return gather_positions(x, inputs["first_positions"])
    return None if inputs.get("sequence_ids") is not None else x[:, 0]


def needed_positions(inputs, positions):
    """int32 (b, n + p): the positions of `first_tokens`, then `positions` (b, p), 0 in unused slots; None for None."""
    if positions is None:
        return None
    first = inputs.get("first_positions")
    first = ops.zeros_like(positions[:, :1]) if first is None else ops.cast(first, positions.dtype)
    return ops.maximum(ops.concatenate([first, positions], axis=1), 0)


def needed_tokens(x, inputs, positions):
    """(vectors at `positions`, first tokens) of x, the output at `needed_positions`; (x, first tokens) for None."""
    if positions is None:
        return x, first_tokens(x, inputs)
    count = ops.shape(x)[1] - ops.shape(positions)[1]
    if inputs.get("first_positions") is not None:
        first = x[:, :count]
    else:
        first = None if inputs.get("sequence_ids") is not None else x[:, 0]
    return x[:, count:], first


def first_real_tokens(x, inputs):
    """As `first_tokens`, but skips padding on the left."""
    real = real_tokens(inputs)
    if real is None or inputs.get("sequence_ids") is not None:
        return first_tokens(x, inputs)
    return gather_positions(x, ops.argmax(real, axis=1)[:, None])[:, 0]


def mean_tokens(x, inputs):
    """The mean vector of each sequence without padding, in the shapes of `first_tokens`; zeros if there is no token."""
    sequences, first = inputs.get("sequence_ids"), inputs.get("first_positions")
    real = real_tokens(inputs)
    if real is None:
        return ops.mean(x, axis=1)
    if sequences is None:
        members = real[:, None, :]
    elif first is None:
        return None
    else:
        sequences = ops.convert_to_tensor(sequences)
        here = ops.take_along_axis(sequences, ops.maximum(first, 0), axis=1)
        members = (here[:, :, None] == sequences[:, None, :]) & real[:, None, :]
    members = ops.cast(members, "float32")
    members = members / ops.maximum(ops.sum(members, axis=-1, keepdims=True), 1.0)
    means = ops.einsum("bns,bsm->bnm", ops.cast(members, x.dtype), x)
    return means[:, 0] if sequences is None else means


def last_tokens(x, inputs):
    """The last vector of each sequence that is not padding, in the shapes of `first_tokens`; the first if all are."""
    sequences, first = inputs.get("sequence_ids"), inputs.get("first_positions")
    if sequences is None:
        real = real_tokens(inputs)
        if real is None:
            return x[:, -1]
        last = ops.max(ops.where(real, ops.arange(ops.shape(x)[1], dtype="int32"), 0), axis=1)
        return gather_positions(x, last[:, None])[:, 0]
    if first is None:
        return None
    here = ops.take_along_axis(ops.convert_to_tensor(sequences), ops.maximum(first, 0), axis=1)
    lengths = ops.sum(ops.cast(here[:, :, None] == sequences[:, None, :], "int32"), axis=-1)
    return gather_positions(x, first + lengths - 1)


def pooled(pooler, x, inputs):
    """The output of the pooler for the first tokens; None without a pooler or without first tokens."""
    first = None if pooler is None else first_tokens(x, inputs)
    return None if first is None else pooler(first)


class DisentangledEmbedding(Layer):
    """A table that adds a trained difference to another table: stop_gradient(base) + difference.

    Gradient-disentangled embedding sharing (He, Gao, Chen 2021, arXiv 2111.09543, section 3.3): lookups through
    this layer train only the difference, which starts at zero; direct lookups in the base train the base.

    Args:
        base: the embedding layer to add to.

    Call:
        ids: int32.

    Returns: float, as from an embedding layer.
    """

    def __init__(self, base, **kwargs):
        super().__init__(**kwargs)
        self.base = base

    def build(self, ids_shape=None):
        self.difference = self.add_weight(name="difference", shape=self.base.embeddings.shape, initializer="zeros")

    @property
    def embeddings(self):
        return ops.stop_gradient(ops.convert_to_tensor(self.base.embeddings)) + self.difference

    def call(self, ids):
        base = ops.stop_gradient(ops.take(self.base.embeddings, ids, axis=0))
        return ops.cast(base + ops.take(self.difference, ids, axis=0), self.compute_dtype)
