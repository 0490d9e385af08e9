"""Picking vectors out of a sequence."""

from keras import ops


def gather_positions(x, positions):
    """The vectors of `x` at `positions`; a negative position is an unused slot and reads position 0.

    Call:
        x: (b, s, m).
        positions: int32 (b, p).

    Returns: (b, p, m).
    """
    return ops.take_along_axis(x, ops.maximum(positions, 0)[:, :, None], axis=1)


def first_tokens(x, inputs, required=True):
    """The first vector of each sequence: (b, m), or (b, n, m) in packed rows, which say where by `first_positions`.

    Where a packed row does not say it, an error; None if the vectors are not `required`.
    """
    if inputs.get("first_positions") is not None:
        return gather_positions(x, inputs["first_positions"])
    if inputs.get("sequence_ids") is not None:
        if not required:
            return None
        raise ValueError(
            "Pooling a packed row needs to know where its sequences start. Received `sequence_ids` without "
            "`first_positions`. Add `first_positions` (b, n), or use a backbone with pooler=False."
        )
    return x[:, 0]
