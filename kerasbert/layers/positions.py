"""Where a token stands in its sequence."""

from keras import ops

from .masks import real_tokens


def token_positions(inputs, prefix="", counted=False):
    """Position of every token within its sequence, from 0.

    Packed rows (`sequence_ids`) start again at each sequence. `counted=True` numbers real tokens only, so that padding
    on the left moves nothing (RoBERTa); otherwise columns are numbered (BERT).

    Call:
        inputs: a batch with `token_ids` (b, s) and, optionally, `position_ids`, `sequence_ids` or a padding key.

    Returns: int32 (b, s) or (1, s). With `counted`, the positions of padding repeat the last real one (-1 before any).
    """
    if inputs.get(prefix + "position_ids") is not None:
        return inputs[prefix + "position_ids"]
    length = inputs[prefix + "token_ids"].shape[-1]
    columns = ops.arange(length, dtype="int32")[None, :]
    sequences = inputs.get(prefix + "sequence_ids")
    if sequences is not None:
        same_sequence = sequences[:, :, None] == sequences[:, None, :]
        earlier = columns[:, :, None] > columns[:, None, :]
        return ops.sum(ops.cast(same_sequence & earlier, "int32"), axis=-1)
    if counted:
        real = real_tokens(inputs, prefix)
        if real is not None:
            return ops.cumsum(ops.cast(real, "int32"), axis=-1) - 1
    return columns
