"""Learning-rate schedules, counted in updates; step 0 is the first update.

Each schedule is a class that is registered with Keras, so that a saved optimizer includes its schedule.
"""

import math
import operator
from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable("kerasbert")
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0 to `peak`, then a decay to `final` until update `steps`. After that, the rate is constant.

    The values of `decay_from` are:

    - "warmup": the decay begins at the end of the warm-up, and the rate is continuous. With power 1 and final 0, this
      is `get_linear_schedule_with_warmup` of transformers.
    - "start": the decay is counted from update 0, but the warm-up replaces its beginning. When the warm-up ends, the
      rate drops from the peak to `peak * (1 - warmup / steps)`. This is the official code of BERT (Devlin et al. 2018,
      arXiv 1810.04805).
    - "throughout": the decay is counted from update 0 and also multiplies the rate of the warm-up, so the rate does not
      drop. This is the code of ELECTRA and GPT.

    Args:
        peak: the rate at the end of the warm-up.
        warmup: number of warm-up updates, 0 for none.
        steps: number of updates of the run, including the warm-up.
        power: exponent of the polynomial decay; 1 is linear.
        decay_from: "warmup", "start" or "throughout" (see above), or the number of the update until which the rate
            stays at the peak.
        final: the rate from update `steps` on; `final=peak` keeps it constant after the warm-up.
        shape: shape of the decay, as a function of r, which falls linearly from 1 to 0. "polynomial" is r ** power.
            "cosine" is (1 - cos(pi r)) / 2. "sqrt" is 1 - sqrt(1 - r), which falls fast at first (Warner et al. 2024,
            arXiv 2412.13663).
        cooldown: number of updates at the end of the run in which the rate falls linearly from `final` to 0. The decay
            then ends when they begin.

    Raises:
        ValueError: if a number of updates is no integer or out of range, `peak` or `power` is not above 0, `final` is
            below 0, or `decay_from` or `shape` is unknown.

    Example:
        >>> from kerasbert.training import WarmupDecay
        >>> schedule = WarmupDecay(peak=1e-3, warmup=10, steps=100)
        >>> [round(float(schedule(update)), 6) for update in (0, 5, 10, 55, 100)]
        [0.0, 0.0005, 0.001, 0.0005, 0.0]
    """

    def __init__(
        self,
        peak: float,
        warmup: int,
        steps: int,
        power: float = 1.0,
        decay_from: str | int = "warmup",
        final: float = 0.0,
        shape: str = "polynomial",
        cooldown: int = 0,
    ):
        warmup, steps, cooldown = _count("warmup", warmup), _count("steps", steps), _count("cooldown", cooldown)
        if not peak > 0 or not power > 0 or final < 0:
            raise ValueError(
                "`peak` and `power` must be above 0, `final` at least 0. "
                f"Received: peak={peak}, power={power}, final={final}."
            )
        if steps < 1 or not 0 <= warmup <= steps:
            raise ValueError(
                "`warmup` must lie between 0 and `steps`, both counted in updates. "
                f"Received: warmup={warmup}, steps={steps}. A tenth of the run is "
                f"{max(steps, 0) // 10}; the warm-up of a recipe is set by --set warmup=N."
            )
        if not 0 <= cooldown <= steps - warmup:
            raise ValueError(
                "`cooldown` must lie between 0 and the number of updates after the warm-up. Received: "
                f"cooldown={cooldown}, warmup={warmup}, steps={steps}."
            )
        if decay_from not in ("warmup", "start", "throughout") and not (
            isinstance(decay_from, int) and warmup <= decay_from <= steps
        ):
            raise ValueError(
                '`decay_from` must be "warmup", "start", "throughout", or an update between the warm-up and the end. '
                f"Received: decay_from={decay_from!r}."
            )
        if shape not in ("polynomial", "cosine", "sqrt"):
            raise ValueError(f'`shape` must be "polynomial", "cosine" or "sqrt". Received: shape={shape!r}.')
        self.peak, self.warmup, self.steps = float(peak), warmup, steps
        self.power, self.decay_from, self.final, self.shape = float(power), decay_from, float(final), shape
        self.cooldown = cooldown

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32")
        begin = {"warmup": self.warmup, "start": 0, "throughout": 0}.get(self.decay_from, self.decay_from)
        end = self.steps - self.cooldown
        remaining = ops.clip((end - step) / max(end - begin, 1), 0.0, 1.0)
        if self.shape == "cosine":
            remaining = (1.0 - ops.cos(math.pi * remaining)) / 2.0
        elif self.shape == "sqrt":
            remaining = 1.0 - ops.sqrt(1.0 - remaining)
        elif self.power != 1.0:
            remaining = ops.power(remaining, self.power)
        decayed = self.final + (self.peak - self.final) * remaining
        if self.cooldown:
            decayed = decayed * ops.clip((self.steps - step) / self.cooldown, 0.0, 1.0)
        top = decayed if self.decay_from == "throughout" else self.peak
        return ops.where(step < self.warmup, top * (step / max(self.warmup, 1)), decayed)

    def get_config(self):
        names = ("peak", "warmup", "steps", "power", "decay_from", "final", "shape", "cooldown")
        return {name: getattr(self, name) for name in names}


@keras.saving.register_keras_serializable("kerasbert")
class RunDecay(WarmupDecay):
    """A linear `WarmupDecay` whose numbers are a variable of its optimizer, so that they may change between runs.

    A compiled training step contains the numbers of other schedules as constants, and must be compiled again when they
    change. With this schedule, it serves runs of any length.

    Args:
        peak, warmup, steps: as in `WarmupDecay`.
    """

    def __init__(self, peak: float, warmup: int, steps: int):
        super().__init__(peak, warmup, steps)
        self._numbers = None

    def bind(self, add_variable: Any) -> None:
        """Creates the variable. Called by the optimizer.

        Args:
            add_variable: the `add_variable` method of the optimizer.
        """
        self._numbers = add_variable((3,), "zeros", dtype="float32", name="schedule")
        self.start(self.peak, self.warmup, self.steps)

    def start(self, peak: float, warmup: int, steps: int) -> None:
        """Changes the numbers for a new run."""
        super().__init__(peak, warmup, steps)
        if self._numbers is not None:
            self._numbers.assign([self.peak, self.warmup, self.steps])

    def __call__(self, step: Any) -> Any:
        if self._numbers is None:
            return super().__call__(step)
        peak, warmup, steps = ops.unstack(ops.convert_to_tensor(self._numbers), 3)
        step = ops.cast(step, "float32")
        decayed = peak * ops.clip((steps - step) / ops.maximum(steps - warmup, 1.0), 0.0, 1.0)
        return ops.where(step < warmup, peak * (step / ops.maximum(warmup, 1.0)), decayed)

    def get_config(self):
        return {"peak": self.peak, "warmup": self.warmup, "steps": self.steps}


@keras.saving.register_keras_serializable("kerasbert")
class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then a decay with the inverse square root of the number of updates.

    The rate at update t = 1, 2, ... is factor * hidden_dim^-1/2 * min(t^-1/2, t * warmup^-3/2).

    Vaswani et al. 2017, arXiv 1706.03762, section 5.3, use it for Adam with betas 0.9 and 0.98 and epsilon 1e-9. A
    learning rate of 0.2 with 8,000 warm-up updates in tensor2tensor corresponds to factor=2.

    Args:
        hidden_dim: width of the model; the peak, at update `warmup`, is factor * (hidden_dim * warmup)^-1/2.
        warmup: number of warm-up updates, at least 1.
        factor: constant by which the rate is multiplied.

    Raises:
        ValueError: if `hidden_dim` or `warmup` is no integer of at least 1, or `factor` is not above 0.
    """

    def __init__(self, hidden_dim: int, warmup: int = 4_000, factor: float = 1.0):
        hidden_dim, warmup = _count("hidden_dim", hidden_dim), _count("warmup", warmup)
        if hidden_dim < 1 or warmup < 1 or not factor > 0:
            raise ValueError(
                "`hidden_dim` and `warmup` must be at least 1, `factor` above 0. "
                f"Received: hidden_dim={hidden_dim}, warmup={warmup}, factor={factor}."
            )
        self.hidden_dim, self.warmup, self.factor = hidden_dim, warmup, float(factor)

    def __call__(self, step: Any) -> Any:
        update = ops.cast(step, "float32") + 1
        return self.factor * self.hidden_dim**-0.5 * ops.minimum(ops.rsqrt(update), update * self.warmup**-1.5)

    def get_config(self):
        return {"hidden_dim": self.hidden_dim, "warmup": self.warmup, "factor": self.factor}


@keras.saving.register_keras_serializable("kerasbert")
class RootDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A rate of peak * sqrt(warmup / n) from update n = `warmup` on. Before, it rises linearly or is constant.

    XLM uses the linear warm-up. T5 uses a constant rate: its 1 / sqrt(max(n, 10,000)) is RootDecay(0.01, 10_000,
    flat=True) (Raffel et al. 2019, arXiv 1910.10683, section 3.1.2).

    Args:
        peak: the highest rate.
        warmup: number of updates before the rate falls, at least 1.
        flat: whether the rate equals `peak` before it falls, instead of rising linearly from 0.

    Raises:
        ValueError: if `warmup` is no integer of at least 1, or `peak` is not above 0.
    """

    def __init__(self, peak: float, warmup: int, flat: bool = False):
        warmup = _count("warmup", warmup)
        if warmup < 1 or not peak > 0:
            raise ValueError(f"`warmup` must be at least 1, `peak` above 0. Received: {warmup}, {peak}.")
        self.peak, self.warmup, self.flat = float(peak), warmup, bool(flat)

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32")
        decayed = self.peak * ops.sqrt(self.warmup / ops.maximum(step, self.warmup))
        return decayed if self.flat else decayed * ops.minimum(1.0, step / self.warmup)

    def get_config(self):
        return {"peak": self.peak, "warmup": self.warmup, "flat": self.flat}


def _count(name, value):
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"`{name}` must be an integer. Received: {name}={value!r}.") from None


LORA_FACTOR = 10  # of the default rate, for low-rank products: 5e-4 for base models, as in Hu et al. 2021


def fine_tuning_rate(width: int) -> float:
    """Returns the peak learning rate with which tasks are fine-tuned by default: the wider the model, the lower.

    - Up to a width of 256, it is 3e-4, as for ELECTRA-small (Clark et al. 2020, arXiv 2003.10555).
    - Up to 512, it is 1e-4, as for MiniLM in the results of this package.
    - Up to 768, it is 5e-5, and above, 2e-5. These are the highest and the lowest rate of BERT's paper (Devlin et al.
      2018, arXiv 1810.04805).

    It suits pretrained models and a few epochs. Where scores matter, compare it with a third and with three times of
    it.

    Args:
        width: `hidden_dim` of the backbone's config.
    """
    return next((rate for widest, rate in ((256, 3e-4), (512, 1e-4), (768, 5e-5)) if width <= widest), 2e-5)
