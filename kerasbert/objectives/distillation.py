"""Distillation of masked language models: a student learns from the probabilities and hidden states of a teacher."""

from collections.abc import Sequence
from os import PathLike
from typing import Any

import keras
import numpy as np
from keras import ops

from ..backend.gradients import no_gradients
from ..data.tokenizers.tokenizer import Tokenizer
from ..layers.embeddings import gather_positions
from ..models.backbone import Backbone
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
    """Selects the index of the teacher layer from which each student layer is initialized.

    The layers are evenly spaced, including the first and the last one. For 12 teacher layers and 6 student layers, they
    are [0, 2, 4, 7, 9, 11].
    """
    return np.rint(np.linspace(0, teacher_layers - 1, student_layers)).astype(int).tolist()


def start_from_teacher(
    student: MaskedLM, teacher: MaskedLM, layers: Sequence[int] | None = None, transform: bool = False
) -> list[str]:
    """Copies weights from a teacher to a student: embeddings, output bias, and some of the blocks.

    Outside the blocks, a weight is copied if the student has a weight with the same name and shape. Other weights of
    the teacher, such as segment embeddings that the student does not have, are ignored.

    Args:
        student, teacher: a `MaskedLM` each.
        layers: for each student block, the index of the teacher block that is copied. () copies no blocks. Default:
            evenly spaced blocks, as in DistilBERT (Sanh et al. 2019, section 3).
        transform: whether to copy the layers of the head that precede the product with the token embeddings.
            DistilBERT initializes them randomly, MobileBERT copies them.

    Returns: list of the paths of the student's variables that were set.

    Raises:
        ValueError: if nothing can be copied, or none of the layers that `transform` asks for.
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
    if transform and not any(path.startswith("masked_lm/") and path != "masked_lm/bias" for path in filled):
        raise ValueError(
            "For transform=True, the heads of student and teacher must have layers with the same name and shape. "
            f"Received: heads of {type(student.backbone).__name__} and {type(teacher.backbone).__name__}, which have "
            "none in common. Use transform=False."
        )
    return filled


def _by_path(model):
    """Returns {path: variable} for a model, where paths begin with a layer of the model or of its backbone."""
    found = {}
    for owner in (model.backbone, model):
        layers = {layer.name for layer in owner.layers if layer is not model.backbone}
        for variable in owner.weights:
            names = variable.path.split("/")  # scopes, the owner, a layer, ..., or scopes, the owner, the variable
            places = (i for i in range(1, len(names)) if names[i - 1] == owner.name)
            start = next((i for i in places if names[i] in layers or i == len(names) - 1), None)
            if start is not None and "seed" not in variable.path:
                found["/".join(names[start:])] = variable
    return found


def _block_sources(student, teacher, layers):
    """Returns {id(variable in a block of the student): variable of the teacher to copy, or None}."""
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
    """Cross-entropy between two distributions: -sum(softmax(teacher_logits / T) * log softmax(logits / T)).

    Args:
        logits, teacher_logits: float (..., v).
        temperature: T.

    Returns: float32 (...), in nats.
    """
    logits = ops.cast(logits, "float32") / temperature
    probabilities = ops.softmax(ops.cast(teacher_logits, "float32") / temperature, axis=-1)
    return ops.logsumexp(logits, axis=-1) - ops.sum(probabilities * logits, axis=-1)


def soft_divergence(logits, teacher_logits, temperature=1.0):
    """Scaled KL divergence: T ** 2 * KL(softmax(teacher_logits / T) || softmax(logits / T)).

    For example, it is 0.241076 for logits [1, 0, -1], teacher logits [2, 0, -2] and T = 2.

    Args:
        logits, teacher_logits: float (..., v).
        temperature: T.

    Returns: float32 (...), in nats.
    """
    entropy = soft_cross_entropy(teacher_logits, teacher_logits, temperature)
    return temperature**2 * (soft_cross_entropy(logits, teacher_logits, temperature) - entropy)


def cosine_distance(x, y):
    """Returns 1 - cosine similarity of the vectors in x and y, both (b, s, m), as float32 (b, s)."""
    x, y = ops.cast(x, "float32"), ops.cast(y, "float32")
    squares = ops.sum(ops.square(x), axis=-1) * ops.sum(ops.square(y), axis=-1)
    return 1.0 - ops.sum(x * y, axis=-1) * ops.rsqrt(ops.maximum(squares, 1e-24))


class FromTeacher(PairObjective):
    """Base class of objectives with a teacher, which is frozen, runs without dropout, and is not saved.

    Args:
        student: a `MaskedLM`, or a backbone with a `masked_lm` head, or a folder with one of them.
        teacher: a `MaskedLM`, or a folder with one.
        tokenizer: a `Tokenizer` for text inputs. Default: the student's tokenizer, or else the teacher's.
    """

    PARTS = ("student", "teacher")

    def __init__(
        self,
        student: MaskedLM | Backbone | str | PathLike,
        teacher: MaskedLM | str | PathLike,
        tokenizer: Tokenizer | None = None,
        **kwargs: Any,
    ):
        if isinstance(teacher, Backbone):
            raise ValueError(
                "A teacher needs a trained head. Received: only a backbone. Pass a MaskedLM, or a folder with one."
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
        """Returns the outputs of the teacher's backbone, without gradients and dropout."""
        backbone = self.teacher.backbone
        with no_gradients():
            outputs = backbone(inputs, training=False, **backbone.prediction_arguments, **options)
        return keras.tree.map_structure(ops.stop_gradient, outputs)

    def _teacher_logits(self, x):
        with no_gradients():
            return ops.stop_gradient(self.teacher.masked_lm(x, self.teacher.backbone.token_table))

    def text_batches(self, *data):
        """Returns batches with masked tokens for texts, each of which is one document; see `MaskedLMBatches`."""
        return masked_batches(self.student, self.require_tokenizer(), *data)

    def check_batch(self, x, y=None, sample_weight=None):
        self.student.check_batch(x, y, sample_weight)
        self.teacher.backbone.check_inputs(x)

    def save_to_preset(self, path: str | PathLike, **options: Any) -> None:
        """Saves the student as a `MaskedLM`; see `Trainable.save_to_preset`."""
        self.student.save_to_preset(path, tokenizer_of=self, **options)


@keras.saving.register_keras_serializable("kerasbert")
class Distillation(FromTeacher):
    """Distillation as in DistilBERT: the student learns the teacher's probabilities and hidden states.

    Sanh, Debut, Chaumond, Wolf 2019, arXiv 1910.01108. The loss is the weighted sum of three means: the KL divergence
    between the probabilities of teacher and student (`soft_divergence`) at all real tokens, the cross-entropy at the
    masked tokens, and the cosine distance between the last hidden states at all real tokens. `start_from_teacher`
    initializes the student. The paper's code masks rare tokens more often, which corresponds to
    `MaskedLMBatches(..., noise=RareTokens(exponent=0.7))`.

    Args:
        student, teacher, tokenizer: see `FromTeacher`.
        temperature: temperature of both distributions, 2 in the paper's code.
        soft_weight, mlm_weight, cosine_weight: weights of the three losses, 5, 2 and 1 in the paper's code.
        slots_only: whether probabilities are compared only at the `masked_positions`.

    Call:
        inputs: a batch.

    Returns:
        A dict of the outputs below. The targets y are the masked tokens, int32 (b, p).
            - `tokens` (b, p, v), the student's logits at the masked positions.
            - `soft` and `teacher_soft`, the logits of student and teacher at all tokens (b, s, v), or with `slots_only`
              (b, p, v).
            - `hidden` and `teacher_hidden` (b, s, m), their last hidden states.

    Raises:
        ValueError: if student and teacher have different vocabularies, or with a `cosine_weight`, different
            `hidden_dim`, or if `temperature` is not above 0, or the teacher has no trained head.

    Example:
        >>> from kerasbert.data import Corpus, MaskedLMBatches
        >>> from kerasbert.models import DistilBert, DistilBertConfig
        >>> from kerasbert.objectives import Distillation, MaskedLM, start_from_teacher
        >>> teacher = MaskedLM.from_preset("bert_mini_en")
        >>> config = DistilBertConfig(8192, num_layers=3, num_heads=4, hidden_dim=256, feed_forward_dim=1024)
        >>> student = MaskedLM(DistilBert(config), tokenizer=teacher.tokenizer)
        >>> copied = start_from_teacher(student, teacher)  # every second block
        >>> corpus = Corpus.in_memory(["The cat sat on the mat.", "A dog ran home."] * 8, teacher.tokenizer)
        >>> batches = MaskedLMBatches(corpus, batch_size=4, length=16, steps=2)
        >>> history = Distillation(student, teacher).fit(batches, verbose=0)
        >>> sorted(history.history)
        ['accuracy', 'cosine_loss', 'loss', 'mlm_loss', 'soft_loss']
    """

    SAVES = ("temperature", "soft_weight", "mlm_weight", "cosine_weight", "slots_only")

    default_learning_rate = 5e-4

    def __init__(
        self,
        student: MaskedLM | Backbone | str | PathLike,
        teacher: MaskedLM | str | PathLike,
        temperature: float = 2.0,
        soft_weight: float = 5.0,
        mlm_weight: float = 2.0,
        cosine_weight: float = 1.0,
        slots_only: bool = False,
        tokenizer: Tokenizer | None = None,
        **kwargs: Any,
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
