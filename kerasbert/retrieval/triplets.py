"""Triplet losses: of given triplets, and of those that the classes of single texts form in the batch."""

import dataclasses

from keras import ops

from .loss import Loss
from .similarity import DISTANCES, HIDDEN


@dataclasses.dataclass(frozen=True)
class Triplet(Loss):
    """mean_i max(0, D(a_i, p_i) - D(a_i, n_i) + margin) (Schroff et al. 2015, arXiv 1503.03832).

    Examples are (anchor, positive, negative), without y.

    Args:
        margin: how much further than the positive the negative should be. Sentence-BERT has the same default.
        distance: a name from `similarity.DISTANCES`. "cosine" is 1 - cosine similarity.

    Raises:
        ValueError: if `distance` is unknown, or an option has the wrong type.
    """

    margin: float = 1.0
    distance: str = "euclidean"

    min_texts = max_texts = 3

    def call(self, vectors, labels, step):
        near, far = (DISTANCES[self.distance].of_rows(vectors[0], vectors[i]) for i in (1, 2))
        return step.mean(ops.relu(near - far + self.margin))


# === Triplets in the batch ===


def _pairs(distance, vectors, labels, step):
    """Distances (b, b), and which pairs are two texts of a class, or texts of different classes, bool (b, b)."""
    labels = ops.reshape(labels, (-1,))
    pairs = step.real[:, None] & step.real[None]
    same = labels[:, None] == labels[None]
    itself = ops.cast(ops.eye(ops.shape(labels)[0]), "bool")
    return DISTANCES[distance].of_all(vectors[0], vectors[0]), pairs & same & ~itself, pairs & ~same


def _hardest(distance, vectors, labels, step):
    """max_same D_ij, 0 if there is none, and min_other D_ij, float32 (b,)."""
    distances, same, other = _pairs(distance, vectors, labels, step)
    furthest = ops.max(ops.where(same, distances, 0.0), axis=1)
    largest = ops.max(ops.where(step.real[None], distances, 0.0), axis=1, keepdims=True)
    return furthest, ops.min(ops.where(other, distances, distances + largest), axis=1)


@dataclasses.dataclass(frozen=True)
class BatchHard(Loss):
    """Compares the furthest text of the same class with the closest text of another class, for every text.

        mean_i max(0, max_same D_ij - min_other D_ij + margin)

    Paper: Hermans et al. 2017, arXiv 1703.07737.

    Examples are single texts. y has the class of each.

    Args:
        margin: see `Triplet`.
        distance: a name from `similarity.DISTANCES`.

    Raises:
        ValueError: if `distance` is unknown, or an option has the wrong type.
    """

    margin: float = 5.0
    distance: str = "euclidean"

    min_texts = max_texts = 1
    targets = "groups"
    compares_rows = True

    def call(self, vectors, labels, step):
        furthest, closest = _hardest(self.distance, vectors, labels, step)
        return step.mean(ops.relu(furthest - closest + self.margin))


@dataclasses.dataclass(frozen=True)
class BatchHardSoftMargin(Loss):
    """`BatchHard` with log(1 + exp(x)) in place of max(0, x + margin) (Hermans et al. 2017, arXiv 1703.07737).

    Examples are single texts. y has the class of each.

    Args:
        distance: see `Triplet`.

    Raises:
        ValueError: if `distance` is unknown, or an option has the wrong type.
    """

    distance: str = "euclidean"

    min_texts = max_texts = 1
    targets = "groups"
    compares_rows = True

    def call(self, vectors, labels, step):
        furthest, closest = _hardest(self.distance, vectors, labels, step)
        return step.mean(ops.softplus(furthest - closest))


@dataclasses.dataclass(frozen=True)
class BatchSemiHard(Loss):
    """All pairs of a class, each with the closest text of another class that is further away (arXiv 1503.03832).

    If no text of another class is further away, the furthest of them is used.

    Examples are single texts. y has the class of each.

    Args:
        margin, distance: see `Triplet`.

    Raises:
        ValueError: if `distance` is unknown, or an option has the wrong type.
    """

    margin: float = 5.0
    distance: str = "euclidean"

    min_texts = max_texts = 1
    targets = "groups"
    compares_rows = True

    def call(self, vectors, labels, step):
        distances, same, other = _pairs(self.distance, vectors, labels, step)
        outside = other[:, None] & (distances[:, None] > distances[:, :, None])  # (i, j, k): D_ik > D_ij
        closest = ops.min(ops.where(outside, distances[:, None], -HIDDEN), axis=-1)
        furthest = ops.max(ops.where(other, distances, HIDDEN), axis=1, keepdims=True)
        negative = ops.where(ops.any(outside, axis=-1), closest, furthest)
        same = same & ops.any(other, axis=1)[:, None]
        losses = ops.where(same, ops.relu(distances - negative + self.margin), 0.0)
        return ops.sum(losses) / ops.maximum(ops.sum(ops.cast(same, "float32")), 1.0)


@dataclasses.dataclass(frozen=True)
class BatchAll(Loss):
    """The mean of max(0, D(a, p) - D(a, n) + margin) over all triplets of the batch for which it is above 0.

    Examples are single texts. y has the class of each.

    Args:
        margin, distance: see `Triplet`.

    Raises:
        ValueError: if `distance` is unknown, or an option has the wrong type.
    """

    margin: float = 5.0
    distance: str = "euclidean"

    min_texts = max_texts = 1
    targets = "groups"
    compares_rows = True

    def call(self, vectors, labels, step):
        distances, same, other = _pairs(self.distance, vectors, labels, step)
        losses = ops.relu(distances[:, :, None] - distances[:, None] + self.margin)
        losses = ops.where(same[:, :, None] & other[:, None], losses, 0.0)
        return ops.sum(losses) / ops.maximum(ops.sum(ops.cast(losses > 1e-16, "float32")), 1.0)
