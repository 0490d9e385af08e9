"""AdamW for training the BERT family."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import keras
from keras import ops

from ..backend import updates
from .schedules import RunDecay, WarmupDecay

NO_DECAY = (r"bias$", r"(^|/)(gamma|beta|scale)$")
"""Patterns of variables without weight decay: all biases, and the scales and offsets of all normalization layers."""


def adamw(
    learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
    warmup: int = 0,
    steps: int | None = None,
    weight_decay: float | None = 0.01,
    clip_norm: float | None = 1.0,
    accumulation: int = 1,
    bias_correction: bool = True,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
    no_decay: Iterable[str] = NO_DECAY,
    layer_decay: float | None = None,
    unfreeze_every: int | None = None,
    rate_factors: Mapping[str, float] | None = None,
    **options: Any,
) -> "TransformerAdamW":
    """Creates a `TransformerAdamW` with warm-up, linear decay, clipping, and no weight decay of biases and norms.

    Args:
        learning_rate: the peak rate, or a Keras schedule, which cannot be combined with `warmup` and `steps`.
        warmup: number of updates in which the rate rises from 0 to the peak.
        steps: number of updates of the run, after which the rate is 0. None keeps the rate constant.
        weight_decay: decoupled weight decay, multiplied by the learning rate, as in torch and in BERT.
        clip_norm: maximum global norm of the gradients; None for no clipping.
        accumulation: micro-batches per update. `warmup`, `steps` and schedules still count updates.
        bias_correction: whether to correct the bias of both moments. The official code of BERT does not.
        beta_1, beta_2, epsilon: as in `torch.optim.AdamW`. The defaults are BERT's.
        no_decay: regular expressions; a variable whose path or name matches one of them is not decayed.
        layer_decay, unfreeze_every, rate_factors: rates that differ between layers; see `TransformerAdamW`.
        **options: other arguments of `keras.optimizers.AdamW`, for example `name` or `use_ema`.

    Raises: ValueError if `steps` is missing for `warmup`, a schedule is given as well, or a number is out of range.

    Example:
        >>> from kerasbert.tasks import TextClassifier
        >>> from kerasbert.training import adamw
        >>> model = TextClassifier.from_preset("bert_mini_en", labels=["bad", "good"])
        >>> model.compile(adamw(learning_rate=3e-4, warmup=1, steps=4))
        >>> history = model.fit(["So lovely!", "I hated it."] * 4, ["good", "bad"] * 4, batch_size=2, verbose=0)
        >>> int(model.optimizer.iterations)
        4
    """
    _check_run(learning_rate, warmup, steps, accumulation)
    rate = learning_rate if steps is None else WarmupDecay(learning_rate, warmup, steps)
    return TransformerAdamW(
        rate if _is_schedule(rate) else float(rate),
        weight_decay=weight_decay or 0.0,
        beta_1=beta_1,
        beta_2=beta_2,
        epsilon=epsilon,
        global_clipnorm=clip_norm,
        gradient_accumulation_steps=accumulation if accumulation > 1 else None,
        bias_correction=bias_correction,
        no_decay=no_decay,
        layer_decay=layer_decay,
        unfreeze_every=unfreeze_every,
        rate_factors=rate_factors,
        **options,
    )


def _check_run(learning_rate, warmup, steps, accumulation):
    """Raises a ValueError for arguments of `adamw` that do not fit together."""
    if accumulation < 1:
        raise ValueError(f"`accumulation` must be at least 1 micro-batch per update. Received: {accumulation}.")
    scheduled = _is_schedule(learning_rate)
    if not scheduled and not (0 < learning_rate < math.inf or (learning_rate == 0 and steps is None)):
        raise ValueError(f"`learning_rate` must be a finite number above 0. Received: {learning_rate}.")
    if scheduled and (warmup or steps is not None):
        raise ValueError(
            "`warmup` and `steps` cannot be combined with a schedule. "
            f"Received: learning_rate={learning_rate!r}, warmup={warmup}, steps={steps}. Use one or the other."
        )
    if warmup and steps is None:
        raise ValueError(
            f"`warmup` needs `steps`, the number of updates of the run. Received: warmup={warmup}, steps=None. For a "
            "rate that stays constant after the warm-up use learning_rate=WarmupDecay(peak, warmup, steps, final=peak)."
        )


@keras.saving.register_keras_serializable("kerasbert")
class LossScale(keras.optimizers.LossScaleOptimizer):
    """A loss-scaling optimizer that detects every overflow. Training in float16 requires loss scaling.

    On TensorFlow, the gradient of an embedding consists of slices. `keras.optimizers.LossScaleOptimizer` checks only
    the last slice of each row, so an infinity in another slice would reach the weights.
    """

    def apply(self, grads, trainable_variables=None):
        super().apply(updates.dense(grads), trainable_variables)

    def restart(self, peak: float, warmup: int, steps: int) -> None:
        """Returns to the state before the first update; see `LayerRates.restart`."""
        for variable in self.variables:
            variable.assign(ops.zeros(variable.shape, variable.dtype))
        self.dynamic_scale.assign(self.initial_scale)
        self.inner_optimizer.restart(peak, warmup, steps)


class LayerRates:
    """Mixin with the features that this package adds to Keras optimizers.

    - `no_decay` is part of the config, so it is saved with the optimizer.
    - `optimizer.learning_rate = 1e-5` replaces a schedule from the next step on, even in compiled programs. A schedule
      that is assigned to `learning_rate` counts from the first update of the optimizer.
    - With gradient accumulation, schedules count updates. Keras's optimizers count micro-batches.
    - Rates may differ between layers. Of the n blocks that a backbone declares, block i has depth i + 1. Layers before
      the blocks (embeddings) have depth 0, and layers after them (heads, poolers, last normalization) have depth n + 2,
      as in the code of ELECTRA. Weight decay is multiplied by the rate of the layer.

    Args:
        learning_rate, **options: arguments of the Keras optimizer.
        no_decay: regular expressions; a variable whose path or name matches one of them is not decayed.
        layer_decay: the rate at depth k is multiplied by layer_decay ** (n + 2 - k). With 0.8, the factor of the last
            block is 0.64 (Clark et al. 2020, arXiv 2003.10555, appendix B).
        unfreeze_every: number of updates between the steps of gradual unfreezing (Howard and Ruder 2018, arXiv
            1801.06146). At first, only the layers after the blocks are trained, then also the last block, and so on
            down to the embeddings.
        rate_factors: {regular expression: factor}. The rate of a variable is multiplied by the factor of the first
            expression that matches its path. For example, {"^bert/": 0.1} lowers the rate of pretrained weights.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
        no_decay: Iterable[str] = NO_DECAY,
        layer_decay: float | None = None,
        unfreeze_every: int | None = None,
        rate_factors: Mapping[str, float] | None = None,
        **options: Any,
    ):
        if layer_decay is not None and not 0 < layer_decay <= 1:
            raise ValueError(f"`layer_decay` must be above 0 and at most 1. Received: {layer_decay}.")
        if unfreeze_every is not None and unfreeze_every < 1:
            raise ValueError(f"`unfreeze_every` must be at least 1 update. Received: {unfreeze_every}.")
        if (options.get("weight_decay") or 0) < 0:
            raise ValueError(
                "`weight_decay` must be at least 0, or weights would grow. Received: "
                f"{options['weight_decay']}. Use 0 or None to turn it off."
            )
        super().__init__(learning_rate, **options)
        self._given_rate = None  # a variable: the rate that replaces the schedule, or -1
        if _is_schedule(learning_rate):
            no_rate = keras.initializers.Constant(-1.0)
            self._given_rate = self.add_variable((), no_rate, dtype="float32", name="learning_rate")
        if isinstance(learning_rate, RunDecay):
            learning_rate.bind(self.add_variable)
        self.no_decay = tuple(no_decay)
        self.layer_decay = layer_decay
        self.unfreeze_every = unfreeze_every
        self.rate_factors = dict(rate_factors or {})
        self._layer_rates = []  # for each variable: the factor of its rate, and the first update that changes it

    def build(self, variables):
        if not self.built:
            self._look_at(variables)
            super().build(variables)

    def _look_at(self, variables):
        """Determines the rate factor of every variable, and which variables have weight decay."""
        self._layer_rates = self._rates_by_layer(variables)
        patterns = [re.compile(pattern) for pattern in self.no_decay]
        kept = [v for v in variables if any(p.search(v.path) or p.search(v.name) for p in patterns)]
        super().exclude_from_weight_decay(var_list=kept)

    def _rates_by_layer(self, variables):
        by_depth = self.layer_decay is not None or self.unfreeze_every is not None
        if not by_depth and not self.rate_factors:
            return []
        depths = block_depths(variables) if by_depth else [None] * len(variables)
        top = 2 + max((depth for depth in depths if depth is not None), default=0)
        rates = []
        for variable, depth in zip(variables, depths, strict=True):
            below = 0 if depth is None else top - depth
            factor = (self.layer_decay or 1.0) ** below
            factor *= next((f for pattern, f in self.rate_factors.items() if re.search(pattern, variable.path)), 1.0)
            rates.append((factor, (self.unfreeze_every or 0) * max(0, below - 1)))
        return rates

    def _rate_factor(self, variable):
        """Returns the factor of a variable's rate in this update, or None if it is 1."""
        if not self._layer_rates:
            return None
        factor, first = self._layer_rates[self._get_variable_index(variable)]
        if first:
            return ops.where(self.iterations >= first, factor, 0.0)
        return None if factor == 1.0 else factor

    def _rate_of(self, variable, learning_rate):
        factor = self._rate_factor(variable)
        return learning_rate if factor is None else learning_rate * factor

    def exclude_from_weight_decay(self, var_list=None, var_names=None):
        """Excludes these variables and name patterns from weight decay. They replace `no_decay`."""
        paths = [f"^{re.escape(variable.path)}$" for variable in var_list or ()]
        self.no_decay = (*paths, *(var_names or ()))

    def apply(self, grads, trainable_variables=None):
        # In a sparse gradient, slices of the same row must be summed before the norm is computed.
        super().apply(updates.dense(grads), trainable_variables)

    def _clip_gradients(self, grads):
        if keras.backend.backend() == "torch" and self.global_clipnorm and not self.clipnorm:
            return updates.clip_torch(grads, self._trainable_variables, self.global_clipnorm)
        return super()._clip_gradients(grads)

    def _apply_weight_decay(self, variables):
        decayed = [variable for variable in variables if self._use_weight_decay(variable)]
        if not decayed or not self.weight_decay:
            return
        if updates.shares_rates():  # Keras would compute the learning rate once more for each variable
            rate = self.learning_rate
            for variable in decayed:
                factor = self._rate_factor(variable)
                weight_decay = self.weight_decay * (1.0 if factor is None else factor)
                decay, rate_of = (ops.cast(x, variable.dtype) for x in (weight_decay, rate))
                self.assign_sub(variable, variable * decay * rate_of)
            return
        if not self._layer_rates:
            super()._apply_weight_decay(decayed)
            return
        weight_decay = self.weight_decay
        for variable in decayed:  # Keras uses one rate for all variables, so multiply the decay instead
            factor = self._rate_factor(variable)
            self.weight_decay = weight_decay * (1.0 if factor is None else factor)
            super()._apply_weight_decay([variable])
        self.weight_decay = weight_decay

    def restart(self, peak: float, warmup: int, steps: int) -> None:
        """Returns to the state before the first update, for another run. Requires a `RunDecay`.

        Compiled training steps remain valid.
        """
        for variable in self.variables:
            variable.assign(ops.zeros(variable.shape, variable.dtype))
        self._given_rate.assign(-1.0)
        self._learning_rate.start(peak, warmup, steps)

    @property
    def learning_rate(self):
        return self._get_current_learning_rate()

    @learning_rate.setter
    def learning_rate(self, learning_rate):
        if _is_schedule(learning_rate):
            self._given_rate = self._learning_rate if self._given_rate is None else self._given_rate
            self._given_rate.assign(-1.0)
            self._learning_rate = learning_rate
        elif self._given_rate is None:
            keras.optimizers.Optimizer.learning_rate.fset(self, learning_rate)
        else:
            if not float(learning_rate) >= 0:
                raise ValueError(f"`learning_rate` must be at least 0. Received: {learning_rate}.")
            self._given_rate.assign(float(learning_rate))

    def _get_current_learning_rate(self):
        if self._given_rate is None:
            return super()._get_current_learning_rate()
        given = ops.convert_to_tensor(self._given_rate)
        return ops.where(given < 0, self._learning_rate(self.iterations), given)

    @property
    def schedule(self):
        """The schedule that currently determines the rate, or None."""
        replaced = self._given_rate is None or float(ops.convert_to_numpy(self._given_rate)) >= 0
        return None if replaced else self._learning_rate

    def get_config(self):
        names = ("layer_decay", "unfreeze_every", "rate_factors")
        arguments = {name: getattr(self, name) for name in names}
        return {**super().get_config(), **arguments, "no_decay": list(self.no_decay)}


@keras.saving.register_keras_serializable("kerasbert")
class TransformerAdamW(LayerRates, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` with the features of `LayerRates` and two differences; `adamw` creates one.

    - `epsilon` is added to the root of the bias-corrected second moments, as in Algorithm 2 of the paper and in torch.
      Keras adds it before the correction, which makes its effect up to 30 times larger in the first updates.
    - `bias_correction=False` leaves out the bias correction, as in the official code of BERT.

    Loshchilov and Hutter, 2019, arXiv 1711.05101.

    Args:
        learning_rate: the rate, or a Keras schedule.
        bias_correction: whether to correct the bias of both moments.
        no_decay: as in `adamw`.
        layer_decay: factor of the learning rate from each block to the one below, such as 0.8.
        unfreeze_every: number of updates between the steps of gradual unfreezing (Howard and Ruder 2018, arXiv
            1801.06146). At first, only the layers after the blocks are trained, then also the last block, and so on
            down to the embeddings.
        rate_factors: {regular expression: factor}. The rate of a variable is multiplied by the factor of the first
            expression that matches its path. For example, {"^bert/": 0.1} lowers the rate of pretrained weights.
        **options: other arguments of `keras.optimizers.AdamW`.

    Raises:
        ValueError: if `layer_decay`, `unfreeze_every` or `weight_decay` is out of range, or `amsgrad` is requested. In
            training, if rates differ between layers, but the backbone declares no blocks.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.001,
        bias_correction: bool = True,
        **options: Any,
    ):
        if options.get("amsgrad"):
            raise ValueError("`amsgrad` is not part of this optimizer. Use `keras.optimizers.AdamW(amsgrad=True)`.")
        super().__init__(learning_rate, **options)
        self.bias_correction = bias_correction
        self._corrected = None  # within an update: {id of a rate: (the rate, its corrections)}, shared by variables

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        mean, square = self._momentums[index], self._velocities[index]
        gradient = ops.cast(gradient, variable.dtype)
        learning_rate = self._rate_of(variable, learning_rate)
        corrected = {} if self._corrected is None else self._corrected
        if id(learning_rate) not in corrected:
            corrected[id(learning_rate)] = learning_rate, self._corrections(learning_rate)
        rate, root_scale = (ops.cast(x, variable.dtype) for x in corrected[id(learning_rate)][1])
        self.assign_add(mean, (gradient - mean) * (1 - self.beta_1))
        self.assign_add(square, (ops.square(gradient) - square) * (1 - self.beta_2))
        self.assign_sub(variable, rate * mean / (root_scale * ops.sqrt(square) + self.epsilon))

    def _corrections(self, learning_rate):
        """Computes the bias-corrected rate, and the factor that corrects the root of the second moments."""
        learning_rate = ops.cast(learning_rate, "float32")
        if not self.bias_correction:
            return learning_rate, ops.ones((), "float32")
        step = ops.cast(self.iterations + 1, "float32")
        mean_share, square_share = (known_share(beta, step) for beta in (self.beta_1, self.beta_2))
        return learning_rate / mean_share, ops.rsqrt(square_share)

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        # The code of Keras runs one torch kernel per tensor and operation, and makes TensorFlow trace dozens of
        # operations per tensor. Fused kernels update a tensor, or all tensors, at once.
        indices = [self._get_variable_index(variable) for variable in trainable_variables]
        tensors = (
            [variable.value for variable in trainable_variables],
            grads,
            [self._momentums[index].value for index in indices],
            [self._velocities[index].value for index in indices],
        )
        constants = self.beta_1, self.beta_2, self.epsilon
        if updates.has_fused_adam(trainable_variables):
            rates = [self._rate_of(variable, learning_rate) for variable in trainable_variables]
            corrections = {id(rate): self._corrections(rate) for rate in rates}
            updates.adam_tensorflow(*tensors, constants, [corrections[id(rate)] for rate in rates])
            return None
        if keras.backend.backend() != "torch":
            if not updates.shares_rates():
                return super()._backend_update_step(grads, trainable_variables, learning_rate)
            self._corrected = {}
            try:
                return super()._backend_update_step(grads, trainable_variables, learning_rate)
            finally:
                self._corrected = None
        updates.adam_torch(
            *tensors,
            constants,
            ops.cast(learning_rate, "float32"),
            ops.cast(self.iterations + 1, "float32") if self.bias_correction else None,
            [self._rate_factor(variable) for variable in trainable_variables] if self._layer_rates else None,
        )

    def get_config(self):
        return {**super().get_config(), "bias_correction": self.bias_correction}


def _is_schedule(learning_rate):
    return isinstance(learning_rate, keras.optimizers.schedules.LearningRateSchedule)


def known_share(beta, step):
    """Computes 1 - beta ** step without losing float32 precision in the first steps."""
    return -ops.expm1(step * (math.log(beta) if beta else -math.inf))


def block_depths(variables):
    """Returns the depth of each variable: 0 before the blocks, i + 1 in block i, None after the blocks."""
    depths = [getattr(variable, "block_depth", None) for variable in variables]
    if -1 in depths or not any(depth is not None for depth in depths):
        received = next((v.path for v, depth in zip(variables, depths, strict=True) if depth == -1), None)
        raise ValueError(
            "Layer-wise rates need a backbone that declares its `blocks`. Received: "
            + (f"{received}, whose backbone does not." if received else "no variable of a backbone.")
            + " Use `rate_factors` instead, which selects variables by their paths."
        )
    return depths
