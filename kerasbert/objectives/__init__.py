"""Pretraining objectives: a backbone, a head and a loss."""

from .bidirectional_lm import BidirectionalLM
from .causal_lm import CausalLM
from .discriminator import Discriminator
from .distillation import Distillation, start_from_teacher
from .knowledge_transfer import KnowledgeTransfer
from .masked_lm import MaskedLM
from .permutation_lm import PermutationLM
from .replaced_token import ReplacedTokenDetection
from .seq2seq_lm import Seq2SeqLM
from .skip_gram import SkipGram
from .span_boundary import SpanBoundary

__all__ = [
    "BidirectionalLM",
    "CausalLM",
    "Discriminator",
    "Distillation",
    "KnowledgeTransfer",
    "MaskedLM",
    "PermutationLM",
    "ReplacedTokenDetection",
    "Seq2SeqLM",
    "SkipGram",
    "SpanBoundary",
    "start_from_teacher",
]
