"""Fine-tuning tasks: a backbone, a head, a loss, text in and answers out."""

from .text_classifier import TextClassifier

__all__ = ["TextClassifier"]
