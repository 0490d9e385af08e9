"""BART's pretraining (Lewis et al. 2019, arXiv 1910.13461, sections 4 and 5)."""

from kerasbert.data import TextInfilling

from .data import DenoisingData, Phase
from .models import Pretraining, Seq2SeqLM
from .optimizers import AdamW, WarmupDecay
from .recipe import Recipe
from .tiny import NO_DROPOUT, TINY_SIZE, tiny_adam, tiny_phase

_OBJECTIVE = Seq2SeqLM()
# 30% of the words in spans of three words on average; all sentences are shuffled.
_DATA = DenoisingData(TextInfilling(rate=0.3, mean_span=3.0, permute_sentences=True))


def _paper(name: str, size: str, phase: Phase, peak: float, warmup: int) -> Recipe:
    optimizer = AdamW(WarmupDecay(peak, warmup), weight_decay=0.01, epsilon=1e-6, global_clipnorm=0.1)
    return Recipe(name, Pretraining(size, objective=_OBJECTIVE), _DATA, (phase,), optimizer)


def base() -> Recipe:
    """The base model of section 4 on books and Wikipedia, 1M updates: SQuAD 1.1 F1 90.8, MNLI 83.8."""
    # The paper does not say how many rows an update has, nor the rate. These are BERT's.
    return _paper("bart.base", "bart_base", Phase(1_000_000, batch_size=256, length=512), 1e-4, 10_000)


def large() -> Recipe:
    """The large model of section 5, 500k updates of 8,000 rows: MNLI 89.9, SQuAD 1.1 F1 94.6, CNN/DM ROUGE-1 44.16."""
    # Dropout, which the paper switches off for the last tenth, stays. The rate is that of the published command.
    return _paper("bart.large", "bart_large", Phase(500_000, batch_size=8_000, length=512), 4e-4, 10_000)


def tiny() -> Recipe:
    """A small version of base for two CPU cores."""
    model = Pretraining("bart_base", dict(TINY_SIZE, **NO_DROPOUT), _OBJECTIVE)
    return Recipe("bart.tiny", model, _DATA, tiny_phase(4_000), tiny_adam())
