"""Pretraining objectives: a backbone, a head and a loss."""

from .. import models  # noqa: F401  registers the families for `from_preset`
from .bidirectional_lm import BidirectionalLM
from .causal_lm import CausalLM
from .discriminator import Discriminator
from .distillation import Distillation, start_from_teacher
from .hybrid_lm import HybridLM
from .knowledge_transfer import KnowledgeTransfer, TransferWeights
from .masked_lm import MaskedLM
from .objective import Objective, WeightedMean, cross_entropy, weighted_mean
from .permutation_lm import PermutationLM
from .replaced_token import ReplacedTokenDetection
from .retro_mae import RetroMAE
from .seq2seq_lm import Seq2SeqLM
from .sim_cse import SimCSE
from .skip_gram import SkipGram
from .span_boundary import SpanBoundary
from .tsdae import TSDAE

__all__ = [
    "TSDAE",
    "BidirectionalLM",
    "CausalLM",
    "Discriminator",
    "Distillation",
    "HybridLM",
    "KnowledgeTransfer",
    "MaskedLM",
    "Objective",
    "PermutationLM",
    "ReplacedTokenDetection",
    "RetroMAE",
    "Seq2SeqLM",
    "SimCSE",
    "SkipGram",
    "SpanBoundary",
    "TransferWeights",
    "WeightedMean",
    "cross_entropy",
    "start_from_teacher",
    "weighted_mean",
]
