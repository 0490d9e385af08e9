"""Distillation of masked language models: a student learns from the probabilities and hidden states of a teacher."""

import keras
import numpy as np
from keras import ops

from ..backend.gradients import no_gradients
from ..core.backbone import Backbone
from ..layers.embeddings import gather_positions
from .masked_lm import MaskedLM, masked_batches
from .objective import PairObjective, WeightedMean, as_objective, correct, cross_entropy, slot_weights, token_weights
from .shared_embeddings import copy_value


def spread_layers(teacher_layers, student_layers):
    """Which layer of a teacher each layer of its student starts from: evenly, the first and the last among them.

    12, 6 -> [0, 2, 4, 7, 9, 11]
    """
    return np.rint(np.linspace(0, teacher_layers - 1, student_layers)).astype(int).tolist()


def start_from_teacher(student, teacher, layers=None, transform=False):
    """Copies weights of a teacher into a student: embeddings, output bias, and some blocks.

    Everything outside the blocks that both have under one name and in one shape is copied; what a student lacks, such
    as segments, is dropped.

    Args:
        student, teacher: each a `MaskedLM`.
        layers: number of the teacher's block for each of the student's, or () to copy none. Default: spread evenly
            (DistilBERT: Sanh et al. 2019, section 3).
        transform: also copy the layers of the head in front of the token table. DistilBERT leaves them new, MobileBERT
            copies them.

    Returns: the paths of the student's variables that were filled.
    """
    if layers is None:
        layers = spread_layers(teacher.backbone.config.num_layers, student.backbone.config.num_layers)
    theirs, filled = _by_path(teacher), []
    for path, variable in _by_path(student).items():
        first, _, rest = path.partition("/")
        source = path
        if first.startswith("block_"):
            number = int(first.removeprefix("block_"))
            source = f"block_{layers[number]}/{rest}" if number < len(layers) else None
        elif first == "masked_lm":
            source = path if transform or path == "masked_lm/bias" else None
        elif type(getattr(student.backbone, first, None)) is not type(getattr(teacher.backbone, first, None)):
            source = None
        if source in theirs and theirs[source].shape == variable.shape:
            copy_value(theirs[source], variable)
            filled.append(path)
    if not filled:
        raise ValueError(
            "A student starts from a teacher with which it has weights in common, of one name and shape. Received: "
            f"{type(student.backbone).__name__} and {type(teacher.backbone).__name__}, which have none."
        )
    return filled


def _by_path(model):
    return {variable.path.split("/", 1)[1]: variable for variable in model.weights if "seed" not in variable.path}


def soft_cross_entropy(logits, teacher_logits, temperature=1.0):
    """-sum of softmax(teacher_logits / T) * log softmax(logits / T): float32, nats."""
    logits = ops.cast(logits, "float32") / temperature
    chances = ops.softmax(ops.cast(teacher_logits, "float32") / temperature, axis=-1)
    return ops.logsumexp(logits, axis=-1) - ops.sum(chances * logits, axis=-1)


def soft_divergence(logits, teacher_logits, temperature=1.0):
    """T ** 2 * KL(softmax(teacher_logits / T) || softmax(logits / T)): float32, nats.

    logits 1, 0, -1, teacher 2, 0, -2, T 2 -> 0.241076
    """
    entropy = soft_cross_entropy(teacher_logits, teacher_logits, temperature)
    return temperature**2 * (soft_cross_entropy(logits, teacher_logits, temperature) - entropy)


def cosine_distance(x, y):
    """1 - cosine of the angle between vectors, float32: (b, s, m), (b, s, m) -> (b, s)."""
    x, y = ops.cast(x, "float32"), ops.cast(y, "float32")
    squares = ops.sum(ops.square(x), axis=-1) * ops.sum(ops.square(y), axis=-1)
    return 1.0 - ops.sum(x * y, axis=-1) * ops.rsqrt(ops.maximum(squares, 1e-24))


class FromTeacher(PairObjective):
    """Base of objectives with a teacher: it is frozen, runs without dropout, and is not part of what is saved.

    Args:
        student: a backbone with a `masked_lm` head, or its `MaskedLM`, or a folder.
        teacher: a `MaskedLM`, or the folder of one.
        tokenizer: for text. Default: the student's, or the teacher's.
    """

    PARTS = ("student", "teacher")

    def __init__(self, student, teacher, tokenizer=None, **kwargs):
        if isinstance(teacher, Backbone):
            raise ValueError(
                "A teacher has a trained head. Received: a backbone alone. Give its MaskedLM, or the folder of one."
            )
        teacher = as_objective(teacher, MaskedLM)
        student = as_objective(student, MaskedLM)
        sizes = [half.backbone.config.vocabulary_size for half in (student, teacher)]
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"Student and teacher must have one vocabulary. Received: vocabulary_size={sizes[0]} and {sizes[1]}."
            )
        tokenizer = tokenizer or student.tokenizer or teacher.tokenizer
        super().__init__(student.backbone, tokenizer, **kwargs)
        self.student, self.teacher = student, teacher

    def trained_parts(self):
        return [self.student]

    def untrained_variables(self):
        return [*super().untrained_variables(), *self.teacher.variables]

    def _teach(self, inputs, **options):
        """The outputs of the teacher's backbone, without gradient and dropout."""
        backbone = self.teacher.backbone
        with no_gradients():
            outputs = backbone(inputs, training=False, **backbone.prediction_arguments, **options)
        return keras.tree.map_structure(lambda x: None if x is None else ops.stop_gradient(x), outputs)

    def _teacher_logits(self, x):
        with no_gradients():
            return ops.stop_gradient(self.teacher.masked_lm(x, self.teacher.backbone.token_table))

    def text_batches(self, *data):
        """Masked batches over texts, one document each; see `MaskedLMBatches` for more control."""
        return masked_batches(self.student, self.require_tokenizer(), *data)

    def check_batch(self, x, y=None, sample_weight=None):
        self.student.check_batch(x, y, sample_weight)
        self.teacher.backbone.check_inputs(x)

    def save_to_preset(self, path, **options):
        """Writes the student, as a folder of its `MaskedLM`."""
        self.student.save_to_preset(path, **options)
        if self.tokenizer is not None:
            self.tokenizer.save(path)


@keras.saving.register_keras_serializable("kerasbert")
class Distillation(FromTeacher):
    """DistilBERT: the teacher's probabilities, the masked tokens, and the direction of the teacher's hidden states.

    Sanh, Debut, Chaumond, Wolf 2019, arXiv 1910.01108. The loss is `soft_weight` * T^2 KL(teacher || student) over real
    tokens + `mlm_weight` * cross-entropy at the masked ones + `cosine_weight` * (1 - cosine of the last hidden states)
    over real tokens; each is a mean. `start_from_teacher` gives the student its first weights. The paper's code masks
    rare tokens first: `MaskedLMBatches(..., rare_exponent=0.7)`.

    Args:
        student, teacher, tokenizer: see `FromTeacher`.
        temperature: T, of both distributions. The paper's code: 2.
        soft_weight, mlm_weight, cosine_weight: of the three losses. The paper's code: 5, 2, 1.
        slots_only: compare probabilities at the masked slots alone.

    Call:
        inputs: a batch.

    Returns: a dict of the student's logits at the slots, `tokens` (b, p, v); logits `soft` and `teacher_soft`, float
        (b, s, v), or (b, p, v) with `slots_only`; hidden states `hidden` and `teacher_hidden` (b, s, m). The targets y
        are the masked tokens, int32 (b, p).
    """

    default_learning_rate = 5e-4

    def __init__(
        self,
        student,
        teacher,
        temperature=2.0,
        soft_weight=5.0,
        mlm_weight=2.0,
        cosine_weight=1.0,
        slots_only=False,
        tokenizer=None,
        **kwargs,
    ):
        super().__init__(student, teacher, tokenizer, **kwargs)
        widths = [half.backbone.config.hidden_dim for half in (self.student, self.teacher)]
        if cosine_weight and widths[0] != widths[1]:
            raise ValueError(
                f"Hidden states are compared: student and teacher must have one `hidden_dim`. Received: {widths[0]} "
                f"and {widths[1]}. Use cosine_weight=0."
            )
        if not temperature > 0:
            raise ValueError(f"`temperature` must be above 0. Received: {temperature}.")
        self.temperature, self.slots_only = temperature, slots_only
        self.soft_weight, self.mlm_weight, self.cosine_weight = soft_weight, mlm_weight, cosine_weight
        self.soft_loss = WeightedMean(name="soft_loss")
        self.mlm_loss = WeightedMean(name="mlm_loss")
        self.cosine_loss = WeightedMean(name="cosine_loss")
        self.accuracy = WeightedMean(name="accuracy")
        self.build_now()

    def call(self, inputs):
        backbone, positions = self.student.backbone, inputs.get("masked_positions")
        x = backbone(inputs, **backbone.prediction_arguments)["sequence_output"]
        y = self._teach(inputs)["sequence_output"]
        outputs = {"hidden": x, "teacher_hidden": y}
        if self.slots_only and positions is not None:
            x, y = gather_positions(x, positions), gather_positions(y, positions)
        logits = self.student.masked_lm(x, backbone.token_table)
        gather = positions is not None and not self.slots_only
        return {
            **outputs,
            "tokens": gather_positions(logits, positions) if gather else logits,
            "soft": logits,
            "teacher_soft": self._teacher_logits(y),
        }

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        slots = slot_weights(x, y, sample_weight)
        is_row = sample_weight is not None and len(sample_weight.shape) == 1
        tokens = token_weights(x, sample_weight if is_row else None)
        soft = soft_divergence(y_pred["soft"], y_pred["teacher_soft"], self.temperature)
        mlm = cross_entropy(y_pred["tokens"], y)
        cosine = cosine_distance(y_pred["hidden"], y_pred["teacher_hidden"])
        right = correct(y_pred["tokens"], y)
        compared = slots if self.slots_only else tokens
        self.soft_loss.update_state(soft, compared)
        self.mlm_loss.update_state(mlm, slots)
        self.cosine_loss.update_state(cosine, tokens)
        self.accuracy.update_state(right, slots)
        return (
            self.soft_weight * self.mean_loss(x, soft, compared, "tokens" if self.slots_only else "soft")
            + self.mlm_weight * self.mean_loss(x, mlm, slots, "tokens")
            + self.cosine_weight * self.mean_loss(x, cosine, tokens, "hidden")
        )

    def arguments(self):
        names = ("temperature", "soft_weight", "mlm_weight", "cosine_weight", "slots_only")
        return {name: getattr(self, name) for name in names}
