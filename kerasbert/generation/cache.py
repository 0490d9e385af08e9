"""Selects rows of a cache. The first axis of every tensor in a cache is the batch, unless it is a scalar."""

import keras
from keras import ops


def repeat_rows(cache, times):
    """Repeats each row `times` times in succession: one row per beam."""
    if times == 1:
        return cache
    return _map_rows(lambda array: ops.repeat(array, times, axis=0), cache)


# Outputs of the encoder, which are the same for all beams of a prompt.
OF_THE_PROMPT = ("contexts", "real_context")


def pick_rows(cache, rows):
    """The rows at int32 `rows` (b,): each beam continues from its parent, a beam of the same prompt."""
    moving = {name: part for name, part in cache.items() if name not in OF_THE_PROMPT}
    return {**cache, **_map_rows(lambda array: ops.take(array, rows, axis=0), moving)}


def _map_rows(function, cache):
    return keras.tree.map_structure(lambda array: function(array) if len(array.shape) else array, cache)
