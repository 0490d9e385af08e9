"""Functions that gather, pool and scatter the hidden states of a sequence."""

from keras import ops

from .masks import real_tokens


def float_table(embedding):
    """Returns the table of an embedding layer, float (rows, m). A quantized table is converted back to floats."""
    if embedding.quantization_mode is None:
        return ops.convert_to_tensor(embedding.embeddings)
    return embedding(ops.arange(embedding.input_dim, dtype="int32"))


def gather_positions(x, positions):
    """Returns the vectors of x at the given positions.

    Args:
        x: (b, s, m).
        positions: int32 (b, p). A negative position marks an unused entry, for which the vector at position 0 is
            returned.

    Returns: (b, p, m).
    """
    return ops.take_along_axis(x, ops.maximum(positions, 0)[:, :, None], axis=1)


def scatter_positions(x, values, positions):
    """Returns x with new values at the given positions.

    Args:
        x: (b, s).
        values: (b, p), the new values, in the dtype of `x`.
        positions: int32 (b, p). Values at negative positions are ignored. If a position occurs more than once, its
            first value is used.

    Returns: (b, s).
    """
    here = positions[:, None, :] == ops.arange(ops.shape(x)[1], dtype="int32")[None, :, None]
    chosen = ops.take_along_axis(values, ops.argmax(ops.cast(here, "int32"), axis=-1), axis=1)
    return ops.where(ops.any(here, axis=-1), chosen, x)


def first_tokens(x, inputs):
    """Returns the first vector of each sequence.

    Args:
        x: float (b, s, m).
        inputs: the batch from which x was computed.

    Returns: float (b, m), or (b, n, m) for packed rows with `first_positions`. For packed rows without
        `first_positions`, None, so that only heads that need the vectors raise an error.
    """
    if inputs.get("first_positions") is not None:
        return gather_positions(x, inputs["first_positions"])
    return None if inputs.get("sequence_ids") is not None else x[:, 0]


def needed_positions(inputs, positions):
    """Returns the positions that the last block must compute: the first tokens, then `positions`.

    Args:
        inputs: a batch.
        positions: int32 (b, p), negative in unused entries, or None, for which the result is None.

    Returns: int32 (b, n + p), where n is the number of first tokens per row. Unused entries are 0.
    """
    if positions is None:
        return None
    first = inputs.get("first_positions")
    first = ops.zeros_like(positions[:, :1]) if first is None else ops.cast(first, positions.dtype)
    return ops.maximum(ops.concatenate([first, positions], axis=1), 0)


def needed_tokens(x, inputs, positions):
    """Splits the output of the last block into the vectors at `positions` and the first tokens.

    Args:
        x: float (b, n + p, m), the output of the last block at `needed_positions`. If `positions` is None, float (b, s,
            m), its output at all positions.
        inputs: the batch from which x was computed.
        positions: int32 (b, p), or None.

    Returns: (float (b, p, m) or x itself if `positions` is None, the result of `first_tokens`).
    """
    if positions is None:
        return x, first_tokens(x, inputs)
    count = ops.shape(x)[1] - ops.shape(positions)[1]
    if inputs.get("first_positions") is not None:
        first = x[:, :count]
    else:
        first = None if inputs.get("sequence_ids") is not None else x[:, 0]
    return x[:, count:], first


def mean_tokens(x, inputs):
    """Returns the mean of the vectors of each sequence without padding, in the shapes of `first_tokens`.

    The mean is zero for sequences that consist of padding only.
    """
    if real_tokens(inputs) is None:
        return ops.mean(x, axis=1)
    weights = mean_weights(inputs)
    if weights is None:
        return None
    weights = ops.cast(weights if inputs.get("sequence_ids") is not None else weights[:, None], x.dtype)
    means = ops.einsum("bns,bsm->bnm", weights, x)
    return means[:, 0] if inputs.get("sequence_ids") is None else means


def mean_weights(inputs):
    """Returns the share of each token in the mean of its sequence, which is zero for padding.

    Args:
        inputs: a batch.

    Returns: float32 (b, s), or (b, n, s) for packed rows with `first_positions`. None for packed rows without
        `first_positions`.
    """
    sequences, first = inputs.get("sequence_ids"), inputs.get("first_positions")
    real = real_tokens(inputs)
    if real is None:
        real = ops.ones_like(inputs["token_ids"], "bool")
    if sequences is None:
        members = real
    elif first is None:
        return None
    else:
        sequences = ops.convert_to_tensor(sequences)
        here = ops.take_along_axis(sequences, ops.maximum(first, 0), axis=1)
        members = (here[:, :, None] == sequences[:, None, :]) & real[:, None, :]
    members = ops.cast(members, "float32")
    return members / ops.maximum(ops.sum(members, axis=-1, keepdims=True), 1.0)


def last_tokens(x, inputs):
    """Returns the last vector of each sequence that is not padding, in the shapes of `first_tokens`.

    For sequences that consist of padding only, the vector at position 0 is returned.
    """
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
