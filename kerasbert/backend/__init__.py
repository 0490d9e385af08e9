"""What differs by backend: the one folder that imports jax, tensorflow or torch, inside functions only."""

from .seeding import seed_everything

__all__ = ["seed_everything"]
