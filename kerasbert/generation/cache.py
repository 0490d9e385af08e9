"""Repeats and selects rows of a cache. The first axis of every tensor in a cache, except scalars, is the batch."""

import keras
from keras import ops


def repeat_rows(cache, times):
    """Repeats each row `times` times in succession, so that every beam of a prompt has a row."""
    if times == 1:
        return cache

    def repeated(array):
        # `ops.repeat` of one row on torch is a view of this row, into which decoding cannot write.
        return ops.take(array, ops.arange(array.shape[0] * times, dtype="int32") // times, axis=0)

    return _map_rows(repeated, cache)


# Entries that depend only on the outputs of the encoder. They are the same for all beams of a prompt.
OF_THE_PROMPT = ("contexts", "real_context")


def pick_rows(cache, rows):
    """Selects rows of a cache.

    Args:
        cache: a dict.
        rows: int32 (b,). Beam i continues beam `rows[i]`, which belongs to the same prompt.
    """
    moving = {name: part for name, part in cache.items() if name not in OF_THE_PROMPT}
    return {**cache, **_map_rows(lambda array: ops.take(array, rows, axis=0), moving)}


def _map_rows(function, cache):
    return keras.tree.map_structure(lambda array: function(array) if len(array.shape) else array, cache)
