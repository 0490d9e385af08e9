"""Base class that recognises the data that users pass, and converts columns of tables to lists."""

from ..backend.keras_adapter import TrainingMode
from ..data.batches.batches import Batches
from ..data.columns import values_of
from .feeding import is_text


class UserData(TrainingMode):
    """A Keras model that accepts columns of pandas, polars, pyarrow and datasets where it accepts lists."""

    needs_targets = False  # whether training and evaluation on texts and arrays require a y

    def data_of(self, x, y, sample_weight):
        """Converts (x, y, sample_weight), any of which may be columns of a table, to lists, arrays or dicts of arrays.

        Other sources of batches are returned unchanged.
        """
        return self.examples_of(x), self.targets_of(y), _values_of_each(sample_weight, "weights")

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
            raise ValueError(f"{type(self).__name__} needs targets. Received: y=None. Use fit(x, y), or predict(x).")

    def _is_ours(self, x):
        """Whether x is of a type that this package converts to `Batches` itself, rather than a Keras data source."""
        return isinstance(x, (Batches, dict, list, tuple)) or is_text(x)


def _values_of_each(part, what):
    """Converts a column, or each column of a dict."""
    if hasattr(part, "__next__"):
        raise ValueError(
            f"The {what} must be a list or an array. Received: a {type(part).__name__}. Convert it with list(...)."
        )
    return (
        {name: values_of(one, what) for name, one in part.items()} if isinstance(part, dict) else values_of(part, what)
    )
