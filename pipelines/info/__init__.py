"""The command `info`: describes a model, a size of a paper, a recipe, a corpus or this installation."""

from .command import main

__all__ = ["main"]
