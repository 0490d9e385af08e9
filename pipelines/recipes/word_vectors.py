"""Skip-gram with negative sampling (Mikolov et al. 2013, arXiv 1310.4546, and the tool's defaults)."""

from .data import Phase, SkipGramData
from .models import Pretraining, SkipGram
from .optimizers import SGD, AdamW, WarmupDecay
from .recipe import Recipe

_DTYPE = "float32"  # sums of a few products; half precision saves nothing


def google_news() -> Recipe:
    """300 dimensions, 100 billion words. With 1,000 dimensions and 33 billion words: 72% of the phrase analogies."""
    return Recipe(
        "word_vectors.google_news",
        Pretraining("google_news", objective=SkipGram()),
        SkipGramData(window=5, negatives=5, threshold=1e-5, rule="paper"),
        # The tool uses 0.025 for one pair at a time. The mean over many pairs needs a higher learning rate.
        (Phase(10_000_000, batch_size=1_024, length=1),),
        SGD(WarmupDecay(25.0, final=0.0025)),
        dtype=_DTYPE,
    )


def tiny() -> Recipe:
    """A small version for two CPU cores, with AdamW: 64 dimensions."""
    return Recipe(
        "word_vectors.tiny",
        Pretraining("google_news", dict(hidden_dim=64), SkipGram()),
        SkipGramData(window=5, negatives=5, threshold=1e-3, rule="code"),
        (Phase(4_000, batch_size=1_024, length=1),),
        AdamW(WarmupDecay(5e-3, warmup=100), weight_decay=0.0, epsilon=1e-7),
        dtype=_DTYPE,
    )
