"""Recurrence along a sequence as one loop, which is compiled on backends that compile."""

import keras
from keras import ops


def scan_tokens(step, state, inputs, real=None, reverse=False):
    """Carries a state from token to token; at padding, the state of a row does not change.

    Call:
        step: (state, inputs of one token) -> the next state, of the same structure, shapes and dtypes.
        state: nested (b, ...).
        inputs: float (b, s, d).
        real: bool (b, s), True at real tokens; None when all are real.
        reverse: whether to go from the last token to the first.

    Returns: the state after every token, in token order, nested (b, s, ...); the final state.
    """

    def swapped(arrays):
        return keras.tree.map_structure(lambda array: ops.swapaxes(array, 0, 1), arrays)

    def step_or_stay(state, token):
        if real is None:
            following = step(state, token)
        else:
            here, following = token[:, -1] > 0, step(state, token[:, :-1])
            following = keras.tree.map_structure(
                lambda new, old: ops.where(ops.reshape(here, (-1, *[1] * (len(old.shape) - 1))), new, old),
                following,
                state,
            )
        return following, following  # TensorFlow's scan requires outputs that look like its state

    if real is not None:  # as one more column: TensorFlow's scan accepts only one array of unknown length
        inputs = ops.concatenate([inputs, ops.cast(real, inputs.dtype)[:, :, None]], axis=-1)
    last, states = ops.scan(step_or_stay, state, swapped(inputs), reverse=reverse)
    return swapped(states), last
