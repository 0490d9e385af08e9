"""Recurrence along a sequence as one loop, which is compiled on JAX and TensorFlow."""

import keras
from keras import ops


def scan_tokens(step, state, inputs, real=None, reverse=False):
    """Runs a recurrent cell over the tokens of a batch. Padding does not change the state.

    Args:
        step: function that takes the state and the inputs of one token, float (b, d), and returns the next state, with
            the same structure, shapes and dtypes.
        state: the initial state, a nested structure of tensors (b, ...).
        inputs: float (b, s, d).
        real: bool (b, s), True at real tokens. None: all tokens are real.
        reverse: whether to process the tokens from last to first.

    Returns: (states, final state), where states has the structure of the state, with tensors (b, s, ...): the state
        after each token, in the order of the tokens.
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
        return following, following  # TensorFlow's scan requires that outputs have the structure of the state

    if real is not None:  # appended as a column, because TensorFlow's scan accepts only one array of unknown length
        inputs = ops.concatenate([inputs, ops.cast(real, inputs.dtype)[:, :, None]], axis=-1)
    last, states = ops.scan(step_or_stay, state, swapped(inputs), reverse=reverse)
    return swapped(states), last
