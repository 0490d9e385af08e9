"""Fine-tuning tasks: a backbone, a head, a loss, text in and answers out."""

from .few_shot import FewShot
from .multi_task import MultiTask
from .multiple_choice import MultipleChoice
from .question_answerer import QuestionAnswerer
from .text_classifier import TextClassifier
from .text_embedder import TextEmbedder
from .token_classifier import TokenClassifier

__all__ = [
    "FewShot",
    "MultiTask",
    "MultipleChoice",
    "QuestionAnswerer",
    "TextClassifier",
    "TextEmbedder",
    "TokenClassifier",
]
