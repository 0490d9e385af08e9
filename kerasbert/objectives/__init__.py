"""Pretraining objectives: a backbone, a head and a loss."""

from .causal_lm import CausalLM
from .masked_lm import MaskedLM

__all__ = ["CausalLM", "MaskedLM"]
