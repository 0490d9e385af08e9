"""Training with `model.fit`: optimizers, schedules, exact resuming, reports, and layouts of devices."""

from ..backend import connect, parallel
from ..core.lora import add_lora
from .alternating import AlternatingOptimizers
from .checkpointing import Checkpoints
from .counting import RunCallback, TrainingDiverged
from .local_start import start_with_local_attention
from .optimizers import NO_DECAY, LossScale, TransformerAdamW, adamw
from .progressive import ProgressiveAdamW, ProgressiveLamb
from .reporting import Progress, RunLog, StopOnNaN, TensorBoardLog, plot_curves, read_log
from .schedules import InverseSquareRoot, RootDecay, WarmupDecay, fine_tuning_rate
from .stopping import RunStopped, StopOnRequest, StopRequest
from .tensor_scaled import StableAdamW, TransformerAdafactor, TransformerLamb

__all__ = [
    "NO_DECAY",
    "AlternatingOptimizers",
    "Checkpoints",
    "InverseSquareRoot",
    "LossScale",
    "Progress",
    "ProgressiveAdamW",
    "ProgressiveLamb",
    "RootDecay",
    "RunCallback",
    "RunLog",
    "RunStopped",
    "StableAdamW",
    "StopOnNaN",
    "StopOnRequest",
    "StopRequest",
    "TensorBoardLog",
    "TrainingDiverged",
    "TransformerAdafactor",
    "TransformerAdamW",
    "TransformerLamb",
    "WarmupDecay",
    "adamw",
    "add_lora",
    "connect",
    "fine_tuning_rate",
    "parallel",
    "plot_curves",
    "read_log",
    "start_with_local_attention",
]
