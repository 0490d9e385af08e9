"""CamemBERT's runs (Martin et al. 2019, arXiv 1911.03894): RoBERTa with whole-word masks, on French."""

from dataclasses import replace

from kerasbert.data import WholeWords

from . import roberta
from .data import MaskedLMData, Phase
from .models import Pretraining
from .optimizers import WarmupDecay
from .recipe import Recipe

DATA = MaskedLMData("full_sentences", WholeWords(0.15, by_word=True, **roberta.RULE))


def _paper(name: str, size: str) -> Recipe:
    first = roberta.base()
    optimizer = replace(first.optimizer, schedule=WarmupDecay(7e-4, warmup=10_000))
    phases = (Phase(100_000, batch_size=8_192, length=512),)
    return replace(first, name=name, model=Pretraining(size), data=DATA, phases=phases, optimizer=optimizer)


def base() -> Recipe:
    """CamemBERT-base, 138 GB of OSCAR: XNLI-fr 82.5, NER 89.08."""
    return _paper("camembert.base", "camembert_base")


def large() -> Recipe:
    """CamemBERT-large, 135 GB of CCNet: XNLI-fr 85.7."""
    return _paper("camembert.large", "camembert_large")


def tiny() -> Recipe:
    """A small version of base for two CPU cores."""
    first = roberta.tiny()
    return replace(first, name="camembert.tiny", model=replace(first.model, size="camembert_base"), data=DATA)
