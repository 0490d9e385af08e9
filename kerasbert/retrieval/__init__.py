"""Losses of embedders, rerankers, sparse and late-interaction models; search, evaluation, mining; few labels."""

from .approximate import ApproximateIndex
from .bm25 import BM25
from .distillation import DistillKL, EmbeddingMSE, MarginMSE
from .evaluation import Collection, evaluate_retrieval, read_beir, retrieve
from .few_labels import PairRules, contrastive_pairs, entailment_scores
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
from .search import Found, search
from .similarity import max_sim
from .sparse import Splade, flops, splade_pooling
from .triplets import BatchAll, BatchHard, BatchHardSoftMargin, BatchSemiHard, Triplet
from .wrappers import AdaptiveLayer, GlobalOrthogonal, Matryoshka

__all__ = [
    "ADRMSE",
    "GIST",
    "AdaptiveLayer",
    "AnglE",
    "ApproximateIndex",
    "BM25",
    "BatchAll",
    "BatchHard",
    "BatchHardSoftMargin",
    "BatchSemiHard",
    "BinaryCrossEntropy",
    "CoSENT",
    "Collection",
    "Contrastive",
    "CosineSimilarity",
    "CrossEntropy",
    "DistillKL",
    "EmbeddingMSE",
    "Found",
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
    "PairRules",
    "RankNet",
    "SampledNegatives",
    "ScoreLoss",
    "ScoreMarginMSE",
    "Splade",
    "Step",
    "Triplet",
    "contrastive_pairs",
    "entailment_scores",
    "evaluate_retrieval",
    "flops",
    "loss_of",
    "max_sim",
    "mine_hard_negatives",
    "read_beir",
    "retrieve",
    "search",
    "splade_pooling",
]
