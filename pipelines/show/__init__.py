"""The command `show`: pictures of corrupted text, attention, masks, curves, predictions and neighbors of words."""

from .command import main

__all__ = ["main"]
