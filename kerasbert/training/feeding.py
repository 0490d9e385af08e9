"""Data for `fit`: splits the steps of a run into Keras epochs, and recognises the kinds of data that users pass."""

import math
import numbers

import keras
import numpy as np

from ..backend.datasets import reads_data, tensorflow_dataset
from ..backend.distribution import check_processes, check_rows, host_share
from ..backend.hosts import total
from ..backend.layouts import check_layout
from ..data.batches.batches import Batches
from ..data.columns import values_of
from ..data.tasks.labels import index_of
from .programs import program_tokens


class Feed(keras.utils.PyDataset):
    """A Keras dataset for one epoch, which consists of steps `first` to `first + steps - 1` of a run.

    If several processes train together, each reads its rows of every batch.

    Args:
        batches: the `Batches` of the run.
        steps: number of steps in an epoch.
        check: function that is called with the arrays of each batch, (x, y, sample_weight), and raises a ValueError if
            they are invalid.
    """

    def __init__(self, batches, steps, check):
        super().__init__()
        index, self.hosts = host_share()
        self.batches = batches.shard(index, self.hosts) if self.hosts > 1 else batches
        self.steps = steps
        self.check = check
        self._totals = {}
        self.start(0)

    def start(self, first):
        """Moves to the epoch that starts at step `first`, and creates its first batch at once.

        On JAX, Keras removes the weights from a model before it requests the first batch of an epoch. If that batch
        caused an error, the model would be left without weights.
        """
        self.first = first
        self._tokens = {}
        self._first_batch = self._checked(first) if first < len(self.batches) else None

    def for_keras(self):
        """The dataset to pass to Keras. On TensorFlow, it is a `tf.data` dataset that knows all shapes of the run."""
        if keras.backend.backend() != "tensorflow":
            return self
        return tensorflow_dataset(self, [self._checked(step) for step in self.batches.shape_steps()])

    def __len__(self):
        return self.steps

    @reads_data
    def __getitem__(self, index):
        return self._first_batch if index == 0 else self._checked(self.first + index)

    @property
    def tokens(self):
        """Number of tokens in the whole run, without padding, estimated from the mean of a step."""
        return len(self.batches) * self.batches.tokens_per_step

    @property
    def num_widths(self):
        """Number of different widths of the batches, of which each needs a compiled program."""
        return len(getattr(self.batches, "widths", [None]))

    def real_tokens(self, first, last):
        """Number of tokens in the steps [first, last) of the run, without padding.

        Steps outside the current epoch are not counted. If several processes train together, it is exact after
        `count_tokens`, and an estimate before.
        """
        estimate = self.hosts * sum(self._tokens.get(step, 0) for step in range(first, last))
        return self._totals.get((first, last), estimate)

    def count_tokens(self, last):
        """Counts the tokens of the current epoch before step `last` in the rows of all processes."""
        if self.hosts > 1:
            tokens = sum(self._tokens.get(step, 0) for step in range(self.first, last))
            self._totals[self.first, last] = total([tokens])[0]

    def _checked(self, step):
        batch = self.batches[step]
        self.check(*batch)
        check_rows(self.hosts * len(keras.tree.flatten(batch)[0]))
        self._tokens[step] = real_tokens(batch[0])
        return tuple(array for array in batch if array is not None)  # TensorFlow does not accept None


def tokens_of_validation(held_out):
    """Number of tokens in validation data: 0 for None, and infinity if it is unknown.

    Args:
        held_out: a `Feed`, or another dataset, or None.
    """
    return 0 if held_out is None else held_out.tokens if isinstance(held_out, Feed) else float("inf")


_CHECKED_STEPS = 20


def _has_targets(batch):
    """Whether a token of a batch with masked tokens is to be predicted. Other batches count as having targets."""
    x = batch[0]
    return (
        not isinstance(x, dict) or "masked_positions" not in x or bool((np.asarray(x["masked_positions"]) >= 0).any())
    )


def feed_of(model, batches, steps):
    """Returns the `Feed` from which a model reads `Batches`.

    Raises: ValueError if the ids of a corpus stand for other tokens than those of the model's tokenizer, or if no token
        of the run is to be predicted.
    """
    for corpus in batches.corpora() if model.tokenizer is not None else ():
        corpus.check_vocabulary(model.tokenizer)
    seen = min(len(batches), _CHECKED_STEPS)
    if seen and not any(_has_targets(batches[step]) for step in range(seen)):
        raise ValueError(
            f"A run must have targets. Received: {seen} steps without any token to predict. Use another masking rule, "
            "a higher rate, or longer rows: words with more tokens than a row may predict are never masked."
        )
    return Feed(batches, steps, model.check_batch)


def check_devices(model, method, can_share):
    """Raises a ValueError if a method of a model cannot run on the current devices and processes.

    Args:
        model: the model.
        method, can_share: as in `check_processes`.
    """
    check_processes(method, can_share)
    if method == "fit":
        check_layout(model.trainable_variables, getattr(model.backbone.config, "num_heads", None))


class Epochs(keras.callbacks.Callback):
    """Moves a `Feed` to the first step of each epoch.

    Args:
        feed: the `Feed`.
        interval: the number of steps in an epoch. The first epoch of a resumed run may have fewer.
    """

    def __init__(self, feed, interval):
        super().__init__()
        self.feed, self.interval = feed, interval

    def on_epoch_begin(self, epoch, logs=None):
        if self.feed.first < epoch * self.interval:
            self.feed.start(epoch * self.interval)

    def on_epoch_end(self, epoch, logs=None):
        self.feed.count_tokens(self.feed.first + self.feed.steps)


def real_tokens(x):
    """The number of tokens in a batch that are not padding, including those of a decoder."""
    total = 0
    for prefix in ("", "decoder_"):
        if prefix + "lengths" in x:
            total += int(np.sum(x[prefix + "lengths"]))
        elif prefix + "padding_mask" in x:
            total += int(np.sum(x[prefix + "padding_mask"]))
        elif prefix + "sequence_ids" in x:
            total += int(np.count_nonzero(x[prefix + "sequence_ids"]))
        else:
            total += int(np.size(x.get(prefix + "token_ids", ())))
    return total


def class_numbers(class_weight, names):
    """Returns {class number: weight}.

    Args:
        class_weight: {class number or label: weight}. If labels are numbers, a number is a label.
        names: list of all labels in the order of their numbers, or an empty list if classes have no labels.
    """
    if not hasattr(class_weight, "items"):
        raise ValueError(f"`class_weight` must be a dict, {{label: weight}}. Received: {class_weight!r:.60}.")
    found, known = {}, {name: number for number, name in enumerate(names)}
    for key, weight in class_weight.items():
        number = index_of(key, known) if names else None if isinstance(key, str) else key
        if number is None or (names and not 0 <= number < len(names)):
            raise ValueError(f"`class_weight` must have labels, {names}, or their numbers as keys. Received: {key!r}.")
        if not (isinstance(weight, numbers.Real) and 0 <= weight < math.inf):
            raise ValueError(f"`class_weight` must be finite and at least 0. Received: {weight!r:.40} for {key!r}.")
        found[int(number)] = weight
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


def report_interval(steps, steps_per_epoch):
    """Returns the number of steps in one Keras epoch of a run of `steps` steps.

    This is `steps_per_epoch`, which must divide `steps`, or by default the largest divisor of `steps` up to 1,000.
    """
    if steps_per_epoch is None:
        return next(interval for interval in range(min(steps, 1_000), 0, -1) if steps % interval == 0)
    if steps % steps_per_epoch:
        near = [d for d in range(1, steps + 1) if steps % d == 0]
        near = sorted(near, key=lambda d: abs(d - steps_per_epoch))[:3]
        raise ValueError(
            f"`steps_per_epoch` must divide the length of the run. Received: steps_per_epoch={steps_per_epoch} for "
            f"{steps} steps. Use {', '.join(map(str, sorted(near)))}."
        )
    return steps_per_epoch


def is_text(x):
    """Whether x is a sequence of texts, or of tuples or lists whose first item is a text."""
    if not isinstance(x, (list, tuple)):
        is_data = isinstance(x, (dict, str, bytes, Batches, keras.utils.PyDataset, np.ndarray))
        if is_data or not hasattr(x, "__len__") or not hasattr(x, "__getitem__") or not len(x):
            return False
        x = [x[0]]
    first = next((item for item in x if not isinstance(item, (list, tuple)) or len(item)), "")  # no words are a text
    return isinstance(first, str) or (isinstance(first, (list, tuple)) and len(first) > 0 and isinstance(first[0], str))


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


def _take(x, rows):
    if x is None:
        return None
    if isinstance(x, dict):
        return {key: _take(value, rows) for key, value in x.items()}
    return x[rows]


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


def predict_by_width(model, batches, predict):
    """Predicts all examples of a `BucketedBatches`. Returns the outputs in the order of the examples.

    Outputs are padded with zeros to the largest width. Examples are grouped into the widths that minimise the total
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


def split_last(x, ours, share):
    """Splits off the last examples for validation, as Keras does.

    Args:
        x: the inputs, a dict of arrays, an array or a list of texts.
        ours: dict of the other arguments of `fit`. Its `y` and `sample_weight` are split, too.
        share: the fraction of examples for validation.

    Returns: (x for training, `ours` for training, (x, y, sample_weight) for validation).
    """
    rows = num_rows(x)
    cut = int(rows * (1 - share))
    if not 0 < cut < rows:
        raise ValueError(f"`validation_split` must leave examples in both parts. Received: {share} of {rows} examples.")
    first, last = slice(0, cut), slice(cut, None)
    held_out = tuple(_take(part, last) for part in (x, ours["y"], ours["sample_weight"]))
    ours = {**ours, "y": _take(ours["y"], first), "sample_weight": _take(ours["sample_weight"], first)}
    return _take(x, first), ours, held_out


def single(outputs):
    """Converts half-precision outputs to float32."""
    halves = ("float16", "bfloat16")
    return keras.tree.map_structure(lambda x: x.astype("float32") if x.dtype.name in halves else x, outputs)
