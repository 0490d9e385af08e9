"""The Transformer's runs (Vaswani et al. 2017, arXiv 1706.03762, sections 5.2 to 5.4).

Corpora consist of pairs (see `kerasbert.data.parallel_documents`).
"""

from .data import PairData, Phase
from .models import Pretraining, Seq2SeqLM
from .optimizers import AdamW, InverseSquareRoot
from .recipe import Recipe
from .tiny import tiny_phase

_DATA, _OBJECTIVE = PairData(num_buckets=8), Seq2SeqLM(label_smoothing=0.1)


def _adam(hidden_dim: int, warmup: int = 4_000) -> AdamW:
    return AdamW(InverseSquareRoot(hidden_dim, warmup), weight_decay=0.0, beta_2=0.98, epsilon=1e-9)


def _paper(name: str, size: str, hidden_dim: int, steps: int, average: int) -> Recipe:
    # The paper counts tokens, about 25,000 per side and batch. The recipe counts pairs, which have about 30 tokens.
    phases, model = (Phase(steps, batch_size=832, length=256),), Pretraining(size, objective=_OBJECTIVE)
    return Recipe(name, model, _DATA, phases, _adam(hidden_dim), average=average)


def base() -> Recipe:
    """The base model, 65M parameters, WMT 2014: BLEU 27.3 to German, 38.1 to French."""
    return _paper("transformer.base", "transformer_base", 512, steps=100_000, average=5)


def big() -> Recipe:
    """The big model, 213M parameters, WMT 2014 to German: BLEU 28.4."""
    return _paper("transformer.big", "transformer_big", 1_024, steps=300_000, average=20)


def big_en_fr() -> Recipe:
    """The big model with less dropout, WMT 2014 to French: BLEU 41.8."""
    return _paper("transformer.big_en_fr", "transformer_big_en_fr", 1_024, steps=300_000, average=20)


def tiny() -> Recipe:
    """A small version of base for two CPU cores: pairs of captions."""
    config = dict(num_layers=2, hidden_dim=128, num_heads=4, feed_forward_dim=512, dropout=0.0)
    model = Pretraining("transformer_base", config, _OBJECTIVE)
    return Recipe("transformer.tiny", model, _DATA, tiny_phase(1_500, 32, 32), _adam(128, warmup=400))
