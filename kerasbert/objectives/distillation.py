"""Distillation of masked language models: a student learns from the probabilities and hidden states of a teacher."""

import keras
import numpy as np
from keras import ops

from ..backend.gradients import no_gradients
from ..core.backbone import Backbone
from ..layers.embeddings import gather_positions
from .masked_lm import MaskedLM, masked_batches
from .objective import (
    PairObjective,
    WeightedMean,
    as_objective,
    cross_entropy,
    predicted_correctly,
    slot_weights,
    token_weights,
)
from .shared_embeddings import copy_value


def spread_layers(teacher_layers, student_layers):
    """The teacher layer from which each student layer is initialised: evenly spaced, including the first and the last.

    12, 6 -> [0, 2, 4, 7, 9, 11]
    """
    return np.rint(np.linspace(0, teacher_layers - 1, student_layers)).astype(int).tolist()


def start_from_teacher(student, teacher, layers=None, transform=False):
    """Copies weights of a teacher into a student: embeddings, output bias, and some blocks.

    Outside the blocks, every weight that both have under the same name and with the same shape is copied; weights that
    the student lacks, such as segment embeddings, are dropped.

    Args:
        student, teacher: each a `MaskedLM`.
        layers: index of the teacher's block for each student block, or () to copy no blocks. Default: evenly spaced
            (DistilBERT: Sanh et al. 2019, section 3).
        transform: also copy the layers of the head before the token table. DistilBERT initialises them randomly,
            MobileBERT copies them.

    Returns: the paths of the student's variables that were set.
    """
    if layers is None:
        layers = spread_layers(teacher.backbone.config.num_layers, student.backbone.config.num_layers)
    theirs, blocks, filled = _by_path(teacher), _block_sources(student.backbone, teacher.backbone, layers), []
    for path, variable in _by_path(student).items():
        first = path.partition("/")[0]
        source = theirs.get(path)
        if id(variable) in blocks:
            source = blocks[id(variable)]
        elif first == "masked_lm":
            source = source if transform or path == "masked_lm/bias" else None
        elif type(getattr(student.backbone, first, None)) is not type(getattr(teacher.backbone, first, None)):
            source = None
        if source is not None and source.shape == variable.shape:
            copy_value(source, variable)
            filled.append(path)
    if not filled:
        raise ValueError(
            "Student and teacher must have weights with the same name and shape. Received: "
            f"{type(student.backbone).__name__} and {type(teacher.backbone).__name__}, which have none in common."
        )
    return filled


def _by_path(model):
    return {variable.path.split("/", 1)[1]: variable for variable in model.weights if "seed" not in variable.path}


def _block_sources(student, teacher, layers):
    """{id of a variable in a block of the student: the teacher's variable, or None}."""
    sources, theirs = {}, teacher.stages() or []
    for number, block in enumerate(student.stages() or []):
        source = theirs[layers[number]] if number < len(layers) else ()
        named = [{_path_within(layer, variable): variable for variable in layer.weights} for layer in source]
        for position, layer in enumerate(block):
            of_layer = named[position] if position < len(named) else {}
            sources |= {id(variable): of_layer.get(_path_within(layer, variable)) for variable in layer.weights}
    return sources


def _path_within(layer, variable):
    return variable.path.split(f"/{layer.name}/", 1)[-1]


def soft_cross_entropy(logits, teacher_logits, temperature=1.0):
    """-sum of softmax(teacher_logits / T) * log softmax(logits / T): float32, nats."""
    logits = ops.cast(logits, "float32") / temperature
    probabilities = ops.softmax(ops.cast(teacher_logits, "float32") / temperature, axis=-1)
    return ops.logsumexp(logits, axis=-1) - ops.sum(probabilities * logits, axis=-1)


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
    """Base class of objectives with a teacher, which is frozen, runs without dropout, and is not saved.

    Args:
        student: a backbone with a `masked_lm` head, or its `MaskedLM`, or a folder.
        teacher: a `MaskedLM`, or a folder to load it from.
        tokenizer: for text. Default: the student's, or else the teacher's.
    """

    PARTS = ("student", "teacher")

    def __init__(self, student, teacher, tokenizer=None, **kwargs):
        if isinstance(teacher, Backbone):
            raise ValueError(
                "A teacher needs a trained head. Received: a backbone alone. Pass a MaskedLM, or a folder with one."
            )
        teacher = as_objective(teacher, MaskedLM)
        student = as_objective(student, MaskedLM)
        sizes = [half.backbone.config.vocabulary_size for half in (student, teacher)]
        if sizes[0] != sizes[1]:
            raise ValueError(
                "Student and teacher must have the same vocabulary. Received: vocabulary_size="
                f"{sizes[0]} and {sizes[1]}."
            )
        tokenizer = tokenizer or student.tokenizer or teacher.tokenizer
        super().__init__(student.backbone, tokenizer, **kwargs)
        self.student, self.teacher = student, teacher

    def trained_parts(self):
        return [self.student]

    def untrained_variables(self):
        return [*super().untrained_variables(), *self.teacher.variables]

    def _teach(self, inputs, **options):
        """The outputs of the teacher's backbone, without gradients and dropout."""
        backbone = self.teacher.backbone
        with no_gradients():
            outputs = backbone(inputs, training=False, **backbone.prediction_arguments, **options)
        return keras.tree.map_structure(lambda x: None if x is None else ops.stop_gradient(x), outputs)

    def _teacher_logits(self, x):
        with no_gradients():
            return ops.stop_gradient(self.teacher.masked_lm(x, self.teacher.backbone.token_table))

    def text_batches(self, *data):
        """Masked batches from texts, each text one document; see `MaskedLMBatches` for more control."""
        return masked_batches(self.student, self.require_tokenizer(), *data)

    def check_batch(self, x, y=None, sample_weight=None):
        self.student.check_batch(x, y, sample_weight)
        self.teacher.backbone.check_inputs(x)

    def save_to_preset(self, path, **options):
        """Saves the student as a `MaskedLM`."""
        self.student.save_to_preset(path, **options)
        if self.tokenizer is not None:
            self.tokenizer.save(path)


@keras.saving.register_keras_serializable("kerasbert")
class Distillation(FromTeacher):
    """DistilBERT: learns the teacher's probabilities, the masked tokens, and the direction of the hidden states.

    Sanh, Debut, Chaumond, Wolf 2019, arXiv 1910.01108. The loss is `soft_weight` * T^2 KL(teacher || student) over real
    tokens + `mlm_weight` * cross-entropy at the masked ones + `cosine_weight` * (1 - cosine of the last hidden states)
    over real tokens; each is a mean. `start_from_teacher` initialises the student. The paper's code masks rare
    tokens more often: `MaskedLMBatches(..., noise=RareTokens(exponent=0.7))`.

    Args:
        student, teacher, tokenizer: see `FromTeacher`.
        temperature: T, for both distributions. 2 in the paper's code.
        soft_weight, mlm_weight, cosine_weight: weights of the three losses. 5, 2, 1 in the paper's code.
        slots_only: compare probabilities at the masked slots only.

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
                f"To compare hidden states, student and teacher must have the same `hidden_dim`. Received: {widths[0]} "
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
        right = predicted_correctly(y_pred["tokens"], y)
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
