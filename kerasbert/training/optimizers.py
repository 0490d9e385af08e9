"""AdamW as the BERT family trains with it."""

import math
import re

import keras
from keras import ops

from kerasbert.backend import updates

from .schedules import WarmupDecay

NO_DECAY = (r"bias$", r"(^|/)(gamma|beta|scale)$")
"""Variables that weight decay leaves alone: every bias, and the gains and offsets of every normalization."""


def adamw(
    learning_rate,
    warmup=0,
    steps=None,
    weight_decay=0.01,
    clip_norm=1.0,
    accumulation=1,
    bias_correction=True,
    beta_1=0.9,
    beta_2=0.999,
    epsilon=1e-6,
    no_decay=NO_DECAY,
    **options,
):
    """AdamW with linear warm-up and decay, clipping by the global norm, and no decay of norms and biases.

    Args:
        learning_rate: the peak rate, or a Keras schedule, which then is all there is to say about the rate.
        warmup: updates from rate 0 to the peak.
        steps: updates of the run; the rate reaches 0 there. None keeps the rate constant.
        weight_decay: decoupled from the gradient and multiplied by the rate, as in torch and in BERT.
        clip_norm: largest norm of all gradients together; None for no clipping.
        accumulation: micro-batches an update. `warmup`, `steps` and schedules keep counting updates.
        bias_correction: False is the Adam of BERT's official code.
        beta_1, beta_2, epsilon: as in `torch.optim.AdamW`; BERT's values.
        no_decay: regular expressions; a variable whose path or name one of them finds is not decayed.
        **options: of `keras.optimizers.AdamW`, for example `name` or `use_ema`.

    Returns:
        A `TransformerAdamW`.
    """
    scheduled = isinstance(learning_rate, keras.optimizers.schedules.LearningRateSchedule)
    if scheduled and (warmup or steps is not None):
        raise ValueError(
            "`warmup` and `steps` belong to a peak rate, a schedule has its own. "
            f"Received: learning_rate={learning_rate!r}, warmup={warmup}, steps={steps}. Give one or the other."
        )
    if warmup and steps is None:
        raise ValueError(
            f"`warmup` needs `steps`, the updates of the run. Received: warmup={warmup}, steps=None. For a rate that "
            "stays constant after the warm-up use learning_rate=WarmupDecay(peak, warmup, steps, final=peak)."
        )
    if accumulation < 1:
        raise ValueError(f"`accumulation` must be at least 1 micro-batch an update. Received: {accumulation}.")
    if steps is not None:
        learning_rate = WarmupDecay(learning_rate, warmup, steps)
    return TransformerAdamW(
        learning_rate if scheduled or steps is not None else float(learning_rate),
        weight_decay=weight_decay,
        beta_1=beta_1,
        beta_2=beta_2,
        epsilon=epsilon,
        global_clipnorm=clip_norm,
        gradient_accumulation_steps=accumulation if accumulation > 1 else None,
        bias_correction=bias_correction,
        no_decay=no_decay,
        **options,
    )


@keras.saving.register_keras_serializable("kerasbert")
class LossScale(keras.optimizers.LossScaleOptimizer):
    """`keras.optimizers.LossScaleOptimizer` that misses no overflow: what float16 needs around its optimizer.

    On TensorFlow the gradient of an embedding comes in pieces, and Keras's check of it forgets all pieces of a row but
    the last: an infinity among the others reaches the weights.
    """

    def apply(self, grads, trainable_variables=None):
        super().apply(updates.dense(grads), trainable_variables)


@keras.saving.register_keras_serializable("kerasbert")
class TransformerAdamW(keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` with four differences; `adamw` is the short way to make one.

    - What is not decayed is part of the config and survives saving.
    - `epsilon` is added to the bias-corrected root, as in the paper's Algorithm 2 and in torch (Keras adds it before
      the correction, which makes it up to 30 times larger in the first updates).
    - `bias_correction=False` leaves out the correction, as the official code of BERT does.
    - Schedules count updates under gradient accumulation (Keras counts micro-batches).

    Loshchilov and Hutter, 2019, arXiv 1711.05101.
    """

    def __init__(self, learning_rate=0.001, bias_correction=True, no_decay=NO_DECAY, **options):
        if options.get("amsgrad"):
            raise ValueError("`amsgrad` is not part of this optimizer. Use `keras.optimizers.AdamW(amsgrad=True)`.")
        super().__init__(learning_rate, **options)
        self.bias_correction = bias_correction
        self.no_decay = tuple(no_decay)

    def build(self, variables):
        if self.built:
            return
        patterns = [re.compile(pattern) for pattern in self.no_decay]
        kept = [v for v in variables if any(p.search(v.path) or p.search(v.name) for p in patterns)]
        super().exclude_from_weight_decay(var_list=kept)
        super().build(variables)

    def exclude_from_weight_decay(self, var_list=None, var_names=None):
        """Replaces `no_decay` by these variables and patterns."""
        paths = [f"^{re.escape(variable.path)}$" for variable in var_list or ()]
        self.no_decay = (*paths, *(var_names or ()))

    def apply(self, grads, trainable_variables=None):
        # A norm over the pieces of a sparse gradient is not the norm of their sum: repeated rows would count apart.
        super().apply(updates.dense(grads), trainable_variables)

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        mean, square = self._momentums[index], self._velocities[index]
        gradient = ops.cast(gradient, variable.dtype)
        rate, root_scale = (ops.cast(x, variable.dtype) for x in self._corrections(learning_rate))
        self.assign_add(mean, (gradient - mean) * (1 - self.beta_1))
        self.assign_add(square, (ops.square(gradient) - square) * (1 - self.beta_2))
        self.assign_sub(variable, rate * mean / (root_scale * ops.sqrt(square) + self.epsilon))

    def _corrections(self, learning_rate):
        """The rate and the factor of the root that take out the bias towards 0 of the first moments."""
        learning_rate = ops.cast(learning_rate, "float32")
        if not self.bias_correction:
            return learning_rate, ops.ones((), "float32")
        step = ops.cast(self.iterations + 1, "float32")
        # 1 - beta ** step, without the digits that float32 would lose at the first steps.
        mean_share, square_share = (
            -ops.expm1(step * (math.log(beta) if beta else -math.inf)) for beta in (self.beta_1, self.beta_2)
        )
        return learning_rate / mean_share, ops.rsqrt(square_share)

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        # Torch runs one kernel a tensor and operation: there, all tensors go through each operation together.
        if keras.backend.backend() != "torch":
            return super()._backend_update_step(grads, trainable_variables, learning_rate)
        indices = [self._get_variable_index(variable) for variable in trainable_variables]
        updates.adam_torch(
            [variable.value for variable in trainable_variables],
            grads,
            [self._momentums[index].value for index in indices],
            [self._velocities[index].value for index in indices],
            (self.beta_1, self.beta_2, self.epsilon),
            self._corrections(learning_rate),
        )

    def _apply_weight_decay(self, variables):
        decayed = [variable for variable in variables if self._use_weight_decay(variable)]
        if decayed and self.weight_decay:
            super()._apply_weight_decay(decayed)

    def _get_current_learning_rate(self):
        if isinstance(self._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            return self._learning_rate(self.iterations)
        return super()._get_current_learning_rate()

    def get_config(self):
        return {**super().get_config(), "bias_correction": self.bias_correction, "no_decay": list(self.no_decay)}
