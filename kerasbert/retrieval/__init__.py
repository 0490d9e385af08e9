"""Losses of embedders, rerankers, sparse and late-interaction models; mining of negatives; few labels."""

from .distillation import DistillKL, EmbeddingMSE, MarginMSE
from .few_labels import contrastive_pairs, entailment_scores
from .loss import Loss, Step, loss_of
from .mining import NegativeRules, mine_hard_negatives
from .ranking import GIST, MegaBatchMargin, MultipleNegatives
from .reranking import (
    ADRMSE,
    BinaryCrossEntropy,
    CrossEntropy,
    LambdaLoss,
    ListMLE,
    ListNet,
    MeanSquaredError,
    PListMLE,
    RankNet,
    SampledNegatives,
    ScoreLoss,
    ScoreMarginMSE,
)
from .scored_pairs import AnglE, Contrastive, CoSENT, CosineSimilarity, OnlineContrastive, PairClasses
from .similarity import max_sim
from .sparse import Splade, flops, splade_pooling
from .triplets import BatchAll, BatchHard, BatchHardSoftMargin, BatchSemiHard, Triplet
from .wrappers import AdaptiveLayer, GlobalOrthogonal, Matryoshka

__all__ = [
    "ADRMSE",
    "GIST",
    "AdaptiveLayer",
    "AnglE",
    "BatchAll",
    "BatchHard",
    "BatchHardSoftMargin",
    "BatchSemiHard",
    "BinaryCrossEntropy",
    "CoSENT",
    "Contrastive",
    "CosineSimilarity",
    "CrossEntropy",
    "DistillKL",
    "EmbeddingMSE",
    "GlobalOrthogonal",
    "LambdaLoss",
    "ListMLE",
    "ListNet",
    "Loss",
    "MarginMSE",
    "Matryoshka",
    "MeanSquaredError",
    "MegaBatchMargin",
    "MultipleNegatives",
    "NegativeRules",
    "OnlineContrastive",
    "PListMLE",
    "PairClasses",
    "RankNet",
    "SampledNegatives",
    "ScoreLoss",
    "ScoreMarginMSE",
    "Splade",
    "Step",
    "Triplet",
    "contrastive_pairs",
    "entailment_scores",
    "flops",
    "loss_of",
    "max_sim",
    "mine_hard_negatives",
    "splade_pooling",
]
