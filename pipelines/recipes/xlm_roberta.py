"""XLM-R's runs (Conneau et al. 2019, arXiv 1911.02116): RoBERTa's objective, languages sampled with exponent 0.3."""

from dataclasses import replace

from . import roberta
from .data import Mixing, Phase
from .models import Pretraining
from .recipe import Recipe

_DATA = replace(roberta.DATA, mixing=Mixing(exponent=0.3))


def _paper(name: str, size: str, first: Recipe) -> Recipe:
    phases = (Phase(1_500_000, batch_size=8_192, length=512),)
    return replace(first, name=name, model=Pretraining(size), data=_DATA, phases=phases)


def base() -> Recipe:
    """XLM-R base, 100 languages: XNLI 76.2 on average (zero-shot)."""
    return _paper("xlm_roberta.base", "xlm_roberta_base", roberta.base())


def large() -> Recipe:
    """XLM-R large, 100 languages: XNLI 80.9 on average (zero-shot)."""
    return _paper("xlm_roberta.large", "xlm_roberta_large", roberta.large())


def tiny() -> Recipe:
    """A small version of base for two CPU cores: any number of corpora, one per language."""
    first = roberta.tiny()
    return replace(first, name="xlm_roberta.tiny", model=replace(first.model, size="xlm_roberta_base"), data=_DATA)
