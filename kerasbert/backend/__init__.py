"""Backend-specific code. Only this folder imports jax, tensorflow or torch, and only inside functions."""

from .compilation import keep_programs
from .devices import compiling_for, target
from .distribution import share_batches
from .hosts import connect
from .layouts import parallel
from .seeding import seed_everything

__all__ = ["compiling_for", "connect", "keep_programs", "parallel", "seed_everything", "share_batches", "target"]
