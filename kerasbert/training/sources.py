"""Reads batches of arrays or texts from a `PyDataset`, `DataLoader`, `tf.data.Dataset` or generator."""

import itertools

import keras
import numpy as np

from ..backend.datasets import reads_data, tensorflow_dataset
from ..data.batches.batches import Batches
from ..data.columns import values_of

KINDS = "Batches, a dict of arrays with `token_ids`, texts, or a PyDataset, DataLoader, tf.data.Dataset or generator"


def length_of(source):
    """The number of batches in a source, or None if it is unknown or infinite."""
    if isinstance(source, keras.utils.PyDataset):
        return getattr(source, "num_batches", None) or _length(source)
    if hasattr(source, "cardinality"):  # a tf.data.Dataset; negative if the number is infinite or unknown
        number = int(source.cardinality())
        return number if number >= 0 else None
    return _length(source)


def _length(source):
    try:
        return len(source)
    except (TypeError, NotImplementedError):
        return None


def check_source(source, y=None):
    """Raises a ValueError unless `source` yields batches, which contain the targets, so that there is no `y`."""
    values_of(source)
    is_array = hasattr(source, "shape") and hasattr(source, "dtype")
    if is_array or isinstance(source, (str, bytes)) or not (hasattr(source, "__iter__") or hasattr(source, "__len__")):
        received = f"{type(source).__name__} of shape {tuple(source.shape)}" if is_array else type(source).__name__
        raise ValueError(
            f"Data must be {KINDS}. Received: {received}."
            + (' Put token ids into a dict: {"token_ids": ids, "padding_mask": mask}.' if is_array else "")
            + (" Put one text into a list." if isinstance(source, str) else "")
        )
    if y is not None:
        raise ValueError(f"The batches of a {type(source).__name__} contain their targets. Received: y. Omit it.")


def readable(source, convert, endless=False):
    """Returns a dataset for Keras's `fit`, `evaluate` and `predict`, which converts every batch of `source`.

    Args:
        source: an iterable of batches.
        convert: function that checks a batch and converts it to arrays that the model accepts.
        endless: whether to start again after the last batch, as `steps_per_epoch` requires. Iterators cannot start
            again: they are read once.
    """
    check_source(source)
    if getattr(getattr(source, "collate_fn", None), "__name__", "") == "default_collate":
        convert = _after_collation(convert)
    number = length_of(source)
    if number is None:
        return _converted(source, convert, endless and iter(source) is not source)
    dataset = Converted(source, convert, number)
    if keras.backend.backend() != "tensorflow" or isinstance(source, keras.utils.PyDataset):
        return dataset
    first = dataset[0]
    return tensorflow_dataset(dataset, [first, _widened(first)])


def _converted(source, convert, endless):
    for _ in itertools.count() if endless else range(1):
        for batch in source:
            yield reads_data(convert)(batch)


def first_batch(batches):
    """Returns (the first batch, an iterable of all batches including the first)."""
    iterator = iter(batches)
    first = next(iterator)
    if iterator is not batches:
        return first, batches
    return first, (batch for batch in itertools.chain([first], iterator))  # Keras expects a generator


class Converted(keras.utils.PyDataset):
    """A dataset of the batches of a source, each passed through `convert`.

    A PyDataset is indexed. Other sources are iterated over, and the iteration starts again whenever the requested
    batch is not the next one.

    Args:
        source: an iterable of batches.
        convert: function that converts a batch.
        length: the number of batches in the source.
    """

    def __init__(self, source, convert, length):
        super().__init__()
        self.source, self.convert, self.length = source, convert, length
        self._batches, self._next = None, 0

    def __len__(self):
        return self.length

    @reads_data
    def __getitem__(self, index):
        if isinstance(self.source, keras.utils.PyDataset):
            return self.convert(self.source[index])
        if self._batches is None or index != self._next:
            self._batches = itertools.islice(iter(self.source), index, None)
        self._next = index + 1
        try:
            return self.convert(next(self._batches))
        except StopIteration:
            raise ValueError(
                f"A dataset must have as many batches as its length says, {self.length}. Received: {index}."
            ) from None

    def on_epoch_end(self):
        if isinstance(self.source, keras.utils.PyDataset):
            self.source.on_epoch_end()


def _widened(batch):
    """Returns zeros of the shapes of a batch with one more token per row.

    TensorFlow compares the result with the original batch to find which sizes may vary from batch to batch.
    """
    width = batch[0]["token_ids"].shape[-1]

    def wider(array):
        return np.zeros([size + (axis > 0 and size == width) for axis, size in enumerate(array.shape)], array.dtype)

    return keras.tree.map_structure(wider, batch)


def unpacked(batch):
    """Returns (x, y, sample_weight) of a batch from a data source as numpy arrays. x may also be a list of texts.

    A batch may be a dict of "text" (and "text_pair", for pairs) and "label".
    """
    is_pair = isinstance(batch, list) and 2 <= len(batch) <= 3 and not all(map(_is_text_like, batch))
    parts = tuple(batch) if isinstance(batch, tuple) or is_pair else (batch,)
    x, y, sample_weight = (*parts, None, None)[:3]
    if isinstance(x, dict) and "token_ids" not in x and y is None:
        x, y = _named_columns(x)
    if isinstance(x, str) or isinstance(y, (str, int, float)) or getattr(y, "ndim", 1) == 0:
        raise ValueError(
            f"A dataset must yield batches: a list of texts with a list of targets. Received: one example, "
            f"{batch!r:.60}. Use lists, as in fit(texts, labels), or a DataLoader with a batch size."
        )
    x = _texts(values_of(x), y)
    y, sample_weight = _targets(y), _targets(sample_weight)
    return x if is_text(x) else keras.tree.map_structure(_array, x), y, sample_weight


class Examples(list):
    """A list with one item for each example, which is certainly not a list of columns."""


TEXT_COLUMNS, TARGET_COLUMNS = ("text", "text_pair"), ("label", "labels")


def _named_columns(batch):
    """Returns (texts, targets) of a batch that is a dict of columns, {"text", "label"}."""
    targets = [name for name in TARGET_COLUMNS if name in batch]
    texts = [name for name in TEXT_COLUMNS if name in batch]
    if "text" not in batch or len(targets) > 1 or len(batch) > len(texts) + len(targets):
        if any(name in batch for name in (*TEXT_COLUMNS, "sentence", "sentence1", "tokens")):
            raise ValueError(
                'A batch of columns must be {"text": texts, "label": labels}, with "text_pair" for pairs. Received: '
                f"the columns {', '.join(map(str, batch))}. Select and rename them, or yield (texts, labels)."
            )
        return batch, None
    columns = [values_of(_texts(batch[name], None)) for name in texts]
    if any(isinstance(column, str) for column in columns):
        raise ValueError(
            f"A dataset must yield batches. Received: a row, {batch!r:.60}. Use a DataLoader with a batch size."
        )
    x = columns[0] if len(columns) == 1 else Examples(zip(*columns, strict=True))
    return x, batch[targets[0]] if targets else None


def _targets(y):
    """Converts targets or weights to arrays. Names, and lists of them, stay a list."""
    if isinstance(y, dict):
        return {name: _targets(part) for name, part in y.items()}
    y = values_of(y, "targets")
    if isinstance(y, tuple):
        y = list(y)
    if not isinstance(y, list):
        return None if y is None else _array(y)
    y = [item.item() if getattr(item, "ndim", None) == 0 and hasattr(item, "item") else item for item in y]
    is_numeric = all(isinstance(item, (bool, int, float, np.number, np.ndarray)) for item in y)
    return np.asarray(y) if is_numeric and len({np.shape(item) for item in y}) == 1 else y


def _after_collation(convert):
    """Makes `convert` accept batches of PyTorch's `default_collate`, which transposes tuples and lists.

    Two pairs of texts become [("a", "c"), ("b", "d")]: one tuple for the first texts, one for the second.
    """

    def rows(part):
        if isinstance(part, dict):
            return {name: rows(column) for name, column in part.items()}
        if not isinstance(part, (list, tuple)) or not len(part) or isinstance(part[0], str):
            return part
        columns = [values_of(column) for column in part]
        columns = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns]
        found = zip(*columns, strict=True)
        is_pair = len(columns) == 2 and isinstance(columns[0][0], str)
        return Examples(found if is_pair else map(list, found))

    def converted(batch):
        if isinstance(batch, dict) or not isinstance(batch, (list, tuple)) or isinstance(batch[0], str):
            return convert(rows(batch) if isinstance(batch, dict) and "token_ids" not in batch else batch)
        return convert(tuple(part if isinstance(part, dict) else rows(part) for part in batch))

    return converted


def _is_text_like(item):
    return isinstance(item, str) or (isinstance(item, (list, tuple)) and all(isinstance(part, str) for part in item))


def _array(value):
    if value is None:
        return None
    if hasattr(value, "detach"):
        return value.detach().cpu().numpy()
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def _texts(x, y):
    """Converts texts and text pairs to a list. Any other x is returned unchanged.

    A batch of text pairs may also be given as two columns, (first texts, second texts). x is taken to be two columns if
    it has two items, and the length of each is the number of targets in y.
    """
    if hasattr(x, "numpy") and not hasattr(x, "detach"):
        x = x.numpy()
    if isinstance(x, np.ndarray) and x.dtype.kind in "OSU":
        return [text.decode() if isinstance(text, bytes) else str(text) for text in x.ravel()]
    if not isinstance(x, (list, tuple)) or not len(x) or not is_text(x):
        return x
    if isinstance(x[0], str) or isinstance(x, Examples):
        return list(x)
    rows = None if y is None else len(next(iter(y.values())) if isinstance(y, dict) else y)
    is_columns = len(x) == 2 and {len(part) for part in x} == {rows}
    if is_columns and rows == 2:
        raise ValueError(
            "Pairs of texts must be unambiguous. Received: a batch of two examples, which may be two pairs or two "
            "columns. Use another batch size, or pass all pairs as a list."
        )
    return list(zip(*x, strict=True)) if is_columns else list(x)


def is_text(x):
    """Whether x is a sequence of texts, or of tuples or lists whose first item is a text."""
    if not isinstance(x, (list, tuple)):
        is_data = isinstance(x, (dict, str, bytes, Batches, keras.utils.PyDataset, np.ndarray))
        if is_data or not hasattr(x, "__len__") or not hasattr(x, "__getitem__") or not len(x):
            return False
        x = [x[0]]
    first = next((item for item in x if not isinstance(item, (list, tuple)) or len(item)), "")  # no words are a text
    return isinstance(first, str) or (isinstance(first, (list, tuple)) and len(first) > 0 and isinstance(first[0], str))
