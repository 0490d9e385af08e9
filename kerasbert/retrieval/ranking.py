"""Losses that identify the positive of each anchor among all documents of the batch."""

import dataclasses

from keras import ops

from .labels import check_positives
from .loss import Loss, check_choice, check_least
from .similarity import HIDDEN, SIMILARITIES, all_cosines, unit

DIRECTIONS = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")
HARDNESS = ("in_batch_negatives", "hard_negatives", "all_negatives")


@dataclasses.dataclass(frozen=True)
class MultipleNegatives(Loss):
    """Cross-entropy of the positive among all documents of the batch (InfoNCE).

        mean_i [ log sum_j exp(scale sim(a_i, d_j)) - scale sim(a_i, p_i) ]

    The documents are the positives and the negatives of all rows. Paper: Henderson et al. 2017, arXiv 1705.00652. With
    the same text as anchor and positive, whose vectors differ by dropout, it is SimCSE (Gao, Yao, Chen 2021, arXiv
    2104.08821).

    Examples are (anchor, positive) or (anchor, positive, negative, ...), without y.

    Args:
        scale: factor of the similarities, the inverse of the temperature. Sparse and late-interaction models use 1.
        similarity: "cosine", "dot", "euclidean", "manhattan", "max_sim" or "mean_max_sim".
        directions: what is compared. "query_to_doc" is the formula above. The others add terms to the sum: "doc_to_doc"
            and "query_to_query" compare p_i and a_i with the documents and anchors of other rows, "doc_to_query"
            compares p_i with all anchors.
        partition: "joint" takes one sum over all directions. "per_direction" takes the mean of one loss per direction,
            for "query_to_doc" with "doc_to_query".
        hardness: which documents get the logit + hardness_strength * similarity, so that similar ones count more (Lan
            et al. 2025, arXiv 2503.04812). The addition has no gradient. The documents are "in_batch_negatives" (of
            other rows), "hard_negatives" (of the row) or "all_negatives". Default: none.
        hardness_strength: the factor.
        mask_duplicates: whether texts that equal the row's own positive are left out, where the texts are known.

    Raises:
        ValueError: if `similarity`, `partition` or `hardness` is unknown, `directions` lack query_to_doc, the partition
            does not fit the directions, `scale` is not above 0, or `hardness_strength` is below 0. In training, if all
            examples have the same positive, which leaves no negatives.

    Example:
        >>> from kerasbert.retrieval import MultipleNegatives
        >>> from kerasbert.tasks import TextEmbedder
        >>> model = TextEmbedder.from_preset("modernbert_mini_en_embedder", objective=MultipleNegatives(scale=20.0))
        >>> pairs = [("it will rain", "a storm is coming"), ("she baked bread", "the cake was sweet")]
        >>> history = model.fit(pairs, batch_size=2, epochs=2, verbose=0)
        >>> first, last = history.history["loss"]
        >>> last < first
        True
    """

    scale: float = 20.0
    similarity: str = "cosine"
    directions: tuple[str, ...] = ("query_to_doc",)
    partition: str = "joint"
    hardness: str | None = None
    hardness_strength: float = 0.0
    mask_duplicates: bool = True

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "partition", ("joint", "per_direction"))
        check_choice(self, "hardness", HARDNESS)
        check_least(self, 0, "scale", exclusive=True)
        check_least(self, 0, "hardness_strength")
        if "query_to_doc" not in self.directions or not set(self.directions) <= set(DIRECTIONS):
            raise ValueError(
                f"`directions` must be some of {', '.join(DIRECTIONS)}, with query_to_doc. Received: {self.directions}."
            )
        if self.partition == "per_direction" and set(self.directions) != {"query_to_doc", "doc_to_query"}:
            raise ValueError(f'"per_direction" needs query_to_doc and doc_to_query. Received: {self.directions}.')

    def needs_rows(self, columns):
        return columns == 2

    def check_texts(self, texts, batch_size):
        super().check_texts(texts, batch_size)
        compares_anchors = {"query_to_query", "doc_to_query"} & set(self.directions)
        if self.mask_duplicates and self.needs_rows(len(texts[0])) and not compares_anchors:
            check_positives(self, texts)

    def call(self, vectors, labels, step):
        documents = range(1, len(vectors))
        blocks = []
        if "query_to_doc" in self.directions:
            blocks.append([self._logits(vectors, step, 0, j, 1, own=j == 1) for j in documents])
        if "query_to_query" in self.directions:
            blocks.append([self._logits(vectors, step, 0, 0, 0, own=False)])
        if "doc_to_query" in self.directions:
            blocks.append([self._logits(vectors, step, 1, 0, 0, own=True)])
        if "doc_to_doc" in self.directions:
            blocks.append([self._logits(vectors, step, 1, j, 1, own=False) for j in documents])
        positive = self.scale * SIMILARITIES[self.similarity].of_rows(vectors[0], vectors[1])
        if self.partition == "joint":
            blocks = [sum(blocks, [])]
        totals = [ops.logsumexp(ops.concatenate(block, axis=1), axis=1) for block in blocks]
        return step.mean(sum(totals) / len(totals) - positive)

    def _logits(self, vectors, step, i, j, target, own):
        """The logits of text i of each row with text j of all rows, float32 (b, b).

        Args:
            target: the text whose duplicates are no negatives: the positive, or for anchors the anchor.
            own: whether the pairs of the row itself on the diagonal are the positive pairs.
        """
        similarity = SIMILARITIES[self.similarity].of_all(vectors[i], vectors[j])
        logits = self.scale * similarity
        diagonal = ops.cast(ops.eye(ops.shape(similarity)[0]), "bool")
        hard = (i, own) == (0, False) and j > 0  # the row's hard negatives are on the diagonal
        if self.hardness is not None and i == 0 and j > 0:
            counts = {
                "in_batch_negatives": ~diagonal,
                "hard_negatives": diagonal if hard else ops.zeros_like(diagonal),
                "all_negatives": ops.ones_like(diagonal) if hard else ~diagonal,
            }[self.hardness]
            logits = logits + self.hardness_strength * ops.where(counts, ops.stop_gradient(similarity), 0.0)
        allowed = ops.broadcast_to(step.real[None], ops.shape(similarity))
        if self.mask_duplicates:
            allowed = allowed & ~step.same_text(target, j)
        allowed = (allowed | diagonal) if own else allowed if hard else (allowed & ~diagonal)
        return ops.where(allowed, logits, HIDDEN)


@dataclasses.dataclass(frozen=True)
class GIST(Loss):
    """`MultipleNegatives` without the negatives that a guide finds too similar (Solatorio 2024, arXiv 2402.16829).

    A pair (i, j) is left out if the guide's similarity exceeds its threshold for row i, which is its similarity of the
    row's own anchor and positive minus the margin. The labels are the guide's vectors, float (b, c, width).

    Args:
        temperature: divisor of the similarities.
        margin: an amount, or with `relative`, a share of the guide's similarity of anchor and positive.
        relative: whether the margin is a share.
        contrast_anchors, contrast_positives: whether the anchors, and the positives, of other rows are negatives, too.

    Raises:
        ValueError: if an option has the wrong type, or `temperature` is not above 0.
    """

    temperature: float = 0.01
    margin: float = 0.0
    relative: bool = False
    contrast_anchors: bool = True
    contrast_positives: bool = True

    targets = "guides"

    def __post_init__(self):
        super().__post_init__()
        check_least(self, 0, "temperature", exclusive=True)

    def needs_rows(self, columns):
        return columns == 2

    def call(self, vectors, labels, step):
        guides = [ops.stop_gradient(unit(ops.cast(labels[:, i], "float32"))) for i in range(len(vectors))]
        positive = ops.cast(ops.eye(ops.shape(guides[0])[0]), "bool")
        # From the product of all pairs: equal texts are then as similar as the row's own, to the last bit.
        own = ops.sum(ops.where(positive, all_cosines(guides[0], guides[1]), 0.0), axis=1)
        threshold = own - self.margin * (ops.abs(own) if self.relative else 1.0)
        pairs = [(0, 1)] + [(0, 0)] * self.contrast_anchors + [(1, 1)] * self.contrast_positives
        pairs += [(0, j) for j in range(2, len(vectors))]
        logits = []
        for i, j in pairs:
            allowed = step.real[None] & (all_cosines(guides[i], guides[j]) <= threshold[:, None])
            allowed = allowed | positive if (i, j) == (0, 1) else allowed
            logits.append(ops.where(allowed, all_cosines(vectors[i], vectors[j]) / self.temperature, HIDDEN))
        target = ops.sum(ops.where(positive, logits[0], 0.0), axis=1)
        return step.mean(ops.logsumexp(ops.concatenate(logits, axis=1), axis=1) - target)


@dataclasses.dataclass(frozen=True)
class MegaBatchMargin(Loss):
    """Margins on the positive and on the most similar positive of another row.

    mean_i [ max(0, positive_margin - cos(a_i, p_i)) + max(0, max_{j != i} cos(a_i, p_j) - negative_margin) ]

    Paper: Wieting, Gimpel 2018, arXiv 1711.05732.

    Examples are (anchor, positive), without y.

    Args:
        positive_margin: the similarity that a positive should reach.
        negative_margin: the similarity above which the positive of another row counts as too similar.

    Raises:
        ValueError: if an option has the wrong type. In training, if all examples have the same positive.
    """

    positive_margin: float = 0.8
    negative_margin: float = 0.3

    max_texts = 2
    compares_rows = True

    def check_texts(self, texts, batch_size):
        super().check_texts(texts, batch_size)
        check_positives(self, texts)

    def call(self, vectors, labels, step):
        similarity = all_cosines(*vectors)
        own = ops.cast(ops.eye(ops.shape(similarity)[0]), "bool")
        near = ops.sum(ops.where(own, similarity, 0.0), axis=1)
        far = ops.max(ops.where(own | ~step.real[None] | step.same_text(1, 1), HIDDEN, similarity), axis=1)
        return step.mean(ops.relu(self.positive_margin - near) + ops.relu(far - self.negative_margin))
