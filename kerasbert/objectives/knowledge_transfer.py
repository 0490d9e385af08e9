"""Layer-wise knowledge transfer, as in MobileBERT, from a teacher with the same number of layers and hidden size."""

import dataclasses
from collections.abc import Mapping
from os import PathLike
from typing import Any

import keras
from keras import ops

from ..checkpoints.arguments import Saved
from ..data.tokenizers.tokenizer import Tokenizer
from ..layers.embeddings import gather_positions
from ..models.backbone import Backbone
from .distillation import FromTeacher, soft_cross_entropy
from .masked_lm import MaskedLM
from .objective import WeightedMean, cross_entropy, predicted_correctly, slot_weights, token_weights

STRATEGIES = ("auxiliary", "joint", "progressive")


def normalized(x):
    """Normalizes the last axis to mean 0 and variance 1, and returns the result as float32."""
    x = ops.cast(x, "float32")
    mean, variance = ops.moments(x, axes=-1, keepdims=True)
    return (x - mean) * ops.rsqrt(variance + 1e-12)


def attention_divergence(weights, teacher_weights):
    """Computes the KL divergence KL(teacher || student) of attention probabilities, averaged over the heads.

    Args:
        weights, teacher_weights: float (b, h, q, k), attention probabilities of student and teacher.

    Returns: float32 (b, q), in nats.
    """
    weights, teacher_weights = ops.cast(weights, "float32"), ops.cast(teacher_weights, "float32")
    ratio = ops.log(ops.maximum(teacher_weights, 1e-30)) - ops.log(ops.maximum(weights, 1e-30))
    return ops.mean(ops.sum(teacher_weights * ratio, axis=-1), axis=1)


@dataclasses.dataclass(frozen=True)
class TransferWeights:
    """The weights of the terms of MobileBERT's transfer loss of a layer.

    Args:
        features: of the squared difference of the normalized hidden states.
        means, variances: of the differences of the means and variances of the hidden states.
        attention: of the KL divergence of the attention probabilities.
    """

    features: float = 100.0
    means: float = 5_000.0
    variances: float = 5.0
    attention: float = 1.0


@keras.saving.register_keras_serializable("kerasbert")
class KnowledgeTransfer(FromTeacher):
    """Knowledge transfer as in MobileBERT: the student learns the hidden states and attention of each teacher layer.

    Sun, Yu, Song, Liu, Yang, Zhou 2020, arXiv 2004.02984, section 3.5. There are two kinds of losses:

    - The transfer loss of a layer is the sum of the squared difference of the normalized hidden states, the differences
      of their means and variances, and the KL divergence of the attention probabilities. It is averaged over layers.
    - The distillation loss is the cross-entropy at the masked positions, where the target is a mixture of the original
      token and the teacher's probabilities. The sentence-pair loss is added if the student has this head.

    Neither model uses dropout. Padding is ignored, whereas the official code includes it.

    Args:
        student, teacher, tokenizer: see `FromTeacher`. `start_from_teacher(student, teacher, layers=(),
            transform=True)` initializes the student.
        strategy: "auxiliary" trains on all losses together. "joint" trains on the transfer losses of all layers for
            `transfer_steps`, and then on the distillation loss. "progressive" is like "joint", but transfers one layer
            after the other, in phases of equal length. Use it with `kerasbert.training.ProgressiveAdamW`, which gives
            each layer the learning rate of its phase.
        transfer_steps: number of batches of layer-wise transfer, 240,000 in the paper. For "progressive", it must be a
            multiple of the number of layers.
        transfer_weights: `TransferWeights`, or a dict of them. Default: the weights of MobileBERT.
        hard_share: weight of the original token in the mixture.

    Call:
        inputs: a batch.

    Returns:
        A dict of the outputs below. The targets y are the same as for the student's `MaskedLM`.
            - `tokens` and `teacher_tokens` (b, p, v), the logits of student and teacher.
            - `features` and `teacher_features`, lists with the hidden states (b, s, m) of each layer.
            - `attention` and `teacher_attention`, lists with the attention probabilities (b, h, s, s) of each layer.
            - `sentence_pair` (b, 2), if there is a sentence-pair head.

    Raises:
        ValueError: if student and teacher differ in vocabulary, `num_layers`, `hidden_dim` or `num_heads`, `strategy`
            is unknown, or `transfer_steps` or `hard_share` is out of range.
    """

    SAVES = ("strategy", "transfer_steps", "transfer_weights", "hard_share")
    SAVED_AS = {"transfer_weights": Saved(dict[str, float])}

    def __init__(
        self,
        student: MaskedLM | Backbone | str | PathLike,
        teacher: MaskedLM | str | PathLike,
        strategy: str = "progressive",
        transfer_steps: int = 240_000,
        transfer_weights: TransferWeights | Mapping[str, float] | None = None,
        hard_share: float = 0.5,
        tokenizer: Tokenizer | None = None,
        **kwargs: Any,
    ):
        super().__init__(student, teacher, tokenizer, **kwargs)
        configs = [half.backbone.config for half in (self.student, self.teacher)]
        for name in ("num_layers", "hidden_dim", "num_heads"):
            sizes = [getattr(config, name) for config in configs]
            if sizes[0] != sizes[1]:
                raise ValueError(
                    f"To compare layers, student and teacher must have the same `{name}`. Received: {sizes[0]} and "
                    f"{sizes[1]}. Use a teacher of the student's depth and width, or `Distillation`."
                )
        if strategy not in STRATEGIES:
            raise ValueError(f"`strategy` must be one of {', '.join(STRATEGIES)}. Received: {strategy!r}.")
        self.num_layers = configs[0].num_layers
        if transfer_steps < 0 or (strategy == "progressive" and transfer_steps % self.num_layers):
            raise ValueError(
                f'`transfer_steps` must be at least 0 and, for "progressive", a multiple of {self.num_layers} layers. '
                f"Received: {transfer_steps}. "
                f"Use {transfer_steps // self.num_layers * self.num_layers or self.num_layers}."
            )
        if not 0 <= hard_share <= 1:
            raise ValueError(f"`hard_share` must be between 0 and 1. Received: {hard_share}.")
        self.strategy, self.transfer_steps, self.hard_share = strategy, transfer_steps, hard_share
        is_record = isinstance(transfer_weights, TransferWeights)
        self.transfer_weights = transfer_weights if is_record else TransferWeights(**(transfer_weights or {}))
        self.step = self.add_weight(name="step", shape=(), dtype="int32", initializer="zeros", trainable=False)
        self.transfer_loss = WeightedMean(name="transfer_loss")
        self.distillation_loss = WeightedMean(name="distillation_loss")
        self.accuracy = WeightedMean(name="accuracy")
        self.sentence_pair_loss = None
        if self.student.sentence_pair is not None:
            self.sentence_pair_loss = WeightedMean(name="sentence_pair_loss")
        self.build_now()

    def arguments(self):
        return {**super().arguments(), "transfer_weights": dataclasses.asdict(self.transfer_weights)}

    def call(self, inputs):
        wanted = dict(hidden_states=True, attention_weights=True)
        backbone, positions = self.student.backbone, inputs.get("masked_positions")
        mine, theirs = backbone(inputs, training=False, **wanted), self._teach(inputs, **wanted)
        x, y = mine["sequence_output"], theirs["sequence_output"]
        if positions is not None:
            x, y = gather_positions(x, positions), gather_positions(y, positions)
        outputs = {
            "tokens": self.student.masked_lm(x, backbone.token_table),
            "teacher_tokens": self._teacher_logits(y),
            "features": mine["hidden_states"][1:],
            "teacher_features": theirs["hidden_states"][1:],
            "attention": mine["attention_weights"],
            "teacher_attention": theirs["attention_weights"],
        }
        if self.student.sentence_pair is not None:
            outputs["sentence_pair"] = self.student.sentence_pair(mine)
        return outputs

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        labels, given = (part["tokens"] if isinstance(part, dict) else part for part in (y, sample_weight))
        rows = given if given is not None and len(given.shape) == 1 else None
        gates, distill = self._gates()
        losses = ops.stack(self._layer_losses(x, y_pred, token_weights(x, rows)))
        transfer = ops.sum(gates * losses) / self.num_layers
        slots = slot_weights(x, labels, given)
        hard = cross_entropy(y_pred["tokens"], labels)
        soft = soft_cross_entropy(y_pred["tokens"], y_pred["teacher_tokens"])
        mixed = self.hard_share * hard + (1 - self.hard_share) * soft
        loss = transfer + distill * self.mean_loss(x, mixed, slots, "tokens")
        right = predicted_correctly(y_pred["tokens"], labels)
        self.transfer_loss.update_state(ops.sum(losses) / self.num_layers)
        self.distillation_loss.update_state(mixed, slots)
        self.accuracy.update_state(right, slots)
        if self.sentence_pair_loss is not None:
            pairs = cross_entropy(y_pred["sentence_pair"], y["sentence_pair"])
            weights = sample_weight["sentence_pair"] if isinstance(sample_weight, dict) else rows
            weights = ops.ones_like(pairs) if weights is None else ops.cast(weights, "float32")
            self.sentence_pair_loss.update_state(pairs, weights)
            loss = loss + distill * self.mean_loss(x, pairs, weights, "sentence_pair")
        if training:
            self.step.assign_add(1)
        return loss

    def _gates(self):
        """Returns the factor (0 or 1) of each loss at this step.

        Returns: (factors of the transfer loss of each layer, float32 (num_layers,), factor of the distillation loss,
            float32 scalar).
        """
        if self.strategy == "auxiliary":
            return ops.ones(self.num_layers), ops.ones(())
        step = ops.convert_to_tensor(self.step)
        transferring = step < self.transfer_steps
        gates = ops.ones(self.num_layers)
        if self.strategy == "progressive":
            phase = step // max(1, self.transfer_steps // self.num_layers)
            gates = ops.cast(ops.arange(self.num_layers, dtype="int32") == phase, "float32")
        return ops.where(transferring, gates, 0.0), ops.where(transferring, 0.0, 1.0)

    def _layer_losses(self, x, y_pred, weights):
        """Returns the transfer loss of each layer, a list of float32 scalars."""
        names = ("features", "teacher_features", "attention", "teacher_attention")
        losses, scales = [], self.transfer_weights
        for mine, theirs, attention, teacher_attention in zip(*(y_pred[name] for name in names), strict=True):
            mine, theirs = ops.cast(mine, "float32"), ops.cast(theirs, "float32")
            means, variances = zip(*(ops.moments(features, axes=-1) for features in (mine, theirs)), strict=True)
            token_losses = (
                scales.features * ops.mean(ops.square(normalized(mine) - normalized(theirs)), axis=-1)
                + scales.means * ops.square(means[0] - means[1])
                + scales.variances * ops.abs(variances[0] - variances[1])
                + scales.attention * attention_divergence(attention, teacher_attention)
            )
            losses.append(self.mean_loss(x, token_losses, weights, "layers"))
        return losses
