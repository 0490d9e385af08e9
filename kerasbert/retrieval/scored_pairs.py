"""Losses of pairs of texts with a label: a score, 0 or 1, or a class."""

import dataclasses
from typing import Any

import keras
from keras import ops

from ..data.tasks.labels import names_of
from .loss import Loss, check_least
from .similarity import DISTANCES, HIDDEN, SIMILARITIES, angle_similarity, cosine


@dataclasses.dataclass(frozen=True)
class CosineSimilarity(Loss):
    """Squared error of the cosine similarity (Reimers, Gurevych 2019, arXiv 1908.10084): mean_i (cos(u_i, v_i) - y_i)^2

    For STS-B, divide the scores by 5.

    Examples are pairs. y has a score from -1 to 1 for each.

    Raises:
        ValueError: if an option has the wrong type or an unknown value.
    """

    max_texts = 2
    targets = "scores"

    def call(self, vectors, labels, step):
        return step.mean(ops.square(cosine(*vectors) - ops.reshape(ops.cast(labels, "float32"), (-1,))))


def order_loss(similarities, labels, real, scale):
    """log(1 + sum over y_i < y_j of exp(scale (sim_i - sim_j))), for similarities and labels (n,), real bool (n,)."""
    wrong = (labels[:, None] < labels[None]) & real[:, None] & real[None]
    excess = ops.where(wrong, scale * (similarities[:, None] - similarities[None]), HIDDEN)
    return ops.logsumexp(ops.concatenate([ops.zeros((1,)), ops.reshape(excess, (-1,))]))


@dataclasses.dataclass(frozen=True)
class CoSENT(Loss):
    """Ranks pairs by their labels, of which only the order matters (Su 2022, kexue.fm/archives/8847).

        log(1 + sum over y_i < y_j of exp(scale (sim(u_i, v_i) - sim(u_j, v_j))))

    Examples are pairs. y has a number for each.

    Args:
        scale: factor of the similarities.
        similarity: "cosine", "dot", "euclidean", "manhattan", "max_sim" or "mean_max_sim".

    Raises:
        ValueError: if `similarity` is unknown, an option has the wrong type, or `scale` is not above 0.

    Example:
        >>> from kerasbert.retrieval import CoSENT
        >>> from kerasbert.tasks import TextEmbedder
        >>> model = TextEmbedder.from_preset("modernbert_mini_en_embedder", objective=CoSENT())
        >>> pairs = [("it will rain", "a storm is coming"), ("it will rain", "the cake was sweet")]
        >>> history = model.fit(pairs, [0.9, 0.1], batch_size=2, epochs=2, verbose=0)
        >>> first, last = history.history["loss"]
        >>> last < first
        True
    """

    scale: float = 20.0
    similarity: str = "cosine"

    max_texts = 2
    targets = "numbers"
    compares_rows = True

    def __post_init__(self):
        super().__post_init__()
        check_least(self, 0, "scale", exclusive=True)

    def call(self, vectors, labels, step):
        similarities = SIMILARITIES[self.similarity].of_rows(*vectors)
        return order_loss(similarities, ops.reshape(labels, (-1,)), step.real, self.scale)


@dataclasses.dataclass(frozen=True)
class AnglE(Loss):
    """`CoSENT` with the angle between the vectors, read as complex numbers, as similarity.

    Li, Li 2023, arXiv 2309.12871. Without labels, examples are (anchor, positive, negatives): pairs with the positive
    have the label 1, the others 0.

    Args:
        scale: factor of the similarities.

    Raises:
        ValueError: if an option has the wrong type, or `scale` is not above 0.
    """

    scale: float = 20.0

    targets = "numbers"

    def __post_init__(self):
        super().__post_init__()
        check_least(self, 0, "scale", exclusive=True)

    def needs_rows(self, columns):
        return columns == 2

    def read_labels(self, y, rows, columns):
        if columns == 2:
            return super().read_labels(y, rows, columns)
        if y is not None:
            raise ValueError(f"AnglE needs pairs if there are labels. Received: y with {columns} texts per example.")
        return None

    def call(self, vectors, labels, step):
        documents = vectors[1:]
        similarities = ops.concatenate([angle_similarity(vectors[0], document) for document in documents])
        if len(documents) > 1:
            rows = ops.shape(similarities)[0] // len(documents)
            labels = ops.arange(rows * len(documents)) < rows
        real = ops.concatenate([step.real] * len(documents))
        return order_loss(similarities, ops.cast(ops.reshape(labels, (-1,)), "float32"), real, self.scale)


@dataclasses.dataclass(frozen=True)
class Contrastive(Loss):
    """Similar pairs (1) come closer, others (0) are pushed apart up to a margin (Hadsell, Chopra, LeCun 2006).

        mean_i [ y_i D_i^2 + (1 - y_i) max(0, margin - D_i)^2 ] / 2

    Examples are pairs. y is 1 for similar texts and 0 for others.

    Args:
        margin: the distance beyond which pairs with label 0 add nothing.
        distance: a name from `similarity.DISTANCES`. "cosine" is 1 - cosine similarity.

    Raises:
        ValueError: if `distance` is unknown, an option has the wrong type, or `margin` is not above 0.
    """

    margin: float = 0.5
    distance: str = "cosine"

    max_texts = 2
    targets = "binary"

    def __post_init__(self):
        super().__post_init__()
        check_least(self, 0, "margin", exclusive=True)

    def call(self, vectors, labels, step):
        distance, similar = DISTANCES[self.distance].of_rows(*vectors), ops.reshape(labels, (-1,)) == 1
        near, far = ops.square(distance), ops.square(ops.relu(self.margin - distance))
        return step.mean(ops.where(similar, near, far) / 2)


@dataclasses.dataclass(frozen=True)
class OnlineContrastive(Loss):
    """`Contrastive` on the hard pairs of the batch only, as the sum of D^2 and max(0, margin - D)^2.

    Hard are similar pairs that are further apart than the closest other pair, and other pairs that are closer than the
    furthest similar pair. If there is only one kind, its mean distance takes the place of the missing bound.

    Examples are pairs. y is 1 for similar texts and 0 for others.

    Args:
        margin, distance: see `Contrastive`.

    Raises:
        ValueError: if `distance` is unknown, an option has the wrong type, or `margin` is not above 0.
    """

    margin: float = 0.5
    distance: str = "cosine"

    max_texts = 2
    targets = "binary"

    def __post_init__(self):
        super().__post_init__()
        check_least(self, 0, "margin", exclusive=True)

    def call(self, vectors, labels, step):
        distance, labels = DISTANCES[self.distance].of_rows(*vectors), ops.reshape(labels, (-1,))
        similar, other = (step.real & (labels == label) for label in (1, 0))
        furthest = _bound(ops.max, similar, other, distance, HIDDEN)
        closest = _bound(ops.min, other, similar, distance, -HIDDEN)
        near = ops.where(similar & (distance > closest), ops.square(distance), 0.0)
        far = ops.where(other & (distance < furthest), ops.square(ops.relu(self.margin - distance)), 0.0)
        return ops.sum((near + far) * step.weights)


def _bound(function, kind, opposite, distance, nothing):
    """The maximum or minimum distance of one kind of pairs; without any, the mean distance of the opposite kind."""
    count = ops.sum(ops.cast(opposite, "float32"))
    mean = ops.sum(ops.where(opposite, distance, 0.0)) / ops.maximum(count, 1.0)
    return ops.where(ops.any(kind), function(ops.where(kind, distance, nothing)), mean)


@dataclasses.dataclass(frozen=True)
class PairClasses(Loss):
    """Cross-entropy of a linear layer on [u; v; |u - v|], which is used in training only.

    Reimers, Gurevych 2019, arXiv 1908.10084.

    Examples are pairs. y has the class of each, as a number or a name.

    Args:
        labels: the names of the classes, or their number.

    Raises:
        ValueError: if `labels` are not different names of one type.
    """

    labels: Any = 3

    max_texts = 2
    targets = "classes"

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "labels", tuple(names_of(self.labels)))

    def make_layer(self, initializer):
        return keras.layers.Dense(
            len(self.labels), kernel_initializer=initializer, dtype="float32", name="pair_classifier"
        )

    def features(self, vectors):
        u, v = vectors
        return ops.concatenate([u, v, ops.abs(u - v)], axis=-1)

    def call(self, vectors, labels, step):
        logits = step.layer(self.features(vectors))
        return step.mean(keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True))
