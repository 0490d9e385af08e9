"""XLM-R's runs (Conneau et al. 2019, arXiv 1911.02116): RoBERTa's objective, languages sampled with exponent 0.3."""

from . import roberta
from .recipe import Recipe


def _paper(name: str, size: str) -> Recipe:
    numbers = dict(name=name, backbone=size, batch_size=8_192, steps=1_500_000, sampling_exponent=0.3)
    return Recipe(**{**vars(roberta.base()), **numbers})


def base() -> Recipe:
    """XLM-R base, 100 languages: XNLI 76.2 on average (zero-shot)."""
    return _paper("xlm_roberta.base", "xlm_roberta_base")


def large() -> Recipe:
    """XLM-R large, 100 languages: XNLI 80.9 on average (zero-shot)."""
    recipe = _paper("xlm_roberta.large", "xlm_roberta_large")
    recipe.schedule.update(roberta.large().schedule)
    return recipe


def tiny() -> Recipe:
    """A small version of base for two CPU cores: any number of corpora, one per language."""
    numbers = dict(name="xlm_roberta.tiny", backbone="xlm_roberta_base", sampling_exponent=0.3)
    return Recipe(**{**vars(roberta.tiny()), **numbers})
