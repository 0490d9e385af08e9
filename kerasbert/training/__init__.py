"""Training: optimizer, schedules, exact resume, and reports, all for `model.fit`."""

from .checkpointing import Checkpoints
from .counting import RunCallback, TrainingDiverged
from .optimizers import NO_DECAY, LossScale, TransformerAdamW, adamw
from .reporting import Progress, RunLog, StopOnNaN, TensorBoardLog, plot_curves, read_log
from .schedules import InverseSquareRoot, WarmupDecay

__all__ = [
    "NO_DECAY",
    "Checkpoints",
    "InverseSquareRoot",
    "LossScale",
    "Progress",
    "RunCallback",
    "RunLog",
    "StopOnNaN",
    "TensorBoardLog",
    "TrainingDiverged",
    "TransformerAdamW",
    "WarmupDecay",
    "adamw",
    "plot_curves",
    "read_log",
]
