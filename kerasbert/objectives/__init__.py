"""Pretraining objectives: a backbone, a head and a loss."""

from .causal_lm import CausalLM
from .discriminator import Discriminator
from .masked_lm import MaskedLM
from .permutation_lm import PermutationLM
from .replaced_token import ReplacedTokenDetection
from .seq2seq_lm import Seq2SeqLM
from .span_boundary import SpanBoundary

__all__ = [
    "CausalLM",
    "Discriminator",
    "MaskedLM",
    "PermutationLM",
    "ReplacedTokenDetection",
    "Seq2SeqLM",
    "SpanBoundary",
]
