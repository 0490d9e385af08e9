"""Multilingual BERT (google-research/bert, multilingual.md): BERT's run on languages sampled with exponent 0.7."""

from dataclasses import replace

from . import bert
from .data import Mixing
from .models import Pretraining
from .recipe import Recipe

_DATA = replace(bert.DATA, mixing=Mixing(exponent=0.7))


def base() -> Recipe:
    """mBERT cased, 104 languages: XNLI 81.9 en, 77.8 es, 75.9 de (translate-train)."""
    return replace(bert.base(), name="mbert.base", model=Pretraining("bert_base_multilingual_cased"), data=_DATA)


def tiny() -> Recipe:
    """A small version of base for two CPU cores: any number of corpora, one per language."""
    return replace(bert.tiny(), name="mbert.tiny", data=_DATA)
