"""The command `serve`: a page in the browser that answers with models, and the same answers for programs."""

from .command import main

__all__ = ["main"]
