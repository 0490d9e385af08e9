"""Recurrence along a sequence, in one loop that is compiled where the backend compiles."""

import keras
from keras import ops


def scan_tokens(step, state, inputs, real=None, reverse=False):
    """Carries a state from token to token; over padding a row keeps the state that it has.

    Call:
        step: (state, inputs of one token) -> the next state, of the same structure, shapes and dtypes.
        state: nested (b, ...).
        inputs: nested (b, s, ...).
        real: bool (b, s), True at real tokens; None when all are real.
        reverse: from the last token to the first.

    Returns: the state behind every token, in their order, nested (b, s, ...); the state that was reached last.
    """

    def swapped(arrays):
        return keras.tree.map_structure(lambda array: ops.swapaxes(array, 0, 1), arrays)

    def step_or_stay(state, token):
        following = step(state, token["inputs"])
        if real is not None:
            here = token["real"]
            following = keras.tree.map_structure(
                lambda new, old: ops.where(ops.reshape(here, (-1, *[1] * (len(old.shape) - 1))), new, old),
                following,
                state,
            )
        return following, following  # TensorFlow's scan wants outputs that are like its state

    tokens = {"inputs": inputs} if real is None else {"inputs": inputs, "real": ops.cast(real, "bool")}
    last, states = ops.scan(step_or_stay, state, swapped(tokens), reverse=reverse)
    return swapped(states), last
