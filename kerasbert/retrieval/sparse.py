"""Sparse vectors over the vocabulary: pooling, regularization and its schedule (SPLADE)."""

import dataclasses
from typing import Any

from keras import ops

from .loss import check_choice, check_least
from .wrappers import Wrapper

STRATEGIES = {"max": ops.max, "sum": ops.sum}
ACTIVATIONS = ("relu", "log1p_relu")
SCHEDULES = {
    "constant": lambda share: share * 0 + 1,
    "linear": lambda share: share,
    "quadratic": lambda share: share**2,
}


def splade_pooling(logits: Any, mask: Any = None, strategy: str = "max", activation: str = "relu") -> Any:
    """Pools the logits of a masked language model into one weight per word of the vocabulary.

        max or sum over tokens of log(1 + relu(logits))

    Papers: Formal et al. 2021, arXiv 2107.05720 ("sum") and arXiv 2109.10086 ("max").

    Args:
        logits: float (b, s, v).
        mask: bool (b, s), True at real tokens. Default: all.
        strategy: "max" or "sum".
        activation: "relu" is the formula. "log1p_relu" applies the logarithm twice, as in OpenSearch's doc-v3 models.

    Returns: float32 (b, v), at least 0.

    Raises:
        ValueError: if `strategy` or `activation` is unknown.
    """
    if strategy not in STRATEGIES or activation not in ACTIVATIONS:
        raise ValueError(
            f"`strategy` must be one of {', '.join(STRATEGIES)}, and `activation` one of {', '.join(ACTIVATIONS)}. "
            f"Received: {strategy!r} and {activation!r}."
        )
    weights = activated(ops.cast(logits, "float32"), activation)
    if mask is not None:
        weights = ops.where(ops.cast(mask, "bool")[:, :, None], weights, 0.0)
    return STRATEGIES[strategy](weights, axis=1)


def activated(logits: Any, activation: str = "relu") -> Any:
    """log(1 + relu(logits)); the logarithm is applied twice for the activation "log1p_relu"."""
    weights = ops.log1p(ops.relu(logits))
    return ops.log1p(weights) if activation == "log1p_relu" else weights


def flops(vectors: Any, weights: Any = None, threshold: int | None = None) -> Any:
    """The number of operations of a search: the sum over words of (mean over texts of the weight)^2.

    Paria et al. 2020, arXiv 2004.05665.

    Args:
        vectors: float (b, v), at least 0.
        weights: float (b,); texts with weight 0 do not count. Default: 1.
        threshold: texts with at most so many words are treated as empty. Default: none.

    Returns: float32 scalar.
    """
    vectors = ops.cast(vectors, "float32")
    if threshold is not None:
        words = ops.sum(ops.cast(vectors != 0, "int32"), axis=1, keepdims=True)
        vectors = ops.where(words > threshold, vectors, 0.0)
    if weights is None:
        return ops.sum(ops.square(ops.mean(vectors, axis=0)))
    real = ops.cast(weights > 0, "float32")
    total = ops.sum(vectors * real[:, None], axis=0) / ops.maximum(ops.sum(real), 1.0)
    return ops.sum(ops.square(total))


@dataclasses.dataclass(frozen=True)
class Splade(Wrapper):
    """loss + document_weight FLOPS(documents) + query_weight FLOPS(queries).

    Paper: Formal et al. 2021, arXiv 2107.05720. The first column contains the queries, the others the documents. Losses
    inside use dot products with a scale of 1, such as MultipleNegatives(scale=1, similarity="dot").

    Args:
        loss: a loss, or its name.
        document_weight, query_weight: the factors. None for queries that are not encoded by the model.
        document_threshold, query_threshold: see `flops`.
        warmup: number of updates in which the factors rise from 0. The usual number is a third of all updates.
        schedule: how they rise: "quadratic", "linear", or "constant" for no rise.

    Raises:
        ValueError: if `schedule` or `loss` is unknown, `loss` has a layer of its own, or an option has the wrong type,
            or is below 0. In training, if an example is a single text.

    Example:
        >>> from kerasbert.retrieval import MultipleNegatives, Splade
        >>> from kerasbert.tasks import SparseEmbedder
        >>> loss = Splade(MultipleNegatives(scale=1.0, similarity="dot"), document_weight=3e-3, query_weight=5e-3)
        >>> model = SparseEmbedder.from_preset("bert_mini_en", objective=loss, max_length=32)
        >>> pairs = [("rain", "a storm is coming"), ("bread", "she baked a cake")]
        >>> history = model.fit(pairs, batch_size=2, epochs=2, verbose=0)
        >>> first, last = history.history["loss"]
        >>> last < first
        True
    """

    document_weight: float = 3e-5
    query_weight: float | None = 5e-5
    document_threshold: int | None = None
    query_threshold: int | None = None
    warmup: int = 0
    schedule: str = "quadratic"

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "schedule", SCHEDULES)
        check_least(self, 0, "document_weight", "query_weight", "document_threshold", "query_threshold", "warmup")

    def check_columns(self, columns):
        super().check_columns(columns)
        if columns < 2:
            raise ValueError(f"{self.name} needs two texts per example, or more. Received: {columns}.")

    def factor(self, number: Any) -> Any:
        """The share of the factors that applies after `number` updates, a number or tensor from 0 to 1."""
        if not self.warmup:
            return 1.0
        if isinstance(number, int):
            return SCHEDULES[self.schedule](min(number / self.warmup, 1.0))
        return SCHEDULES[self.schedule](ops.minimum(ops.cast(number, "float32") / self.warmup, 1.0))

    def parts(self, vectors, labels, step):
        """The three terms: {"loss", "documents", "queries"}, the last two with their factors."""
        documents, many = ops.concatenate(vectors[1:], axis=0), len(vectors) - 1
        rows, factor = ops.concatenate([step.weights] * many), self.factor(step.number)
        parts = {"loss": self.loss.call(vectors, labels, step)}
        parts["documents"] = factor * self.document_weight * flops(documents, rows, self.document_threshold)
        if self.query_weight is not None:
            parts["queries"] = factor * self.query_weight * flops(vectors[0], step.weights, self.query_threshold)
        return parts

    def call(self, vectors, labels, step):
        return sum(self.parts(vectors, labels, step).values())
