"""Rows of a cache. Every tensor in one has the rows of the batch as its first axis, or is a scalar."""

import keras
from keras import ops


def repeat_rows(cache, times):
    """Each row `times` times, one behind the other: a row for every beam."""
    if times == 1:
        return cache
    return _map_rows(lambda array: ops.repeat(array, times, axis=0), cache)


# What comes from the encoder: it is the same for all beams of a prompt.
OF_THE_PROMPT = ("contexts", "real_context")


def pick_rows(cache, rows):
    """The rows at int32 `rows` (b,): beams go on from the beam that they come from, one of the same prompt."""
    moving = {name: part for name, part in cache.items() if name not in OF_THE_PROMPT}
    return {**cache, **_map_rows(lambda array: ops.take(array, rows, axis=0), moving)}


def _map_rows(function, cache):
    return keras.tree.map_structure(lambda array: function(array) if len(array.shape) else array, cache)
