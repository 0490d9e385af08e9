"""Losses around a loss: on prefixes of the vectors, on the vectors of earlier layers; and a regularizer."""

import dataclasses
import math

import keras
from keras import ops

from .distillation import check_width
from .loss import Loss, check_choice, check_least, loss_of
from .similarity import all_cosines, unit


@dataclasses.dataclass(frozen=True)
class Wrapper(Loss):
    """Base class of losses around a `loss`, which take the data that it takes."""

    loss: Loss

    def __post_init__(self):
        object.__setattr__(self, "loss", loss_of(self.loss, reads="vectors"))
        if self.chunk is None and self.loss.chunk is not None:
            object.__setattr__(self, "chunk", self.loss.chunk)
        super().__post_init__()
        if type(self.loss).make_layer is not Loss.make_layer:
            raise ValueError(f"{self.name} needs a loss without a layer of its own. Received: {self.loss.name}.")

    @property
    def targets(self):
        return self.loss.targets

    @property
    def is_random(self):
        return self.loss.is_random

    @property
    def similarity_name(self):
        return self.loss.similarity_name

    def needs_rows(self, columns):
        return self.loss.needs_rows(columns)

    def check_columns(self, columns):
        self.loss.check_columns(columns)

    def check_texts(self, texts, batch_size):
        self.check_columns(len(texts[0]))
        self.loss.check_texts(texts, batch_size)

    def check_labels(self, labels, counts=None):
        self.loss.check_labels(labels, counts)

    def read_labels(self, y, rows, columns):
        return self.loss.read_labels(y, rows, columns)


def chosen(seed, number, count):
    """Which `count` of `number` things are chosen at random, float32 (number,): 1 or 0. All if count is not between."""
    if seed is None or not 0 < count < number:
        return ops.ones((number,))
    draws = keras.random.uniform((number,), seed=seed)
    rank = ops.sum(ops.cast(draws[:, None] > draws[None], "int32"), axis=1)
    return ops.cast(rank < count, "float32")


@dataclasses.dataclass(frozen=True)
class Matryoshka(Wrapper):
    """The sum of a loss on normalized prefixes of the vectors (Kusupati et al. 2022, arXiv 2205.13147).

        sum_d w_d loss(v[:d] / |v[:d]|)

    Args:
        loss: a loss, or its name.
        dims: the lengths of the prefixes. The vectors are also normalized at full length.
        weights: a weight for each. Default: 1.
        dims_per_step: number of lengths that are chosen at random in each step. Default: all.

    Raises:
        ValueError: if `dims` are missing, equal or below 1, `weights` are negative or not one per length,
            `dims_per_step` is below 1, or `loss` is unknown or has a layer of its own. In training, if a length exceeds
            the width of the vectors.

    Example:
        >>> from kerasbert.retrieval import Matryoshka, MultipleNegatives
        >>> from kerasbert.tasks import TextEmbedder
        >>> loss = Matryoshka(MultipleNegatives(), dims=(128, 64))
        >>> model = TextEmbedder.from_preset("modernbert_mini_en_embedder", objective=loss)
        >>> pairs = [("it will rain", "a storm is coming"), ("she baked bread", "the cake was sweet")]
        >>> history = model.fit(pairs, batch_size=2, verbose=0)
        >>> model.save_to_preset("saved_models/nested")
        >>> TextEmbedder.from_preset("saved_models/nested", truncate_dim=64).embed(["it rains"]).shape
        (1, 64)
    """

    dims: tuple[int, ...] = ()
    weights: tuple[float, ...] | None = None
    dims_per_step: int | None = None

    def __post_init__(self):
        super().__post_init__()
        if not self.dims or min(self.dims) < 1 or len(set(self.dims)) < len(self.dims):
            raise ValueError(f"`dims` must be different lengths, such as [384, 128, 32]. Received: {self.dims}.")
        if self.weights is not None and len(self.weights) != len(self.dims):
            raise ValueError(f"`weights` must be one per length. Received: {self.weights} for {self.dims}.")
        if self.weights is not None and not (min(self.weights) >= 0 < max(self.weights) < math.inf):
            raise ValueError(f"`weights` must be at least 0, and one above 0. Received: {self.weights}.")
        check_least(self, 1, "dims_per_step")

    @property
    def is_random(self):
        return self.dims_per_step is not None or self.loss.is_random

    def call(self, vectors, labels, step):
        width = vectors[0].shape[-1]
        if max(self.dims) > width:
            raise ValueError(f"`dims` must be at most the width of the vectors, {width}. Received: {self.dims}.")
        is_vector = labels is not None and self.loss.targets == "vectors"
        if is_vector:
            check_width(self.loss, labels, width)
        used, total = chosen(step.seed, len(self.dims), self.dims_per_step or 0), 0.0
        for i, dim in enumerate(self.dims):
            prefixes = [unit(vector[:, :dim]) for vector in vectors]
            loss = self.loss.call(prefixes, labels[..., :dim] if is_vector else labels, step)
            total = total + used[i] * loss * (1.0 if self.weights is None else self.weights[i])
        return total


LAYER_WEIGHTS = {
    "uniform": lambda i: 1.0,
    "log": lambda i: 1 / (1 + math.log(1 + i)),
    "linear": lambda i: 1 / (1 + i),
}


@dataclasses.dataclass(frozen=True)
class AdaptiveLayer(Wrapper):
    """A loss on the vectors of the last layer and of earlier ones, so that layers can be left out.

        a loss(last) + b mean_i w_i loss(layer i) + c sum_i t KL(softmax(last / t) || softmax(layer i / t))

    The distributions are over the components of a vector, and the last layer has no gradient there. With a
    `Matryoshka` inside, it is the 2D Matryoshka loss (Li et al. 2024, arXiv 2402.14776).

    Args:
        loss: a loss, or its name.
        layers_per_step: number of earlier layers that are chosen at random in each step; None for all.
        weighting: the weight of layer i, where 0 is the output of the embeddings: a name from `LAYER_WEIGHTS`.
        temperature: t, or 0 without the divergences.
        last_weight, earlier_weight, divergence_weight: a, b and c.

    Call:
        vectors: the columns, each float (b, l, m), with one vector per layer, the last layer at the end.

    Raises:
        ValueError: if `weighting` or `loss` is unknown, `loss` has a layer of its own, `layers_per_step` is below 1, or
            `temperature` below 0.
    """

    layers_per_step: int | None = 1
    weighting: str = "uniform"
    temperature: float = 0.3
    last_weight: float = 1.0
    earlier_weight: float = 1.0
    divergence_weight: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "weighting", LAYER_WEIGHTS)
        check_least(self, 1, "layers_per_step")
        check_least(self, 0, "temperature")

    @property
    def is_random(self):
        return self.layers_per_step is not None or self.loss.is_random

    def call(self, vectors, labels, step):
        earlier = vectors[0].shape[1] - 1
        count = min(self.layers_per_step or earlier, earlier)
        used, last = chosen(step.seed, earlier, count), [vector[:, -1] for vector in vectors]
        total = self.last_weight * self.loss.call(last, labels, step)
        for i in range(earlier):
            layer = [vector[:, i] for vector in vectors]
            weight = self.earlier_weight * LAYER_WEIGHTS[self.weighting](i) / count
            total = total + used[i] * weight * self.loss.call(layer, labels, step)
            if self.temperature > 0:
                weight = self.divergence_weight * self.temperature
                total = total + used[i] * weight * self._divergence(last, layer, step)
        return total

    def _divergence(self, last, layer, step):
        parts = []
        for teacher, student in zip(last, layer, strict=True):
            teacher = ops.stop_gradient(ops.log_softmax(teacher / self.temperature, axis=-1))
            student = ops.log_softmax(student / self.temperature, axis=-1)
            parts.append(step.mean(ops.sum(ops.exp(teacher) * (teacher - student), axis=-1)))
        return sum(parts) / len(parts)


@dataclasses.dataclass(frozen=True)
class GlobalOrthogonal(Loss):
    """Spreads the texts of each column over the sphere (Zhang et al. 2017, arXiv 1708.06320).

        mean over columns of mean_weight M_1^2 + second_moment_weight max(0, M_2 - 1 / m)

    M_1 and M_2 are the means of the cosine similarity of different rows and of its square. m is the width.

    Examples have one text or more. There is no y.

    Args:
        mean_weight, second_moment_weight: the factors in the formula.

    Raises:
        ValueError: if an option has the wrong type.
    """

    mean_weight: float = 1.0
    second_moment_weight: float = 1.0

    min_texts = 1
    compares_rows = True

    def call(self, vectors, labels, step):
        total, pairs = 0.0, step.real[:, None] & step.real[None]
        pairs = pairs & ~ops.cast(ops.eye(ops.shape(pairs)[0]), "bool")
        count = ops.maximum(ops.sum(ops.cast(pairs, "float32")), 1.0)
        for vector in vectors:
            similarity = ops.where(pairs, all_cosines(vector, vector), 0.0)
            first, second = ops.sum(similarity) / count, ops.sum(ops.square(similarity)) / count
            total = total + self.mean_weight * ops.square(first)
            total = total + self.second_moment_weight * ops.relu(second - 1 / vector.shape[-1])
        return total / len(vectors)
