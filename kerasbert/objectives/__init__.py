"""Pretraining objectives: a backbone, a head and a loss."""

from .masked_lm import MaskedLM

__all__ = ["MaskedLM"]
