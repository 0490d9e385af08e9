"""Fine-tuning tasks: a backbone, a head and a loss, with text as input and predictions as output."""

from .. import models  # noqa: F401  registers the families for `from_preset`
from ..data.tasks.prompts import Prompts
from .few_shot import FewShot
from .multi_task import MultiTask
from .multi_vector_embedder import MultiVectorEmbedder
from .multiple_choice import MultipleChoice
from .question_answerer import QuestionAnswerer
from .reranker import Reranker
from .set_fit import SetFit
from .sparse_embedder import QueryWeights, SparseEmbedder
from .static_embedder import StaticEmbedder
from .task import Task
from .text_classifier import TextClassifier
from .text_embedder import TextEmbedder
from .token_classifier import TokenClassifier
from .token_rules import QueryExpansion, TokenRules
from .vector_layers import Dense, Dropout, LayerNorm, Normalize
from .zero_shot import ZeroShotClassifier

__all__ = [
    "Dense",
    "Dropout",
    "FewShot",
    "LayerNorm",
    "MultiTask",
    "MultiVectorEmbedder",
    "MultipleChoice",
    "Normalize",
    "Prompts",
    "QueryExpansion",
    "QueryWeights",
    "QuestionAnswerer",
    "Reranker",
    "SetFit",
    "SparseEmbedder",
    "StaticEmbedder",
    "Task",
    "TextClassifier",
    "TextEmbedder",
    "TokenClassifier",
    "TokenRules",
    "ZeroShotClassifier",
]
