"""Losses of rerankers: on the scores of pairs, and of lists of documents."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from .distillation import MarginMSE
from .labels import check_positives
from .loss import Loss, Step, check_choice, check_least
from .similarity import HIDDEN


@dataclasses.dataclass(frozen=True)
class ScoreLoss(Loss):
    """Base class of losses on scores, which are the outputs of a model before its activation.

    Call:
        scores: float (b,), or (b, n) for lists of documents or for classes.
        labels: see the class.
        weights: float (b,); for lists (b, n), where 0 is a place without a document. Default: 1.

    Returns: float32 scalar.
    """

    reads = "scores"
    is_list: ClassVar[bool] = False  # whether an example is a query with a list of documents
    of_classes: ClassVar[bool] = False  # whether a pair has a score for each class, rather than one

    def __call__(self, scores, labels=None, weights=None, **step):
        scores = ops.cast(scores, "float32")
        weights = ops.ones(ops.shape(scores)) if weights is None else ops.cast(weights, "float32")
        if not self.is_list:
            weights = weights[:, 0] if len(weights.shape) > 1 else weights
        elif len(weights.shape) == 1:
            weights = ops.broadcast_to(weights[:, None], ops.shape(scores))
        labels = None if labels is None else ops.convert_to_tensor(labels)
        return self.call(scores, labels, Step(weights, **step))


# === Single pairs ===


@dataclasses.dataclass(frozen=True)
class BinaryCrossEntropy(ScoreLoss):
    """-mean_i [ w y_i log sigmoid(s_i) + (1 - y_i) log(1 - sigmoid(s_i)) ], for labels y from 0 to 1.

    Args:
        positive_weight: w.

    Raises:
        ValueError: if an option has the wrong type, or `positive_weight` is not above 0.
    """

    positive_weight: float = 1.0

    max_texts, targets = 2, "probabilities"

    def __post_init__(self):
        super().__post_init__()
        check_least(self, 0, "positive_weight", exclusive=True)

    def call(self, scores, labels, step):
        labels, scores = ops.cast(labels, "float32"), ops.reshape(scores, (-1,))
        near, far = ops.log_sigmoid(scores), ops.log_sigmoid(-scores)
        return -step.mean(self.positive_weight * labels * near + (1 - labels) * far)


@dataclasses.dataclass(frozen=True)
class CrossEntropy(ScoreLoss):
    """-mean_i log softmax(s_i)[y_i], for scores of classes, (b, n), and class numbers y.

    Raises:
        ValueError: if `chunk` is no integer of at least 1.
    """

    max_texts, targets = 2, "classes"
    of_classes = True

    def call(self, scores, labels, step):
        return step.mean(keras.losses.sparse_categorical_crossentropy(labels, scores, from_logits=True))


@dataclasses.dataclass(frozen=True)
class MeanSquaredError(ScoreLoss):
    """mean_i (s_i - y_i)^2, such as for the logits of another cross-encoder.

    Raises:
        ValueError: if `chunk` is no integer of at least 1.
    """

    max_texts, targets = 2, "values"

    def call(self, scores, labels, step):
        return step.mean(ops.square(ops.reshape(scores, (-1,)) - ops.cast(labels, "float32")))


@dataclasses.dataclass(frozen=True)
class ScoreMarginMSE(ScoreLoss):
    """`MarginMSE` for scores (b, 1 + k) of the positive and the negatives.

    Hofstätter et al. 2020, arXiv 2010.02666.

    Raises:
        ValueError: if `chunk` is no integer of at least 1.
    """

    min_texts, targets = 3, "margins"

    def call(self, scores, labels, step):
        return MarginMSE.of_scores(scores, labels, step)


ACTIVATIONS = {"sigmoid": ops.sigmoid, "identity": lambda x: x}


@dataclasses.dataclass(frozen=True)
class SampledNegatives(ScoreLoss):
    """Cross-entropy of the positive among its negatives and random documents of other rows.

        -mean_i log softmax(scale activation(s_i))[0]

    Call:
        scores: float (b, n), the positive first.

    Args:
        count: number of random documents of other rows; None for all of them, and 0 for the negatives of the row alone.
        scale: factor of the activated scores.
        activation: "sigmoid", which bounds the logits to [0, scale], or "identity".

    Raises:
        ValueError: if `activation` is unknown, an option has the wrong type, `count` is below 0, or `scale` is not
            above 0. In training, if all examples have the same positive and no negatives.
    """

    count: int | None = 4
    scale: float = 10.0
    activation: str = "sigmoid"

    is_list = True

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "activation", ACTIVATIONS)
        check_least(self, 0, "count")
        check_least(self, 0, "scale", exclusive=True)

    def check_columns(self, columns):
        super().check_columns(columns)
        if columns == 2 and self.count == 0:
            raise ValueError(f"{self.name}(count=0) needs negatives in every example. Received: pairs. Add negatives.")

    def needs_rows(self, columns):
        return columns == 2  # a positive alone

    def check_texts(self, texts, batch_size):
        super().check_texts(texts, batch_size)
        if self.needs_rows(len(texts[0])):
            check_positives(self, texts)

    def documents(self, rows: int, columns: int, seed: int | Sequence[int] | None = None) -> np.ndarray:
        """Returns the numbers of the documents that each query is scored with.

        Document j of row i has the number j * rows + i. For 2 rows of a positive and a negative:
        -> [[0, 1, 3, 2], [1, 0, 2, 3]]: the positive, the documents of other rows, and the row's own negatives.

        Args:
            rows: number of queries.
            columns: number of documents per row: the positive and the negatives.
            seed: of the random choice.

        Returns: int32 (rows, 1 + at most `count` + columns - 1).
        """
        rng, numbers = np.random.default_rng(seed), np.arange(rows * columns)
        table = []
        for row in range(rows):
            others = numbers[numbers % rows != row]
            if self.count is not None and self.count < len(others):
                others = rng.choice(others, self.count, replace=False)
            table.append([row, *others, *(row + rows * np.arange(1, columns))])
        return np.array(table, "int32")

    def call(self, scores, labels, step):
        logits = self.scale * ACTIVATIONS[self.activation](scores)
        logits = ops.where(step.real, logits, HIDDEN)
        rows = dataclasses.replace(step, weights=ops.max(step.weights, axis=1))
        return rows.mean(ops.logsumexp(logits, axis=1) - logits[:, 0])


# === Lists of documents ===


def _over_queries(losses, step):
    """The mean of losses (b,) over the queries that have documents."""
    return dataclasses.replace(step, weights=ops.max(step.weights, axis=1)).mean(losses)


@dataclasses.dataclass(frozen=True)
class ListNet(ScoreLoss):
    """Cross-entropy of the distributions of labels and scores: -mean_q sum softmax(y_q) log softmax(s_q).

    Paper: Cao et al. 2007.

    Raises:
        ValueError: if `chunk` is no integer of at least 1.
    """

    is_list, targets = True, "relevance"

    def call(self, scores, labels, step):
        labels, scores = (ops.where(step.real, ops.cast(x, "float32"), HIDDEN) for x in (labels, scores))
        losses = ops.where(step.real, ops.softmax(labels, axis=1) * ops.log_softmax(scores, axis=1), 0.0)
        return -_over_queries(ops.sum(losses, axis=1), step)


@dataclasses.dataclass(frozen=True)
class ListMLE(ScoreLoss):
    """The likelihood of the right order, chosen one document after the other (Xia et al. 2008).

        -mean_q sum_i w_i [ s_i - logsumexp(s_i, ..., s_n) ]

    Args:
        keep_order: whether the documents are given in the right order, rather than sorted by their labels. The labels
            are then not needed.

    Raises:
        ValueError: if an option has the wrong type. In training, if `keep_order` is set, and a label is larger than
            that of the document before it.
    """

    keep_order: bool = True

    is_list, targets = True, "relevance"

    def read_labels(self, y, rows, columns):
        unneeded = y is None and self.keep_order
        return super().read_labels([[0.0] * count for count in columns] if unneeded else y, rows, columns)

    def check_labels(self, labels, counts=None):
        if not self.keep_order:
            return super().check_labels(labels, counts)
        for row, count in zip(() if labels is None else labels, counts or (), strict=True):
            if (np.diff(row[:count]) > 0).any():
                raise ValueError(
                    f"{self.name}(keep_order=True) takes documents in the right order, the best first. Received: the "
                    f"labels {row[:count].tolist()!s:.60}. Sort the documents, or use keep_order=False."
                )

    def ranks_weights(self, rank, count):
        """The weights w_i: ranks 1, 2, ... (b, n), and the number of documents (b, 1)."""
        return ops.ones_like(rank)

    def call(self, scores, labels, step):
        keys = ops.zeros_like(scores) if self.keep_order else ops.cast(labels, "float32")
        order = descending(ops.where(step.real, keys, HIDDEN))
        scores, real = (ops.take_along_axis(x, order, axis=1) for x in (scores, step.real))
        places = ops.arange(scores.shape[1])
        rest = real[:, None] & (places[None] >= places[:, None])[None]  # (b, i, j): j is at i or after it
        totals = ops.logsumexp(ops.where(rest, scores[:, None], HIDDEN), axis=-1)
        rank = ops.cast(places[None] + 1, "float32") * ops.ones_like(scores)
        weights = self.ranks_weights(rank, ops.sum(ops.cast(real, "float32"), axis=1, keepdims=True))
        return -_over_queries(ops.sum(ops.where(real, weights * (scores - totals), 0.0), axis=1), step)


@dataclasses.dataclass(frozen=True)
class PListMLE(ListMLE):
    """`ListMLE` with weights that fall with the rank: 2^(n - i) - 1, divided by their sum (Lan et al. 2014).

    Raises:
        ValueError: as in `ListMLE`.
    """

    def ranks_weights(self, rank, count):
        weights = ops.where(rank <= count, 2.0 ** (count - rank) - 1, 0.0)
        total = ops.sum(weights, axis=1, keepdims=True)
        return weights / ops.where(total > 0, total, 1.0)


WEIGHTINGS = ("none", "ndcg1", "ndcg2", "lambda_rank", "ndcg2pp")


@dataclasses.dataclass(frozen=True)
class LambdaLoss(ScoreLoss):
    """Weighted logistic loss of the pairs of a list in the wrong order (Wang et al. 2018).

        sum over y_i > y_j of w_ij (-log2 sigmoid(sigma (s_i - s_j))) / number of pairs in the batch

    D_r = log2(1 + r) is the discount of the rank r by score. The gains are G = (2^max(0, y) - 1) / IDCG. The weights of
    each `weighting` are:

    - "none" (RankNet): 1
    - "ndcg1": G_i / D_i, over all pairs
    - "ndcg2": |1 / D_d - 1 / D_{d+1}| |G_i - G_j|, where d = |r_i - r_j|
    - "lambda_rank": |1 / D_i - 1 / D_j| |G_i - G_j|
    - "ndcg2pp": mu times the weight of "ndcg2", plus the weight of "lambda_rank"

    Args:
        weighting: a name from `WEIGHTINGS`.
        k: only pairs count of which one document or both are among the first k by score. Default: all.
        sigma: slope of the sigmoid.
        log: "binary" or "natural".
        mu: see above.

    Raises:
        ValueError: if `weighting` or `log` is unknown, an option has the wrong type, `k` is below 1, or `sigma` is not
            above 0.

    Example:
        >>> from kerasbert.retrieval import LambdaLoss
        >>> from kerasbert.tasks import Reranker
        >>> model = Reranker.from_preset("bert_mini_en", objective=LambdaLoss(k=10), max_length=32)
        >>> examples = [("What do cats eat?", ["Horses live in barns.", "Cats eat fish.", "Snow fell."])]
        >>> history = model.fit(examples * 4, [[0, 1, 0]] * 4, batch_size=2, epochs=4, verbose=0)
        >>> history.history["loss"][-1] < history.history["loss"][0]
        True
    """

    weighting: str = "ndcg2pp"
    k: int | None = None
    sigma: float = 1.0
    log: str = "binary"
    mu: float = 10.0

    is_list, targets = True, "relevance"

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "weighting", WEIGHTINGS)
        check_choice(self, "log", ("binary", "natural"))
        check_least(self, 1, "k")
        check_least(self, 0, "sigma", exclusive=True)

    def call(self, scores, labels, step):
        labels = ops.where(step.real, ops.cast(labels, "float32"), 0.0)
        order = descending(ops.where(step.real, scores, HIDDEN))
        best = ops.take_along_axis(labels, descending(ops.where(step.real, labels, HIDDEN)), axis=1)
        scores, labels, real = (ops.take_along_axis(x, order, axis=1) for x in (scores, labels, step.real))
        rank = ops.cast(ops.arange(1, scores.shape[1] + 1), "float32")
        first = rank <= (self.k or scores.shape[1])
        best, gained = (2.0 ** ops.maximum(x, 0.0) - 1 for x in (best, labels))
        ideal = ops.sum(ops.where(first[None], best / log2(1 + rank), 0.0), axis=1, keepdims=True)
        gain = gained / ops.maximum(ideal, 1e-10)
        pairs = real[:, :, None] & real[:, None] & (first[:, None] | first[None])[None]
        if self.weighting != "ndcg1":
            pairs = pairs & (labels[:, :, None] > labels[:, None])
        losses = -ops.log_sigmoid(self.sigma * (scores[:, :, None] - scores[:, None]))
        losses = self._weights(gain, rank) * losses / (math.log(2) if self.log == "binary" else 1.0)
        count = ops.sum(ops.cast(pairs, "float32"))
        return ops.sum(ops.where(pairs, losses, 0.0)) / ops.maximum(count, 1.0)

    def _weights(self, gain, rank):
        """The weights w_ij, float32 (b, n, n), for the gains (b, n) and the ranks (n,)."""
        if self.weighting == "none":
            return 1.0
        if self.weighting == "ndcg1":
            return (gain / log2(1 + rank))[:, :, None]
        difference = ops.abs(gain[:, :, None] - gain[:, None])
        apart = ops.abs(rank[:, None] - rank[None])
        apart = ops.where(apart > 0, apart, 1.0)  # gain differences are 0 on the diagonal
        by_distance = ops.abs(1 / log2(1 + apart) - 1 / log2(2 + apart)) * difference
        by_rank = ops.abs(1 / log2(1 + rank)[:, None] - 1 / log2(1 + rank)[None]) * difference
        if self.weighting == "ndcg2pp":
            return self.mu * by_distance + by_rank
        return by_distance if self.weighting == "ndcg2" else by_rank


@dataclasses.dataclass(frozen=True)
class RankNet(LambdaLoss):
    """`LambdaLoss` without weights: the logistic loss of all pairs in the wrong order (Burges et al. 2005).

    Raises:
        ValueError: as in `LambdaLoss`.
    """

    weighting: str = "none"


@dataclasses.dataclass(frozen=True)
class ADRMSE(ScoreLoss):
    """Squared error of smooth ranks, discounted by the right rank: mean (r_i - r'_i)^2 / log2(1 + r_i).

        r'_i = 1 + sum over j != i of sigmoid(alpha (s_j - s_i))

    Documents with equal labels have the mean of their ranks as r. Paper: Schlatt et al. 2025 (Rank-DistiLLM).

    Args:
        alpha: slope of the sigmoid.

    Raises:
        ValueError: if `alpha` is no number above 0.
    """

    alpha: float = 1.0

    is_list, targets = True, "relevance"

    def __post_init__(self):
        super().__post_init__()
        check_least(self, 0, "alpha", exclusive=True)

    def call(self, scores, labels, step):
        labels, real = ops.cast(labels, "float32"), step.real
        others = real[:, None]
        above = ops.sum(ops.cast(others & (labels[:, None] > labels[:, :, None]), "float32"), axis=-1)
        equal = ops.sum(ops.cast(others & (labels[:, None] == labels[:, :, None]), "float32"), axis=-1)
        rank = above + (equal + 1) / 2
        passed = ops.sigmoid(self.alpha * (scores[:, None] - scores[:, :, None]))
        smooth = 0.5 + ops.sum(ops.where(others, passed, 0.0), axis=-1)  # a document passes itself by 1 / 2
        losses = ops.where(real, ops.square(rank - smooth) / log2(1 + ops.maximum(rank, 1.0)), 0.0)
        return ops.sum(losses) / ops.maximum(ops.sum(ops.cast(real, "float32")), 1.0)


def descending(keys: Any) -> Any:
    """The order of keys (b, n) from the largest; equal ones keep their order. int32 (b, n)."""
    places = ops.arange(keys.shape[1])
    before = (keys[:, None] > keys[:, :, None]) | (
        (keys[:, None] == keys[:, :, None]) & (places[None] < places[:, None])[None]
    )
    rank = ops.sum(ops.cast(before, "int32"), axis=-1)
    return ops.cast(ops.argsort(rank, axis=1), "int32")


def log2(x):
    return ops.log(x) / math.log(2)
