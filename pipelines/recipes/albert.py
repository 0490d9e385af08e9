"""ALBERT's runs (Lan et al. 2019, arXiv 1909.11942, section 4.1, and the official code)."""

from dataclasses import replace

from kerasbert.data import NGrams, SegmentPairs, SentenceOrder

from .data import MaskedLMData, Phase
from .models import Pretraining
from .optimizers import Lamb, WarmupDecay
from .recipe import Recipe
from .tiny import LOCAL_START, TINY, tiny_adam, tiny_phase

DATA = MaskedLMData(
    SentenceOrder(passes=40, short_sequence_rate=0.1), NGrams(0.15, ngrams=3, max_predictions=20), static_masks=40
)


def _paper(name: str, size: str, data: MaskedLMData = DATA) -> Recipe:
    schedule = WarmupDecay(1.76e-3, warmup=3_125, decay_from="start")
    optimizer = Lamb(schedule, weight_decay=0.01, epsilon=1e-6, global_clipnorm=1.0)
    return Recipe(name, Pretraining(size), data, (Phase(125_000, batch_size=4_096, length=512),), optimizer)


def base() -> Recipe:
    """ALBERT-base, 12M parameters: average 80.1, SQuAD 1.1 F1 89.3, MNLI 81.6."""
    return _paper("albert.base", "albert_base_v1")


def large() -> Recipe:
    """ALBERT-large, 18M parameters: average 82.4."""
    return _paper("albert.large", "albert_large_v1")


def xlarge() -> Recipe:
    """ALBERT-xlarge, 60M parameters: average 85.5."""
    return _paper("albert.xlarge", "albert_xlarge_v1")


def xxlarge() -> Recipe:
    """ALBERT-xxlarge, 235M parameters: average 88.7, RACE 82.3."""
    return _paper("albert.xxlarge", "albert_xxlarge_v1")


def base_nsp() -> Recipe:
    """Table 5: next-sentence prediction instead of sentence order prediction: average 79.2, SOP accuracy 52.0."""
    return _paper("albert.base_nsp", "albert_base_v1", replace(DATA, rows=SegmentPairs(passes=40)))


def base_mlm() -> Recipe:
    """Table 5: no sentence-pair loss: average 79.0."""
    return _paper("albert.base_mlm", "albert_base_v1", replace(DATA, rows="chunks"))


def tiny() -> Recipe:
    """A small version of base for two CPU cores: n-grams of whole words, sentence order, shared layers.

    The embeddings are as wide as those of the paper, and therefore as wide as the hidden states. With 64, the model is
    no better than token frequencies after 3,000 updates.
    """
    model = Pretraining("albert_base_v2", dict(TINY, embedding_dim=128), start=LOCAL_START)
    data = MaskedLMData(SentenceOrder(passes=4), NGrams(0.15, ngrams=3))
    return Recipe("albert.tiny", model, data, tiny_phase(3_000), tiny_adam(1e-3))
