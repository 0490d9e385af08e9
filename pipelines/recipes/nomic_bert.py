"""NomicBERT's masked language model (Nussbaum et al. 2024, arXiv 2402.01613, section 4.1 and the published config)."""

from kerasbert.data import Tokens

from .data import MaskedLMData, Phase
from .models import Pretraining
from .optimizers import AdamW, WarmupDecay
from .recipe import Evaluation, Recipe
from .tiny import TINY, tiny_adam, tiny_phase

_DATA = MaskedLMData("packed", Tokens(0.3, count="independent"))
_HELD_OUT = Evaluation(data={"noise.rate": 0.15})


def base() -> Recipe:
    """The encoder that nomic-embed-text starts from: Wikipedia and books in rows of 2,048, 30% masks, no dropout."""
    # The config has 160 passes, which are about 100,000 updates if the text has 5 billion tokens. Its warm-up is 6%.
    return Recipe(
        "nomic_bert.base",
        Pretraining("nomic_bert_base"),
        _DATA,
        (Phase(100_000, batch_size=4_096, length=2_048),),
        AdamW(WarmupDecay(5e-4, 6_000), weight_decay=1e-5, beta_2=0.98, epsilon=1e-6),
        held_out=_HELD_OUT,
        accumulation=4,
        dtype="mixed_bfloat16",
    )


def tiny() -> Recipe:
    """A small version of base for two CPU cores."""
    model = Pretraining("nomic_bert_base", TINY)
    return Recipe("nomic_bert.tiny", model, _DATA, tiny_phase(length=128), tiny_adam(), held_out=_HELD_OUT)
