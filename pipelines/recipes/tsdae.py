"""TSDAE, pretraining of embeddings on text alone (Wang, Reimers, Gurevych 2021, arXiv 2104.06979, section 4)."""

from .data import Phase, TSDAEData
from .models import TSDAE, Pretraining
from .optimizers import AdamW, WarmupDecay
from .recipe import Recipe
from .tiny import LOCAL_START, TINY, tiny_adam, tiny_phase


def base() -> Recipe:
    """BERT-base on 800,000 sentences of the target domain: AskUbuntu MAP 59.4; SciFact nDCG@10 .628 (none .571)."""
    # The rate is constant. A row is one or more sentences.
    return Recipe(
        "tsdae.base",
        Pretraining("bert_base", objective=TSDAE()),
        TSDAEData("sentences"),
        (Phase(100_000, batch_size=8, length=128),),
        AdamW(WarmupDecay(3e-5, final=3e-5), weight_decay=0.0, global_clipnorm=1.0),
        init_from="hf://google-bert/bert-base-uncased",
    )


def tiny() -> Recipe:
    """A small version for two CPU cores, from random weights."""
    model = Pretraining("bert_base", TINY, TSDAE(), start=LOCAL_START)
    return Recipe("tsdae.tiny", model, TSDAEData(), tiny_phase(), tiny_adam())
