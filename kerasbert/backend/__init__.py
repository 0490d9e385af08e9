"""Backend-specific code. Only this folder imports jax, tensorflow or torch, and only inside functions."""

from .compilation import keep_programs
from .devices import Device, chosen_policy, compiling_for, device, target
from .distribution import share_batches
from .hosts import connect
from .layouts import parallel
from .seeding import seed_everything

__all__ = [
    "Device",
    "chosen_policy",
    "compiling_for",
    "connect",
    "device",
    "keep_programs",
    "parallel",
    "seed_everything",
    "share_batches",
    "target",
]
