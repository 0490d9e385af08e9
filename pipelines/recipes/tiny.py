"""What the tiny recipes share, which run for minutes on two CPU cores.

An initializer range of 0.02 is suitable for a width of 768. With a width of 128, the loss would stay on a plateau for
thousands of steps, longest with masked tokens and learned absolute positions, shortest with next-token prediction.
Dropout is not needed for so few passes over the text.
"""

from .data import Phase
from .models import LocalStart
from .optimizers import AdamW, WarmupDecay

TINY_SIZE = dict(num_layers=2, hidden_dim=128, num_heads=2, feed_forward_dim=512, initializer_range=0.08)
NO_DROPOUT = dict(dropout=0.0, attention_dropout=0.0)
TINY = dict(TINY_SIZE, **NO_DROPOUT)
# The heads of the first block attend to neighbors at first. Otherwise, models of this size with learned positions do
# no better than token frequencies for hundreds of updates (benchmarks/studies/plateau/report.md).
LOCAL_START = LocalStart(num_blocks=1)
LOCAL_START_TO_THE_LEFT = LocalStart(num_blocks=1, offsets=(-1, -2))  # for causal models


def tiny_phase(steps: int = 2_000, batch_size: int = 16, length: int = 64) -> tuple[Phase]:
    """Returns the only phase of a tiny run."""
    return (Phase(steps, batch_size, length),)


def tiny_adam(peak: float = 2e-3, warmup: int = 200, **decay) -> AdamW:
    """Returns the optimizer of most tiny runs, with further arguments of the schedule."""
    return AdamW(WarmupDecay(peak, warmup, **decay), weight_decay=0.01, epsilon=1e-6, global_clipnorm=1.0)
