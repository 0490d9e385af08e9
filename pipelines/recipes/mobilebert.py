"""MobileBERT's runs (Sun et al. 2020, arXiv 2004.02984, section 4.2, and the official code)."""

from kerasbert.data import SegmentPairs, Tokens

from .data import MaskedLMData, Phase
from .models import KnowledgeTransfer, Pretraining
from .optimizers import Lamb, ProgressiveAdamW, ProgressiveLamb, WarmupDecay
from .recipe import Recipe
from .tiny import NO_DROPOUT, tiny_adam, tiny_phase

_LAMB = dict(weight_decay=0.01, epsilon=1e-6, global_clipnorm=1.0)
_DATA = MaskedLMData(SegmentPairs(), Tokens(0.15, max_predictions=20))
_START = dict(layers=(), transform=True)


def teacher() -> Recipe:
    """IB-BERT-large, 293M parameters, BERT-large with inverted bottlenecks; trained like BERT-large."""
    optimizer = Lamb(WarmupDecay(1.5e-3, warmup=10_000, decay_from="start"), **_LAMB)
    phases = (Phase(500_000, batch_size=4_096, length=512),)
    return Recipe("mobilebert.teacher", Pretraining("ib_bert_large"), _DATA, phases, optimizer)


def transfer() -> Recipe:
    """The first stage: transfers feature maps and attention block by block, 10,000 steps each, at a constant rate."""
    objective = KnowledgeTransfer("progressive", transfer_steps=240_000, **_START)
    return Recipe(
        "mobilebert.transfer",
        Pretraining("mobilebert", objective=objective),
        _DATA,
        (Phase(240_000, batch_size=2_048, length=512),),
        ProgressiveLamb(WarmupDecay(1.5e-3, final=1.5e-3), **_LAMB),
        teacher="mobilebert.teacher",
    )


def base() -> Recipe:
    """MobileBERT, 25M parameters, 500,000 steps of distillation after the transfer: GLUE 77.7, SQuAD F1 90.0."""
    objective = KnowledgeTransfer("joint", transfer_steps=0, hard_share=0.5, **_START)
    return Recipe(
        "mobilebert.base",
        Pretraining("mobilebert", objective=objective),
        _DATA,
        (Phase(500_000, batch_size=2_048, length=512),),
        Lamb(WarmupDecay(1.5e-3, warmup=10_000, final=1.5e-7), **_LAMB),
        teacher="mobilebert.teacher",
        init_from="mobilebert.transfer",
    )


_SMALL = dict(NO_DROPOUT, num_layers=2, hidden_dim=128, num_heads=2, embedding_dim=64, initializer_range=0.08)
_TINY_DATA = MaskedLMData(SegmentPairs(passes=4), Tokens(0.15))


def tiny_teacher() -> Recipe:
    """A small version of teacher for two CPU cores."""
    model = Pretraining("ib_bert_large", dict(_SMALL, bottleneck_dim=192, feed_forward_dim=512))
    return Recipe("mobilebert.tiny_teacher", model, _TINY_DATA, tiny_phase(), tiny_adam())


def tiny() -> Recipe:
    """A small version of transfer and base for two CPU cores; the teacher is trained first or given as teacher=."""
    config = dict(_SMALL, bottleneck_dim=64, feed_forward_dim=256, num_feed_forwards=2)
    objective = KnowledgeTransfer("progressive", transfer_steps=300, **_START)
    return Recipe(
        "mobilebert.tiny",
        Pretraining("mobilebert", config, objective),
        _TINY_DATA,
        tiny_phase(1_500),
        ProgressiveAdamW(WarmupDecay(2e-3, warmup=200), weight_decay=0.01, epsilon=1e-6, global_clipnorm=1.0),
        teacher="mobilebert.tiny_teacher",
    )
