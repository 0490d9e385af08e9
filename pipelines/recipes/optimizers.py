"""Learning-rate schedules and optimizers of recipes. Each record makes the object of the same name."""

import dataclasses
import math
from typing import ClassVar, Literal

import keras

from kerasbert import training
from kerasbert.training.optimizers import NO_DECAY


class Schedule:
    """Base class of schedules, which are counted in updates."""

    def __call__(self, steps: int) -> keras.optimizers.schedules.LearningRateSchedule:
        """Makes the schedule of a run of so many updates."""
        raise NotImplementedError

    def with_peak(self, rate: float) -> "Schedule":
        """Returns the schedule with another highest rate, with which its other rates scale."""
        return dataclasses.replace(self, peak=rate)


@dataclasses.dataclass(frozen=True)
class WarmupDecay(Schedule):
    """See `kerasbert.training.WarmupDecay`."""

    peak: float
    warmup: int = 0
    decay_from: Literal["warmup", "start", "throughout"] | int = "warmup"
    final: float = 0.0
    shape: Literal["polynomial", "cosine", "sqrt"] = "polynomial"
    power: float = 1.0
    cooldown: int = 0

    def __call__(self, steps: int) -> training.WarmupDecay:
        for name, least, most in (("decay_from", self.warmup, steps), ("cooldown", 0, steps - self.warmup)):
            value = getattr(self, name)
            if isinstance(value, int) and least <= most < value:
                raise ValueError(
                    f"`optimizer.schedule.{name}` must be at most {most} in a run of {steps} updates. Received: "
                    f"{value}, which `steps` does not change. Use --set optimizer.schedule.{name}="
                    f"{(least + most) // 2}."
                )
        return training.WarmupDecay(steps=steps, **vars(self))

    def with_peak(self, rate: float) -> "WarmupDecay":
        return dataclasses.replace(self, peak=rate, final=self.final / self.peak * rate)


@dataclasses.dataclass(frozen=True)
class RootDecay(Schedule):
    """See `kerasbert.training.RootDecay`."""

    peak: float
    warmup: int
    flat: bool = False

    def __call__(self, steps: int) -> training.RootDecay:
        return training.RootDecay(**vars(self))


@dataclasses.dataclass(frozen=True)
class InverseSquareRoot(Schedule):
    """See `kerasbert.training.InverseSquareRoot`."""

    hidden_dim: int
    warmup: int = 4_000
    factor: float = 1.0

    def __call__(self, steps: int) -> training.InverseSquareRoot:
        return training.InverseSquareRoot(**vars(self))

    def with_peak(self, rate: float) -> "InverseSquareRoot":
        return dataclasses.replace(self, factor=rate * math.sqrt(self.hidden_dim * self.warmup))


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """Base class of optimizers. A subclass has the class attribute `cls`, and a field for each of its arguments."""

    schedule: Schedule
    _: dataclasses.KW_ONLY
    weight_decay: float | None = None
    clipnorm: float | None = None
    clipvalue: float | None = None
    global_clipnorm: float | None = None
    use_ema: bool = False
    ema_momentum: float = 0.99
    ema_overwrite_frequency: int | None = None
    is_base = True  # not a class that a recipe may name
    cls: ClassVar[type[keras.optimizers.Optimizer]]
    needs: ClassVar[tuple[str, ...]] = ()  # arguments that are fields of the objective

    def __call__(self, steps: int, accumulation: int = 1, **arguments) -> keras.optimizers.Optimizer:
        """Makes the optimizer of a run.

        Args:
            steps: number of updates of the run.
            accumulation: number of batches of an update.
            **arguments: further arguments of the class.
        """
        names = [field.name for field in dataclasses.fields(self) if field.name != "schedule"]
        arguments |= {name: getattr(self, name) for name in names}
        batches = accumulation if accumulation > 1 else None
        return self.cls(self.schedule(steps), gradient_accumulation_steps=batches, **arguments)


@dataclasses.dataclass(frozen=True)
class TransformerOptimizer(Optimizer):
    """Base class of optimizers that derive from `kerasbert.training.optimizers.LayerRates`."""

    _: dataclasses.KW_ONLY
    is_base = True
    no_decay: tuple[str, ...] = NO_DECAY
    layer_decay: float | None = None


@dataclasses.dataclass(frozen=True)
class AdamW(TransformerOptimizer):
    """See `kerasbert.training.TransformerAdamW`."""

    _: dataclasses.KW_ONLY
    weight_decay: float | None = 0.01
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    bias_correction: bool = True
    cls = training.TransformerAdamW


@dataclasses.dataclass(frozen=True)
class Lamb(AdamW):
    """See `kerasbert.training.TransformerLamb`."""

    _: dataclasses.KW_ONLY
    bias_correction: bool = False
    cls = training.TransformerLamb


@dataclasses.dataclass(frozen=True)
class ProgressiveAdamW(AdamW):
    """See `kerasbert.training.ProgressiveAdamW`. The objective, `KnowledgeTransfer`, says how long its transfer is."""

    cls = training.ProgressiveAdamW
    needs = ("transfer_steps",)


@dataclasses.dataclass(frozen=True)
class ProgressiveLamb(Lamb):
    """See `kerasbert.training.ProgressiveLamb`. The objective, `KnowledgeTransfer`, says how long its transfer is."""

    cls = training.ProgressiveLamb
    needs = ("transfer_steps",)


@dataclasses.dataclass(frozen=True)
class StableAdamW(TransformerOptimizer):
    """See `kerasbert.training.StableAdamW`."""

    _: dataclasses.KW_ONLY
    weight_decay: float | None = 1e-5
    beta_1: float = 0.9
    beta_2: float = 0.98
    epsilon: float = 1e-6
    cls = training.StableAdamW


@dataclasses.dataclass(frozen=True)
class Adafactor(TransformerOptimizer):
    """See `kerasbert.training.TransformerAdafactor`."""

    _: dataclasses.KW_ONLY
    beta_2_decay: float = -0.8
    clip_threshold: float = 1.0
    epsilon_1: float = 1e-30
    epsilon_2: float = 1e-3
    min_factored: int = 128
    cls = training.TransformerAdafactor


@dataclasses.dataclass(frozen=True)
class Adagrad(Optimizer):
    """See `keras.optimizers.Adagrad`."""

    _: dataclasses.KW_ONLY
    initial_accumulator_value: float = 0.1
    epsilon: float = 1e-7
    cls = keras.optimizers.Adagrad


@dataclasses.dataclass(frozen=True)
class Adadelta(Optimizer):
    """See `keras.optimizers.Adadelta`."""

    _: dataclasses.KW_ONLY
    rho: float = 0.95
    epsilon: float = 1e-7
    cls = keras.optimizers.Adadelta


@dataclasses.dataclass(frozen=True)
class SGD(Optimizer):
    """See `keras.optimizers.SGD`."""

    _: dataclasses.KW_ONLY
    momentum: float = 0.0
    nesterov: bool = False
    cls = keras.optimizers.SGD
