"""Converts what users pass to `fit`, `evaluate` and `predict` to `Batches`, or to batches of arrays."""

import difflib
import inspect
import math
import numbers

import keras
import numpy as np

from ..backend.keras_adapter import TrainingMode
from ..core.inputs import check_any_weight, check_arrays, check_keys, check_numbers
from ..data.batches.batches import Batches, ExampleBatches
from ..data.columns import values_of
from ..data.counts import check_counts
from ..data.tasks.labels import check_clear, index_of
from .runs import BatchesRun, report_interval
from .sources import KINDS, is_text, unpacked


class UserData(TrainingMode):
    """A Keras model that accepts columns of pandas, polars, pyarrow and datasets where it accepts lists."""

    needs_targets = False  # whether training and evaluation on texts and arrays require a y

    def data_of(self, x, y, sample_weight):
        """Converts (x, y, sample_weight), any of which may be columns of a table, to lists, arrays or dicts of arrays.

        Other sources of batches are returned unchanged.
        """
        return self.examples_of(x), self.targets_of(y), _values_of_each(sample_weight, "weights")

    def _validation(self, data):
        """Converts `validation_data` to the form of `data_of`."""
        if isinstance(data, list) and len(data) in (2, 3) and not isinstance(data[0], (str, tuple)):
            data = tuple(data)  # Keras accepts lists, too
        if isinstance(data, tuple) and len(data) > 3:
            raise ValueError(
                f"`validation_data` must be (x, y) or (x, y, sample_weight). Received: a tuple of {len(data)}."
            )
        if isinstance(data, tuple):
            return self.data_of(*(*data, None, None)[:3])
        x = self.examples_of(data)
        if self.needs_targets and self._is_ours(x) and not isinstance(x, Batches):
            raise self._needs_targets("`validation_data` without them. Use validation_data=(x, y)")
        return x, None, None

    def examples_of(self, x):
        """Converts user data to the form that this class reads. Overridden by classes that accept columns of texts."""
        return values_of(x)

    def targets_of(self, y):
        """Converts targets, which may be columns, to lists or arrays, or a dict of these."""
        return _values_of_each(y, "targets")

    def array_targets(self, y):
        """Converts targets that are passed with arrays, which may be names of labels. Default: no change."""
        return y

    def inputs_among(self, x, y, sample_weight):
        """Returns the inputs of a batch, whose targets `predict` does not need.

        Raises:
            ValueError: if the targets are texts that are no labels, such as the second texts of pairs.
        """
        names = getattr(self, "labels", None)
        if names and isinstance(y, list) and isinstance(y[0], str) and not {*y} & {*names}:
            raise ValueError(
                f"The texts beside the inputs must be labels, {names}. Received: {y[0]!r:.60}. Pairs of texts must be "
                'tuples, or {"text": texts, "text_pair": texts}.'
            )
        return x

    def _check_targets(self, x, y):
        if self.needs_targets and y is None and self._is_ours(x) and not isinstance(x, Batches):
            raise self._needs_targets("y=None. Use fit(x, y), or predict(x)")

    def _needs_targets(self, received):
        return ValueError(f"{type(self).__name__} needs targets. Received: {received}.")

    def check_training(self, x, y, batch_size):
        """Raises a ValueError if nothing can be learned from the texts of a run and their targets.

        Args:
            x, y: texts and targets, as `data_of` returns them.
            batch_size: number of examples in a batch.
        """

    def _is_ours(self, x):
        """Whether x is of a type that this package converts to `Batches` itself, rather than a Keras data source."""
        return isinstance(x, (Batches, dict, list, tuple)) or is_text(x)

    def _run_of_batches(self, x, epochs, start, steps_per_epoch, options):
        """Returns the `BatchesRun` for a `Batches`, or for texts or arrays, whose `options` are those of `_batches`."""
        if start and (isinstance(x, Batches) or not 0 < start < epochs):
            raise ValueError(f"`initial_epoch` needs texts or arrays, and must be in [0, {epochs}). Received: {start}.")
        if not isinstance(x, Batches):
            if steps_per_epoch is not None:
                raise ValueError(
                    "An epoch of texts or arrays is one pass over them, and `steps_per_epoch` is for Batches and other "
                    f"sources of batches. Received: steps_per_epoch={steps_per_epoch}. Pass fewer examples."
                )
            if is_text(x):
                self.check_training(x, options["y"], options["batch_size"])
            batches = self._batches(x, epochs=epochs, **options)
            return BatchesRun(batches, len(batches) // epochs, start)
        if epochs != 1 or options["y"] is not None:
            raise ValueError(
                "A Batches contains all steps of the run, and the targets. Received: "
                f"epochs={epochs}, y={type(options['y']).__name__}. Make the Batches longer, and omit `epochs` and `y`."
            )
        return BatchesRun(x, report_interval(len(x), steps_per_epoch))

    def _batches(self, x, y, sample_weight, batch_size, epochs, seed, shuffle, class_weight=None):
        """Returns the `Batches` for texts or a dict of arrays, as `data_of` returns them; see `fit`."""
        check_numbers(x, y if isinstance(y, np.ndarray) else None, sample_weight)  # before the first step
        if class_weight is not None:
            class_weight = class_numbers(class_weight, getattr(self, "labels", []))
            sample_weight = class_weighted(self.encode_labels(y), sample_weight, class_weight)
        check_any_weight(sample_weight)
        if is_text(x):
            return self.text_batches(x, y, sample_weight, batch_size, epochs, seed, shuffle)
        if isinstance(x, dict):
            x = {key: np.asarray(array) for key, array in x.items() if array is not None}
            inputs = self.inputs_of_backbone(x)  # checked before batches are padded to their full size
            check_keys(inputs, self.backbone.extra_inputs)
            check_arrays(inputs)
            y = None if y is None else self.array_targets(y)
            return ExampleBatches(x, y, sample_weight, batch_size, epochs=epochs, seed=seed, shuffle=shuffle)
        first = f" that begins with {x[0]!r:.40}. A text must be a str" if isinstance(x, list) else ""
        raise ValueError(f"Data must be {KINDS}. Received: a {type(x).__name__}{first}.")

    def batches_for_prediction(self, x, batch_size):
        """Returns the `Batches` of texts or arrays, in order."""
        return self._batches(x, None, None, batch_size, epochs=1, seed=0, shuffle=False)

    def _converted(self, batch, for_prediction=False):
        """Converts a batch of a dataset to a tuple of arrays (x, y, sample_weight), without items that are None.

        Texts are encoded, and the arrays are checked.
        """
        x, y, sample_weight = unpacked(batch)
        if self.needs_targets and y is None and not for_prediction:
            raise self._needs_targets("a dataset of batches without them. Make its batches (x, y), or predict(x)")
        if is_text(x):
            x, y, sample_weight = self.data_of(x, y, sample_weight)
            if for_prediction:
                steps = self.batches_for_prediction(x, len(x))
            else:
                steps = self._batches(x, y, sample_weight, len(x), epochs=1, seed=0, shuffle=False)
            if len(steps) != 1:
                raise ValueError(
                    "Texts of a dataset are encoded batch by batch, with one row per text. Received: texts that make "
                    f"{len(steps)} batches of {len(x)} rows for a {type(self).__name__}. Pass all texts as a list."
                )
            x, y, sample_weight = steps[0]
        elif y is not None:
            y = self.array_targets(y)
        self.check_batch(x, y, sample_weight)
        return tuple(arrays for arrays in (x, y, sample_weight) if arrays is not None)

    def _converted_inputs(self, batch):
        """Converts a batch of a dataset to a tuple that holds only the inputs."""
        return self._converted(self.inputs_among(*unpacked(batch)), for_prediction=True)[:1]


def _values_of_each(part, what):
    """Converts a column, or each column of a dict."""
    if hasattr(part, "__next__"):
        raise ValueError(
            f"The {what} must be a list or an array. Received: a {type(part).__name__}. Convert it with list(...)."
        )
    return (
        {name: values_of(one, what) for name, one in part.items()} if isinstance(part, dict) else values_of(part, what)
    )


def read_texts(texts, method, what="a text"):
    """Returns a single text, or the list of texts in a list or a column.

    Args:
        texts: what the user passed.
        method: name of the method that was called, for the message.
        what: description of one valid input of this method, for the message.

    Raises:
        ValueError: if `texts` is neither.
    """
    texts = texts if isinstance(texts, dict) else values_of(texts)
    if isinstance(texts, dict) or not (hasattr(texts, "__len__") and hasattr(texts, "__getitem__")):
        fix = " Convert it with list(...)." if hasattr(texts, "__next__") else ""
        raise ValueError(f"`{method}` takes {what}, or a list of them. Received: {type(texts).__name__}.{fix}")
    return texts


def num_rows(x):
    """The number of examples in x, which is a dict of arrays, an array or a list of texts."""
    return len(x["token_ids"]) if isinstance(x, dict) else len(x)


def class_numbers(class_weight, names):
    """Returns {class number: weight}.

    Args:
        class_weight: {class number or label: weight}. If labels are numbers, a number is a label.
        names: list of all labels in the order of their numbers, or an empty list if classes have no labels.
    """
    if not hasattr(class_weight, "items"):
        raise ValueError(f"`class_weight` must be a dict, {{label: weight}}. Received: {class_weight!r:.60}.")
    found, places, known = {}, [], {name: number for number, name in enumerate(names)}
    for key, weight in class_weight.items():
        number = index_of(key, known) if names else None if isinstance(key, str) else key
        if number is None or (names and not 0 <= number < len(names)):
            raise ValueError(f"`class_weight` must have labels, {names}, or their numbers as keys. Received: {key!r}.")
        if not (isinstance(weight, numbers.Real) and 0 <= weight < math.inf):
            raise ValueError(f"`class_weight` must be finite and at least 0. Received: {weight!r:.40} for {key!r}.")
        found[int(number)] = weight
        places.append(int(number))
    check_clear(known, class_weight, places)
    return found


def class_weighted(y, sample_weight, class_weight):
    """Multiplies the sample weights by the weight of each example's class: float (b,).

    Args:
        y: int (b,), one class per example.
        sample_weight: float (b,), or None for weights of 1.
        class_weight: {class number: weight}; other classes have weight 1.
    """
    y = np.asarray(y) if isinstance(y, np.ndarray) else np.zeros(0)
    if y.ndim != 1 or not len(y):
        raise ValueError(
            "`class_weight` needs targets with one class per example. Received: other targets. Use `sample_weight`."
        )
    weights = np.ones(len(y), "float32") if sample_weight is None else np.array(sample_weight, "float32")
    for label, weight in class_weight.items():
        weights[y == label] *= weight
    return weights


def check_options(method, options):
    """Raises a TypeError for keyword arguments that Keras's method lacks, and a ValueError for a wrong first epoch.

    Args:
        method: name of the method.
        options: the keyword arguments that the method passes on to Keras's.
    """
    check_counts(0, initial_epoch=options.get("initial_epoch", 0))
    known = set(inspect.signature(getattr(keras.Model, method)).parameters) - {"self"}
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            advice = f" Did you mean {close[0]}?" if close else f" It has {', '.join(sorted(known))}."
            raise TypeError(f"`{method}` has no argument `{name}`.{advice}")


def split_last(x, ours, share):
    """Splits off the last examples for validation, as Keras does.

    Args:
        x: the inputs, a dict of arrays, an array or a list of texts.
        ours: dict of the other arguments of `fit`. Its `y` and `sample_weight` are split, too.
        share: the fraction of examples for validation.

    Returns: (x for training, `ours` for training, (x, y, sample_weight) for validation).
    """
    rows = num_rows(x)
    cut = int(rows * (1 - share)) if isinstance(share, (int, float)) and 0 < share < 1 else 0
    if not 0 < cut < rows:
        raise ValueError(f"`validation_split` must leave examples in both parts. Received: {share} of {rows} examples.")
    first, last = slice(0, cut), slice(cut, None)
    held_out = tuple(_take(part, last) for part in (x, ours["y"], ours["sample_weight"]))
    ours = {**ours, "y": _take(ours["y"], first), "sample_weight": _take(ours["sample_weight"], first)}
    return _take(x, first), ours, held_out


def _take(x, rows):
    if x is None:
        return None
    if isinstance(x, dict):
        return {key: _take(value, rows) for key, value in x.items()}
    return x[rows]
