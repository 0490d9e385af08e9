"""Multilingual BERT (google-research/bert, multilingual.md): BERT's run on languages sampled with exponent 0.7."""

from . import bert
from .recipe import Recipe


def base() -> Recipe:
    """mBERT cased, 104 languages: XNLI 81.9 en, 77.8 es, 75.9 de (translate-train)."""
    numbers = {"name": "mbert.base", "backbone": "bert_base_multilingual_cased", "sampling_exponent": 0.7}
    return Recipe(**{**vars(bert.base()), **numbers})


def tiny() -> Recipe:
    """A small version of base for two CPU cores: any number of corpora, one per language."""
    return Recipe(**{**vars(bert.tiny()), "name": "mbert.tiny", "sampling_exponent": 0.7})
