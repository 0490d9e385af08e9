"""Unsupervised SimCSE, embeddings from dropout (Gao, Yao, Chen 2021, arXiv 2104.08821, section 3 and appendix A)."""

from .data import Phase, WholeTextData
from .models import Pretraining, SimCSE
from .optimizers import AdamW, WarmupDecay
from .recipe import Recipe
from .tiny import TINY_SIZE, tiny_adam, tiny_phase


def _paper(name: str, size: str, peak: float, init_from: str, rows: int = 64) -> Recipe:
    # One pass over a million sentences of Wikipedia. The authors keep the checkpoint that is best on STSb, every 125
    # updates; more training is worse.
    return Recipe(
        name,
        Pretraining(size, objective=SimCSE()),
        WholeTextData("sentences"),
        (Phase(1_000_000 // rows, batch_size=rows, length=32),),
        AdamW(WarmupDecay(peak), weight_decay=0.0, epsilon=1e-8, global_clipnorm=1.0),
        init_from=init_from,
    )


def base() -> Recipe:
    """BERT-base: mean of the STS tasks 76.3."""
    return _paper("simcse.base", "bert_base", 3e-5, "hf://google-bert/bert-base-uncased")


def large() -> Recipe:
    """BERT-large: mean of the STS tasks 78.4."""
    return _paper("simcse.large", "bert_large", 1e-5, "hf://google-bert/bert-large-uncased")


def roberta_base() -> Recipe:
    """RoBERTa-base: mean of the STS tasks 76.6."""
    return _paper("simcse.roberta_base", "roberta_base", 1e-5, "hf://FacebookAI/roberta-base", rows=512)


def tiny() -> Recipe:
    """A small version for two CPU cores, from random weights and with the dropout that it needs."""
    model = Pretraining("bert_base", dict(TINY_SIZE), SimCSE())
    return Recipe("simcse.tiny", model, WholeTextData(), tiny_phase(1_000, batch_size=32), tiny_adam(1e-3))
