"""Optimizers that scale the update of every tensor by a norm: LAMB, Adafactor and StableAdamW."""

from typing import Any

import keras
from keras import ops

from .optimizers import LayerRates, known_share


@keras.saving.register_keras_serializable("kerasbert")
class TransformerLamb(LayerRates, keras.optimizers.Lamb):
    """LAMB as used for ALBERT and MobileBERT: u = m / (sqrt(v) + epsilon) + decay * w, w -= rate * |w| / |u| * u.

    The norm |u| includes the weight decay, as in Algorithm 2 of the paper, but unlike in Keras. For variables without
    weight decay (normalization parameters and biases), |w| / |u| is replaced by 1. You et al. 2019, arXiv 1904.00962.

    Args:
        learning_rate, **options: as in `keras.optimizers.Lamb` and `LayerRates`.
        bias_correction: whether to correct the bias of both moments, as in the paper. False follows the official code.

    Raises:
        ValueError: if `layer_decay`, `unfreeze_every` or `weight_decay` is out of range.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        bias_correction: bool = False,
        weight_decay: float | None = 0.01,
        epsilon: float = 1e-6,
        **options: Any,
    ):
        super().__init__(learning_rate, weight_decay=weight_decay, epsilon=epsilon, **options)
        self.bias_correction = bias_correction

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        mean, square = self._momentums[index], self._velocities[index]
        gradient = ops.cast(gradient, variable.dtype)
        self.assign_add(mean, (gradient - mean) * (1 - self.beta_1))
        self.assign_add(square, (ops.square(gradient) - square) * (1 - self.beta_2))
        m, v = ops.cast(mean, "float32"), ops.cast(square, "float32")
        if self.bias_correction:
            count = ops.cast(self.iterations + 1, "float32")
            m, v = m / known_share(self.beta_1, count), v / known_share(self.beta_2, count)
        step = m / (ops.sqrt(v) + self.epsilon)
        if self._use_weight_decay(variable):
            weights = ops.cast(variable, "float32")
            step = step + (self.weight_decay or 0.0) * weights
            norms = [ops.sqrt(ops.sum(ops.square(x))) for x in (weights, step)]
            known = (norms[0] > 0) & (norms[1] > 0)
            step = step * ops.where(known, norms[0] / ops.where(known, norms[1], 1.0), 1.0)
        rate = ops.cast(self._rate_of(variable, learning_rate), "float32")
        self.assign_sub(variable, ops.cast(rate * step, variable.dtype))

    def _apply_weight_decay(self, variables):
        """Weight decay is part of the step."""

    def get_config(self):
        return {**super().get_config(), "bias_correction": self.bias_correction}


@keras.saving.register_keras_serializable("kerasbert")
class TransformerAdafactor(LayerRates, keras.optimizers.Adafactor):
    """Adafactor as used for T5: without momentum, and with second moments stored as an outer product of two vectors.

    The update is w -= rate * max(rms(w), 1e-3) * u / max(1, rms(u)) with u = gradient / sqrt(v), where the decay of the
    second moments v at step t is 1 - t^-0.8. There are three differences from Keras: the rate is not limited to t^-1/2
    unless `relative_step` is set, only tensors whose two largest dimensions are at least `min_factored` are factored,
    and no full-size v is allocated for factored tensors. Shazeer and Stern 2018, arXiv 1804.04235.

    Args:
        learning_rate, **options: as in `keras.optimizers.Adafactor` and `LayerRates`.
        min_factored: minimum size of the two largest dimensions of a factored tensor. T5 uses 128.
        relative_step: whether the rate is limited to t^-1/2 at step t.

    Raises:
        ValueError: if `layer_decay`, `unfreeze_every` or `weight_decay` is out of range.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        min_factored: int = 128,
        relative_step: bool = False,
        **options: Any,
    ):
        super().__init__(learning_rate, relative_step=relative_step, **options)
        self.min_factored = min_factored

    def build(self, variables):
        if self.built:
            return
        self._look_at(variables)
        keras.optimizers.Optimizer.build(self, variables)  # `Adafactor.build` allocates a full-size v for each
        self._axes = [self._factored_axes(variable.shape) for variable in variables]
        self._moments = []
        for variable, axes in zip(variables, self._axes, strict=True):
            shapes = [tuple(s for a, s in enumerate(variable.shape) if a != axis) for axis in axes[::-1]]
            names = ("row_velocity", "column_velocity") if axes else ("velocity",)
            self._moments.append(
                [
                    self.add_variable(shape, dtype="float32", name=f"{variable.name}_{name}")
                    for shape, name in zip(shapes or [variable.shape], names, strict=True)
                ]
            )

    def _factored_axes(self, shape):
        """Returns the axes of the two largest dimensions, or () for a tensor that is not factored."""
        largest = sorted(sorted(range(len(shape)), key=lambda axis: shape[axis])[-2:])
        return tuple(largest) if len(shape) > 1 and min(shape[a] for a in largest) >= self.min_factored else ()

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        gradient, weights = ops.cast(gradient, "float32"), ops.cast(variable, "float32")
        count = ops.cast(self.iterations + 1, "float32")
        rate = ops.cast(self._rate_of(variable, learning_rate), "float32")
        if self.relative_step:
            rate = ops.minimum(rate, ops.rsqrt(count))
        kept = 1.0 - ops.power(count, self.beta_2_decay)
        square = ops.square(gradient) + self.epsilon_1
        if not self._axes[index]:
            (velocity,) = self._moments[index]
            self.assign(velocity, kept * velocity + (1 - kept) * square)
            velocity = ops.convert_to_tensor(velocity)
        else:
            first, second = self._axes[index]
            rows, columns = self._moments[index]
            self.assign(rows, kept * rows + (1 - kept) * ops.mean(square, axis=second))
            self.assign(columns, kept * columns + (1 - kept) * ops.mean(square, axis=first))
            by_row, by_column = ops.expand_dims(rows, second), ops.expand_dims(columns, first)
            velocity = by_row / ops.mean(by_row, axis=first, keepdims=True) * by_column
        step = gradient * ops.rsqrt(velocity)
        step = step / ops.maximum(1.0, _size(step) / self.clip_threshold)
        step = step * rate * ops.maximum(_size(weights), self.epsilon_2)
        self.assign_sub(variable, ops.cast(step, variable.dtype))

    def get_config(self):
        return {**super().get_config(), "min_factored": self.min_factored}


@keras.saving.register_keras_serializable("kerasbert")
class StableAdamW(LayerRates, keras.optimizers.AdamW):
    """AdamW that lowers the rate of tensors with unusually large gradients, instead of clipping the gradients.

    The rate of each tensor is divided by max(1, rms(g / sqrt(v))) for gradients g and second moments v. Bias correction
    is achieved by changing the betas. Weight decay is multiplied by rate / peak instead of by the rate, so
    `weight_decay` is the fraction that a weight loses per step at the peak rate. This is the optimizer of ModernBERT
    (Wortsman et al. 2023, arXiv 2304.13013).

    Args:
        learning_rate, **options: as in `keras.optimizers.AdamW` and `LayerRates`.
        peak: the rate at which the full decay applies. Default: `peak` of the schedule, or the constant rate.

    Raises:
        ValueError: if `layer_decay`, `unfreeze_every` or `weight_decay` is out of range, or `peak` is missing for a
            schedule that has none.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        peak: float | None = None,
        weight_decay: float | None = 1e-5,
        beta_2: float = 0.98,
        epsilon: float = 1e-6,
        **options: Any,
    ):
        super().__init__(learning_rate, weight_decay=weight_decay, beta_2=beta_2, epsilon=epsilon, **options)
        is_schedule = isinstance(learning_rate, keras.optimizers.schedules.LearningRateSchedule)
        found = getattr(learning_rate, "peak", None) if is_schedule else learning_rate
        if peak is None and not isinstance(found, (int, float)):
            raise ValueError(
                f"`peak` must be given, because the schedule {type(learning_rate).__name__} has no attribute `peak`. "
                "Received: peak=None. Pass the highest rate of the schedule."
            )
        self.peak = float(found if peak is None else peak)

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        mean, square = self._momentums[index], self._velocities[index]
        gradient = ops.cast(gradient, variable.dtype)
        count = ops.cast(self.iterations + 1, "float32")
        new_mean, new_square = ((1 - b) / known_share(b, count) for b in (self.beta_1, self.beta_2))
        self.assign_add(mean, (gradient - mean) * ops.cast(new_mean, variable.dtype))
        self.assign_add(square, (ops.square(gradient) - square) * ops.cast(new_square, variable.dtype))
        m, v = ops.cast(mean, "float32"), ops.cast(square, "float32")
        excess = _size(ops.cast(gradient, "float32") * ops.rsqrt(ops.maximum(v, self.epsilon**2)))
        rate = ops.cast(self._rate_of(variable, learning_rate), "float32") / ops.maximum(1.0, excess)
        step = rate * m / (ops.sqrt(v) + self.epsilon)
        if self._use_weight_decay(variable):
            step = step + rate / self.peak * (self.weight_decay or 0.0) * ops.cast(variable, "float32")
        self.assign_sub(variable, ops.cast(step, variable.dtype))

    def _apply_weight_decay(self, variables):
        """Weight decay is part of the step."""

    def get_config(self):
        return {**super().get_config(), "peak": self.peak}


def _size(x):
    """Root mean square of a tensor."""
    return ops.sqrt(ops.mean(ops.square(x)))
