"""Predicts examples in batches of several widths, and joins the outputs."""

import keras
import numpy as np

from .programs import program_tokens


def predict_by_width(model, batches, predict):
    """Predicts all examples of a `BucketedBatches`. Returns the outputs in the order of the examples.

    Outputs are padded with zeros to the largest width. Examples are grouped into the widths that minimize the total
    time, which includes the compilation of new widths.

    Args:
        model: the model. The shapes for which it has been compiled are recorded on it.
        batches: a `BucketedBatches` without `shuffle`.
        predict: function that returns the outputs for the batches of one width.
    """
    function, known = getattr(model, "_predicted_shapes", (None, frozenset()))
    if function is not model.predict_function:  # `compile` makes a new function, which has no compiled programs yet
        known = frozenset()
    compiled = [width for rows, width in known if rows == batches.rows]
    batches = batches.for_prediction(program_tokens(model), compiled)
    parts, places = [], []
    for part, examples in batches.parts():
        outputs, count = predict(part), len(examples)
        # The last batch of the narrowest width ends with padding rows.
        parts.append(keras.tree.map_structure(lambda array, count=count: array[:count], outputs))
        places.append(examples)
    shapes = known | {(batches.rows, width) for width in batches.widths}
    object.__setattr__(model, "_predicted_shapes", (model.predict_function, shapes))
    order = np.argsort(np.concatenate(places))
    return keras.tree.map_structure(lambda *arrays: joined(arrays, batches.pads_left)[order], *parts)


def joined(arrays, left=False):
    """Concatenates arrays along the first axis, after padding narrower arrays with zeros to the largest width.

    Args:
        arrays: arrays of shape (b,) or (b, s, ...).
        left: whether to pad on the left rather than on the right.
    """
    if arrays[0].ndim > 1:
        width = max(array.shape[1] for array in arrays)

        def filled(array):
            missing = width - array.shape[1]
            sides = (missing, 0) if left else (0, missing)
            return np.pad(array, [(0, 0), sides] + [(0, 0)] * (array.ndim - 2)) if missing else array

        arrays = [filled(array) for array in arrays]
    return np.concatenate(arrays)


def single(outputs):
    """Converts half-precision outputs to float32."""
    halves = ("float16", "bfloat16")
    return keras.tree.map_structure(lambda x: x.astype("float32") if x.dtype.name in halves else x, outputs)
