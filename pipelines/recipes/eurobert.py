"""EuroBERT's two stages (Boizard et al. 2025, arXiv 2503.05500, and the published code).

The paper counts tokens. They are converted to updates of 4.7 million tokens here: the code's 12 rows of 2,048 tokens on
each of 192 devices.
"""

from kerasbert.data import Tokens

from .data import MaskedLMData, Phase
from .models import Pretraining
from .optimizers import AdamW, WarmupDecay
from .recipe import Recipe
from .tiny import TINY_SIZE, tiny_adam, tiny_phase


def _data(rate: float) -> MaskedLMData:
    """Rows with masks only: each token is selected independently, and no special tokens."""
    return MaskedLMData("packed", Tokens(rate, shares=(1.0, 0.0), count="independent"))


def _paper(name: str, theta: float, rate: float, phase: Phase, schedule: WarmupDecay, init_from: str = "") -> Recipe:
    return Recipe(
        name,
        Pretraining("eurobert_210m", dict(rope_theta=theta)),
        _data(rate),
        (phase,),
        AdamW(schedule, weight_decay=0.1, beta_2=0.95, epsilon=1e-5, global_clipnorm=1.0),
        dtype="mixed_bfloat16",
        init_from=init_from,
    )


def base() -> Recipe:
    """Stage 1 of 210m: 4.8 trillion tokens in rows of 2,048, 50% masks, a constant learning rate, theta 10,000."""
    schedule = WarmupDecay(1e-4, warmup=2_000, final=1e-4)
    return _paper("eurobert.base", 10_000.0, 0.5, Phase(1_017_000, batch_size=2_304, length=2_048), schedule)


def base_decay() -> Recipe:
    """Stage 2 of 210m, 200 billion tokens: 10% masks, rows of 8,192, theta 250,000, a rate that decays to 0."""
    # The paper draws the lengths of the rows, from 12 to 8,192 tokens. Packed rows hold texts of all lengths.
    phase = Phase(42_400, batch_size=576, length=8_192)
    return _paper("eurobert.base_decay", 250_000.0, 0.1, phase, WarmupDecay(1e-4), init_from="eurobert.base")


def tiny() -> Recipe:
    """A small version of stage 1 for two CPU cores, with 30% masks: a fourth of the heads have keys and values."""
    config = dict(TINY_SIZE, num_heads=4, num_key_heads=1, rope_theta=10_000.0)
    model = Pretraining("eurobert_210m", config)
    return Recipe("eurobert.tiny", model, _data(0.3), tiny_phase(length=128), tiny_adam())
