"""CamemBERT's runs (Martin et al. 2019, arXiv 1911.03894): RoBERTa with whole-word masks, on French."""

from . import roberta
from .recipe import Recipe

_DATA = dict(rows="full_sentences", rule="roberta", whole_words=True, mask_rate=0.15)


def _paper(name: str, size: str) -> Recipe:
    numbers = dict(batch_size=8_192, steps=100_000, schedule=dict(peak=7e-4, warmup=10_000), data=dict(_DATA))
    return Recipe(**{**vars(roberta.base()), "name": name, "backbone": size, **numbers})


def base() -> Recipe:
    """CamemBERT-base, 138 GB of OSCAR: XNLI-fr 82.5, NER 89.08."""
    return _paper("camembert.base", "camembert_base")


def large() -> Recipe:
    """CamemBERT-large, 135 GB of CCNet: XNLI-fr 85.7."""
    return _paper("camembert.large", "camembert_large")


def tiny() -> Recipe:
    """A small version of base for two CPU cores."""
    numbers = dict(name="camembert.tiny", backbone="camembert_base", data=dict(_DATA))
    return Recipe(**{**vars(roberta.tiny()), **numbers})
