"""Losses that learn from the scores or the vectors of a teacher."""

import dataclasses

from keras import ops

from .loss import Loss, check_choice, check_least
from .similarity import SIMILARITIES, cosine, euclidean


def document_scores(vectors, similarity):
    """The similarities of each query with its own documents, float32 (b, number of documents)."""
    return ops.stack([SIMILARITIES[similarity].of_rows(vectors[0], document) for document in vectors[1:]], axis=1)


@dataclasses.dataclass(frozen=True)
class MarginMSE(Loss):
    """Squared error of the margins between the positive and the negatives.

        mean over i and k of ((sim(q_i, p_i) - sim(q_i, n_ik)) - margin_ik)^2

    Paper: Hofstätter et al. 2020, arXiv 2010.02666. The labels are the teacher's margins, (b,) or (b, k), or its scores
    of the k + 1 documents, (b, k + 1). A cross-encoder's scores are logits.

    Raises:
        ValueError: if `similarity` is unknown.
    """

    similarity: str = "dot"

    min_texts = 3
    targets = "margins"

    def call(self, vectors, labels, step):
        return self.of_scores(document_scores(vectors, self.similarity), labels, step)

    @staticmethod
    def of_scores(scores, labels, step):
        """The loss of scores (b, 1 + k) of the positive and the negatives."""
        labels = ops.stop_gradient(ops.cast(labels, "float32"))
        if len(labels.shape) == 1:
            labels = labels[:, None]
        if labels.shape[1] == scores.shape[1]:
            labels = labels[:, :1] - labels[:, 1:]
        return step.mean(ops.mean(ops.square(scores[:, :1] - scores[:, 1:] - labels), axis=1))


@dataclasses.dataclass(frozen=True)
class DistillKL(Loss):
    """KL divergence of the student's distribution over the documents of a query from the teacher's.

        temperature^2 mean_i KL(softmax(teacher_i / teacher_temperature) || softmax(scores_i / temperature))

    Papers: Hinton et al. 2015, arXiv 1503.02531; Lin et al. 2020 (TCT-ColBERT), arXiv 2010.11386. The labels are the
    teacher's scores of the documents, (b, k + 1).

    Args:
        temperature: of the student.
        teacher_temperature: of the teacher. Default: `temperature`.
        similarity: "cosine", "dot", "euclidean", "manhattan", "max_sim" or "mean_max_sim".
        min_max: whether the student's scores are scaled to [0, 1] in each row, as in PyLate.

    Raises:
        ValueError: if `similarity` is unknown, an option has the wrong type, or a temperature is not above 0.
    """

    temperature: float = 1.0
    teacher_temperature: float | None = None
    similarity: str = "dot"
    min_max: bool = False

    targets = "teacher_scores"
    min_texts = 3

    def __post_init__(self):
        super().__post_init__()
        check_least(self, 0, "temperature", "teacher_temperature", exclusive=True)

    def call(self, vectors, labels, step):
        return self.of_scores(document_scores(vectors, self.similarity), labels, step)

    def of_scores(self, scores, labels, step):
        """The loss of scores (b, 1 + k) of the documents."""
        if self.min_max:
            least, most = (function(scores, axis=1, keepdims=True) for function in (ops.min, ops.max))
            scores = (scores - least) / ops.maximum(most - least, 1e-8)
        labels = ops.stop_gradient(ops.cast(labels, "float32"))
        teacher = ops.log_softmax(labels / (self.teacher_temperature or self.temperature), axis=1)
        student = ops.log_softmax(scores / self.temperature, axis=1)
        return self.temperature**2 * step.mean(ops.sum(ops.exp(teacher) * (teacher - student), axis=1))


def check_width(loss, labels, width):
    """Raises a ValueError if the teacher's vectors have another width than those of the model."""
    if labels.shape[-1] not in (None, width):  # None: unknown while TensorFlow traces a step
        raise ValueError(
            f"The teacher's vectors must have the width of the model's for {loss.name}, {width}. Received: "
            f"{labels.shape[-1]}. Give the model a dense layer of that width, or project the teacher's vectors."
        )


@dataclasses.dataclass(frozen=True)
class EmbeddingMSE(Loss):
    """The distance of the vectors to a teacher's, as a mean over the texts of an example.

    With the teacher's vector of a source text as the target of the source and of its translations, the student learns
    other languages (Reimers, Gurevych 2020, arXiv 2004.09813). The labels are vectors, (b, m) for all texts or
    (b, c, m) for each.

    Args:
        metric: "mse", the mean over the components; "l2", the Euclidean distance; or "cosine", 1 - cosine similarity.

    Raises:
        ValueError: if `metric` is unknown. In training, if the teacher's vectors have another width than the model's.
    """

    metric: str = "mse"

    min_texts = 1
    targets = "vectors"

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "metric", ("mse", "l2", "cosine"))

    def call(self, vectors, labels, step):
        check_width(self, labels, vectors[0].shape[-1])
        labels = ops.stop_gradient(ops.cast(labels, "float32"))
        distances = {
            "mse": lambda x, y: ops.mean(ops.square(x - y), axis=-1),
            "l2": euclidean,
            "cosine": lambda x, y: 1 - cosine(x, y),
        }[self.metric]
        targets = [labels if len(labels.shape) == 2 else labels[:, i] for i in range(len(vectors))]
        return step.mean(sum(map(distances, vectors, targets)) / len(vectors))
