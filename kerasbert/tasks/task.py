"""Base class of fine-tuning tasks, with Keras losses and metrics that ignore padding rows."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from ..checkpoints.arguments import Saved
from ..core.caller import warn_caller
from ..core.inputs import check_keys
from ..data.columns import values_of
from ..data.tasks.labels import names_of
from ..data.tokenizers.tokenizer import Tokenizer
from ..training.sources import is_text
from ..training.trainable import Trainable
from .standard_losses import check_loss, loss_on_logits, mapped, metric_on_logits


class Task(Trainable):
    """Base class of fine-tuning tasks.

    `fit` without `compile` uses the loss of the task, and AdamW with linear decay after a warm-up of 10% of the steps.
    The peak of the learning rate depends on the width of the backbone (`training.fine_tuning_rate`), unless a subclass
    has a `default_learning_rate`.
    A subclass implements `default_loss()` and, if it has metrics, `default_metrics()`.
    """

    SAVED_AS = {
        "labels": Saved(int | list[str | int | float | bool], 1, 10_000),
        "max_length": Saved(int | None, 1),
        "features": Saved(str | dict[str, str | int | None] | None, highest=10_000),
    }

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer | None = None,
        loss: str | Callable | Sequence | Mapping | None = None,
        metrics: Sequence | Mapping | None = None,
        weighted_metrics: Sequence | Mapping | None = None,
        **kwargs: Any,
    ) -> None:
        """Like Keras's `compile`, but losses and metrics are means weighted by `sample_weight`.

        The default optimizer is the one of `fit` without `compile`. It is not Keras's AdamW, whose rate of 0.001 is too
        high for a pretrained encoder.

        The weights are needed because the last batch of a pass is padded with rows of weight 0. Keras losses and
        metrics do not need `from_logits=True`. Labels may be integers, names or one-hot rows; see `standard_losses`.

        Raises:
            ValueError: if a Keras loss does not fit the outputs of the task, such as a binary loss for several classes.
        """
        problem = getattr(self, "problem", "classes")
        if loss is not None:
            check_loss(loss, problem, self.default_loss())
        loss = mapped(lambda part: loss_on_logits(part, problem), self.default_loss() if loss is None else loss)
        metrics, weighted_metrics = (
            mapped(lambda part: metric_on_logits(self._named_metric(part), problem), part)
            for part in (metrics, weighted_metrics)
        )
        if metrics is None and weighted_metrics is None:
            metrics = mapped(lambda part: metric_on_logits(part, problem), self.default_metrics())
        if metrics is not None and weighted_metrics is None:
            metrics, weighted_metrics = None, metrics
        super().compile(optimizer, loss=loss, metrics=metrics, weighted_metrics=weighted_metrics, **kwargs)

    def batch_weight(self, x, sample_weight):
        """The sum of the weights, by which the loss of the batch is divided."""
        if isinstance(sample_weight, dict):  # start and end of an answer have the same weights
            sample_weight = sample_weight.get("start")
        return None if sample_weight is None else ops.sum(ops.cast(sample_weight, "float32"))

    def _named_metric(self, metric):
        """Replaces "accuracy" by the default accuracy metric of the task, if it has one."""
        defaults = self.default_metrics() if metric in ("accuracy", "acc") else None
        found = [default for default in defaults or () if getattr(default, "name", None) == "accuracy"]
        return found[0] if found else metric

    def default_metrics(self):
        """Returns the metrics that `compile()` uses by default."""
        return []

    needs_targets = True
    label_head = None  # the kind of head whose outputs are labels

    @classmethod
    def head_to_renew(cls, stored, arguments):
        if is_of_choices(stored):
            return None if arguments.get("problem") == "score" else cls.label_head
        theirs = stored_labels(stored)
        ours = ["score"] if arguments.get("problem") == "score" else arguments.get("labels")
        if cls.label_head is None or ours is None or not theirs:
            return None
        ours, theirs = ([str(name) for name in names_of(names)] for names in (ours, theirs))
        unnamed = any(all(re.fullmatch(r"LABEL_\d+", name) for name in names) for names in (ours, theirs))
        return None if (len(ours) == len(theirs) if unnamed else ours == theirs) else cls.label_head

    def longest_row(self):
        """Returns the maximum length of the backbone in tokens, but at most 512."""
        return min(getattr(self.backbone.config, "max_length", None) or 512, 512)

    def tokenizer_of_texts(self) -> Tokenizer:
        """Returns the tokenizer that reads the texts of this task: with `lowercase`, in lower case."""
        tokenizer = self.require_tokenizer()
        return tokenizer.lower_casing if getattr(self, "lowercase", False) else tokenizer

    def row_length(self, max_length, default, shorten=False):
        """Returns the maximum length of rows: `max_length`, or `default` if it is None.

        Raises a ValueError for a length that the model cannot have, or, with `shorten`, warns and returns the largest:
        folders of sentence-transformers may state more positions than their model has.
        """
        limit = self.backbone.position_limit
        if max_length is None:
            return default
        if isinstance(max_length, bool) or not isinstance(max_length, (int, np.integer)) or max_length < 1:
            raise ValueError(f"`max_length` must be a number of tokens, at least 1. Received: {max_length!r:.40}.")
        if shorten and limit and max_length > limit:
            warn_caller(
                f"`max_length` is {max_length}, but the model has {limit} positions: texts are truncated to these."
            )
            return limit
        if limit and max_length > limit:
            raise ValueError(
                f"`max_length` must be at most the {limit} positions of the model. Received: {max_length}."
            )
        return int(max_length)


def zipped_columns(x):
    """Converts a tuple of text columns to a list of tuples, and a single column to a list.

    (["a", "b"], ["c", "d"]) -> [("a", "c"), ("b", "d")]
    """
    if not isinstance(x, tuple) or len(x) < 2 or any(isinstance(part, (str, tuple, dict)) for part in x):
        return values_of(x)
    columns = [values_of(part) for part in x]
    if not all(is_text(part) and len(part) for part in columns) or not all(isinstance(c[0], str) for c in columns[:-1]):
        return x
    sizes = [len(part) for part in columns]
    if len(set(sizes)) > 1:
        raise ValueError(f"Columns of texts must have the same length. Received: columns of lengths {sizes}.")
    return list(zip(*columns, strict=True))


def as_rows(inputs):
    """Reshapes a batch of examples with c texts each to a batch of texts: (b, c, ...) -> (b * c, ...)."""

    def flat(array):
        sizes = (-1, *keras.ops.shape(array)[2:])
        return array.reshape(sizes) if isinstance(array, np.ndarray) else keras.ops.reshape(array, sizes)

    return {key: flat(array) for key, array in inputs.items()}


def check_texts_together(x, wanted):
    """Raises a ValueError unless the first two dimensions (b, c) of every array are the same as in `token_ids`."""
    check_keys(x)
    first = tuple(getattr(x["token_ids"], "shape", ()))
    if len(first) != 3:
        raise ValueError(f"`token_ids` must be {wanted}. Received: shape {first}.")
    for key, array in x.items():
        shape = tuple(getattr(array, "shape", ()))
        pairs = zip(shape[:2], first[:2], strict=False)
        if len(shape) < 2 or any(a != b for a, b in pairs if a is not None and b is not None):
            raise ValueError(
                f"The first two dimensions of `{key}` must equal those of `token_ids`, {first[:2]}. Received: {shape}."
            )


def label_names(labels):
    """Builds the two fields of a Hugging Face config that contain label names, which must be str there."""
    return {
        "id2label": {str(i): str(label) for i, label in enumerate(labels)},
        "label2id": {str(label): i for i, label in enumerate(labels)},
    }


def with_stored_labels(stored, arguments):
    """Adds the argument `labels`, read from a config.json, to constructor arguments that do not contain it.

    Args:
        stored: the content of config.json. If it has no label names, `arguments` are returned unchanged.
        arguments: the constructor arguments, {name: value}.
    """
    names = stored_labels(stored)
    return {**arguments, "labels": names} if "labels" not in arguments and names else arguments


def is_of_choices(stored):
    """Whether a config.json belongs to a multiple-choice head, which has one output."""
    return any("MultipleChoice" in name for name in stored.get("architectures") or ())


def stored_labels(stored):
    """Returns the label names in a config.json, in the order of the outputs. Without names, they are LABEL_0, ..."""
    names = stored.get("id2label") or {}
    if not names:
        return names_of(stored["num_labels"]) if stored.get("num_labels") else []
    names = [names[key] for key in sorted(names, key=int)]
    return names if len({type(name) for name in names}) == 1 else list(map(str, names))
