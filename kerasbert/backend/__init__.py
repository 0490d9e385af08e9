"""Backend-specific code. Only this folder imports jax, tensorflow or torch, and only inside functions."""

from .compilation import keep_programs
from .distribution import share_batches
from .seeding import seed_everything

__all__ = ["keep_programs", "seed_everything", "share_batches"]
