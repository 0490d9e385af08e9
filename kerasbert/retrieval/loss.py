"""The base class of losses: what they take, how they are called, and how they are written to JSON."""

import dataclasses
import difflib
import typing
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from keras import ops

from ..data.text.json_files import check_types
from .labels import COMPARED, READERS, check_differences, check_groups, check_texts
from .similarity import DISTANCES, SIMILARITIES

_CLASSES: dict[str, type] = {}


@dataclasses.dataclass(frozen=True)
class Step:
    """What a loss may read of a batch besides its vectors and labels.

    Attributes:
        weights: float32 (b,), the weights of the rows. Rows with weight 0 are padding, and never in-batch negatives.
        texts: int32 (b, c, k), equal in all k numbers for equal texts, such as token ids; None if texts are unknown.
        seed: a Keras `SeedGenerator` for random choices, which differ in every step; None for no random choices.
        number: the number of updates before this one, for schedules.
        layer: the layer that the loss has made for its training; see `Loss.make_layer`.
    """

    weights: Any
    texts: Any = None
    seed: Any = None
    number: Any = 0
    layer: Any = None

    @property
    def real(self) -> Any:
        """Which rows are no padding, bool (b,)."""
        return self.weights > 0

    def mean(self, values: Any) -> Any:
        """The mean over the rows, weighted by their weights; 0 without rows. values: float32 (b,)."""
        total = ops.sum(self.weights)
        return ops.sum(ops.where(self.real, values, 0.0) * self.weights) / ops.where(total > 0, total, 1.0)

    def same_text(self, first: int, second: int) -> Any:
        """Whether text number `first` of a row equals text number `second` of another, bool (b, b)."""
        if self.texts is None:
            rows = ops.shape(self.weights)[0]
            return ops.zeros((rows, rows), "bool")
        return ops.all(self.texts[:, None, first] == self.texts[None, :, second], axis=-1)


@dataclasses.dataclass(frozen=True)
class Loss:
    """Base class of losses on vectors of texts: a frozen record of options, with a formula in `call`.

    A loss of one's own is a dataclass with a `call`, and says which data it takes:

        @dataclasses.dataclass(frozen=True)
        class Huber(Loss):
            max_texts, targets = 2, "scores"

            def call(self, vectors, labels, step):
                error = ops.abs(cosine(*vectors) - labels)
                return step.mean(ops.where(error < 1, error**2 / 2, error - 0.5))

    Args:
        chunk: number of examples that are encoded together. The encoder's activations are only kept for one chunk, so
            that many rows fit into memory. The loss is still computed from all rows, and the gradients do not change
            (GradCache: Gao et al. 2021, arXiv 2101.06983). Default: the whole batch at once.

    Call:
        vectors: the columns, a sequence of float (b, m): anchors, positives, negatives. Late interaction has pairs of
            float (b, s, m) and bool (b, s).
        labels: see `targets`.
        weights: float (b,). Rows with weight 0 are padding. Default: 1.
        texts, seed, number, layer: see `Step`.

    Returns: float32 scalar.

    Raises:
        ValueError: if an option has the wrong type or an unknown value, `chunk` is below 1, or examples have another
            number of texts. When a subclass is defined, if a loss in another module has the same name.
    """

    chunk: int | None = dataclasses.field(default=None, kw_only=True)

    reads: ClassVar[str] = "vectors"  # what the loss is computed from: the vectors of texts, or the scores of pairs
    min_texts: ClassVar[int] = 2  # the number of texts of an example, at least
    max_texts: ClassVar[int | None] = None  # and at most
    targets: ClassVar[str | None] = None  # what the labels are: a name from `labels.READERS`; None for no labels
    compares_rows: ClassVar[bool] = False  # whether the loss needs other examples of the batch

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        known = _CLASSES.setdefault(cls.__name__, cls)
        if known.__module__ != cls.__module__:
            raise ValueError(
                f"The name of a loss must be unique, because files contain it. Received: {cls.__name__} of "
                f"{cls.__module__}, which {known.__module__} has, too. Rename the class."
            )
        _CLASSES[cls.__name__] = cls

    def __post_init__(self) -> None:
        for field, table in (("similarity", SIMILARITIES), ("distance", DISTANCES)):
            check_choice(self, field, table)
        for field in dataclasses.fields(self):  # JSON has no tuples
            if isinstance(getattr(self, field.name), list):
                object.__setattr__(self, field.name, tuple(getattr(self, field.name)))
        hints = {name: hint for name, hint in typing.get_type_hints(type(self)).items() if _is_of_json(hint)}
        check_types({field.name: getattr(self, field.name) for field in dataclasses.fields(self)}, hints, self.name)
        check_least(self, 1, "chunk")

    def call(self, vectors: Any, labels: Any, step: Step) -> Any:
        """Computes the loss, a float32 scalar. The vectors are float32."""
        raise NotImplementedError

    def __call__(self, vectors, labels=None, weights=None, **step):
        vectors = [_float32(column) for column in vectors]
        self.check_columns(len(vectors))
        first = vectors[0][0] if isinstance(vectors[0], tuple) else vectors[0]
        weights = ops.ones(ops.shape(first)[:1]) if weights is None else ops.cast(weights, "float32")
        labels = None if labels is None else ops.convert_to_tensor(labels)
        return self.call(vectors, labels, Step(weights, **step))

    # === Data ===

    def check_columns(self, columns: int) -> None:
        """Checks the number of texts of an example.

        Raises:
            ValueError: if the loss does not take this number of texts.
        """
        if not self.min_texts <= columns <= (self.max_texts or columns):
            wanted = str(self.min_texts) if self.min_texts == self.max_texts else f"{self.min_texts} or more"
            if self.max_texts and self.max_texts > self.min_texts:
                wanted = f"{self.min_texts} to {self.max_texts}"
            raise ValueError(f"{self.name} needs {wanted} texts per example. Received: {columns}.")

    def needs_rows(self, columns: int) -> bool:
        """Whether an example with this number of texts is only learned from beside other examples."""
        return self.compares_rows

    def check_texts(self, texts: Any, batch_size: int) -> None:
        """Checks that the loss can learn from examples.

        Args:
            texts: a list of tuples of texts.
            batch_size: number of examples in a batch.

        Raises:
            ValueError: if the number of texts is wrong. For a loss that compares examples, if there is one per batch,
                or all are equal.
        """
        self.check_columns(len(texts[0]))
        check_texts(self, texts, batch_size)

    def read_labels(self, y: Any, rows: int, columns: int) -> np.ndarray | None:
        """Converts the labels of `rows` examples of `columns` texts to an array.

        Raises:
            ValueError: if labels are missing, not wanted, or of another kind or shape than the loss reads.
        """
        if self.targets is None:
            if y is not None:
                raise ValueError(f"{self.name} has no labels besides the texts. Received: y. Leave it out.")
            return None
        if y is None:
            raise ValueError(f"{self.name} needs labels: {READERS[self.targets].__doc__}. Received: y=None.")
        return READERS[self.targets](y, rows, columns, self)

    def check_labels(self, labels: np.ndarray | None, counts: Sequence[int] | None = None) -> None:
        """Checks that labels differ somewhere, because otherwise only a constant can be learned from them.

        Args:
            labels: the result of `read_labels`.
            counts: the number of documents of each query, for the labels of lists.

        Raises:
            ValueError: if all labels, or for lists the labels of every query, are equal.
        """
        if labels is not None and self.targets == "groups":
            check_groups(self, labels)
        elif labels is not None and self.targets in COMPARED:
            check_differences(self, labels, counts)

    # === Training ===

    @property
    def is_random(self) -> bool:
        """Whether the loss makes random choices, for which it needs a `Step.seed`."""
        return False

    def make_layer(self, initializer: Any) -> Any:
        """Creates the layer that the loss trains beside the encoder, or returns None."""
        return None

    def features(self, vectors: Any) -> Any:
        """The input of that layer, for the columns of vectors."""
        raise NotImplementedError

    @property
    def similarity_name(self) -> str | None:
        """How the loss compares vectors, if this is an option of it."""
        return getattr(self, "similarity", None)

    # === JSON ===

    @property
    def name(self) -> str:
        """The name of the class, under which `loss_of` finds it."""
        return type(self).__name__

    def config(self) -> dict[str, Any]:
        """The options, as values of JSON, and the `name`."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {"name": self.name, **{name: _as_json(value) for name, value in values.items() if value is not None}}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates a loss from the result of `config`.

        Raises:
            ValueError: if the config is invalid, or belongs to another class.
        """
        loss = loss_of(config)
        if not isinstance(loss, cls):
            raise ValueError(f"The config must be that of a {cls.__name__}. Received: {config!r:.80}.")
        return loss


# Short names of the losses of Sentence-BERT, and of ranking in the batch.
SHORT = {"ranking": "MultipleNegatives", "cosine": "CosineSimilarity", "triplet": "Triplet", "classes": "PairClasses"}


def loss_of(objective: Any, reads: str | None = None) -> Loss:
    """Returns a loss.

    Args:
        objective: a loss; or its name, such as "CoSENT" or "ranking"; or a dict of its `name` and options, such as
            {"name": "CoSENT", "scale": 20.0}.
        reads: what the model has for the loss: "vectors" or "scores". Default: the loss may read either.

    Raises:
        ValueError: if the name or an option is unknown, an option is missing, or its value is invalid, or the loss does
            not read what the model has.
    """
    loss = objective if isinstance(objective, Loss) else _named(objective, reads)
    if reads is not None and loss.reads != reads:
        known = ", ".join(loss_names(reads)[:3])
        raise ValueError(f"The model needs a loss on {reads}, such as {known}. Received: {loss.name}, on {loss.reads}.")
    return loss


def loss_names(reads: str | None = None) -> list[str]:
    """The names of the losses on "vectors" or on "scores", without their base classes. Default: of all losses."""
    classes = [cls for cls in _CLASSES.values() if cls.call is not Loss.call and reads in (None, cls.reads)]
    short = [name for name, full in SHORT.items() if any(cls.__name__ == full for cls in classes)]
    return [*(cls.__name__ for cls in classes), *short]


def _named(objective, reads):
    """The loss with a name, or with the name and the options in a dict."""
    given = objective if isinstance(objective, dict) else {"name": objective}
    cls = _CLASSES.get(_full_name(given.get("name")))
    if cls is None or cls.call is Loss.call:
        known = loss_names(reads)
        close = difflib.get_close_matches(str(given.get("name")), known, n=1)
        raise ValueError(
            f"`objective` must be a loss, or its name: {', '.join(known)}. Received: {objective!r:.80}."
            f"{f' Did you mean {close[0]}?' if close else ''} The class of a loss of your own must be defined before "
            "the model is loaded."
        )
    options = {name: value for name, value in given.items() if name != "name"}
    known = [field.name for field in dataclasses.fields(cls)]
    if not set(options) <= set(known):
        raise ValueError(f"{cls.__name__} has the options {', '.join(known)}. Received: {objective!r:.80}.")
    fields = [field for field in dataclasses.fields(cls) if field.name not in options]
    missing = [field.name for field in fields if field.default is field.default_factory is dataclasses.MISSING]
    if missing:
        raise ValueError(
            f"{cls.__name__} needs {', '.join(missing)}. Received: {objective!r:.80}. A loss around another one is "
            'written as "Splade(MultipleNegatives)" or "Matryoshka(CoSENT, dims=[128, 64])", or as a dict: {"name": '
            '"Splade", "loss": "MultipleNegatives"}.'
        )
    return cls(**{name: loss_of(value) if isinstance(value, dict) else value for name, value in options.items()})


def _full_name(name):
    return SHORT.get(name, name) if isinstance(name, str) else None


def check_choice(loss, field, table):
    """Raises a ValueError unless a field of the loss, if it has it, is a key of the table."""
    value = getattr(loss, field, None)
    if value is not None and not (isinstance(value, str) and value in table):
        raise ValueError(f"`{field}` of {loss.name} must be one of {', '.join(table)}. Received: {value!r}.")


def check_least(loss, least, *fields, exclusive=False):
    """Raises a ValueError unless fields of the loss are None, or at least (or, exclusively, above) a number.

    Args:
        least: the number.
        fields: names of fields.
        exclusive: whether the number itself is not allowed.
    """
    for field in fields:
        value = getattr(loss, field)
        if value is None or value > least or (value == least and not exclusive):
            continue
        bound = f"above {least}" if exclusive else f"at least {least}"
        raise ValueError(f"`{field}` of {loss.name} must be {bound}. Received: {value}.")


def _is_of_json(hint):
    """Whether all values of a type are values of JSON."""
    parts = typing.get_args(hint)
    return all(map(_is_of_json, parts)) if parts else hint in (bool, int, float, str, type(None), ...)


def _float32(column):
    if isinstance(column, (tuple, list)):
        vectors, mask = column
        return ops.cast(vectors, "float32"), mask
    return ops.cast(column, "float32")


def _as_json(value):
    if isinstance(value, Loss):
        return value.config()
    return list(value) if isinstance(value, tuple) else value
