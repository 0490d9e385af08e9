"""GPT-BERT's runs (Charpentier and Samuel 2024, arXiv 2410.24159, and the published code)."""

from kerasbert.data import RateSchedule, TokenSpans

from .data import HybridLMData, Phase
from .models import HybridLM, Pretraining
from .optimizers import Lamb, WarmupDecay
from .recipe import Evaluation, Recipe
from .tiny import NO_DROPOUT, tiny_adam, tiny_phase

# The first 16 ids are special tokens, which are neither masked nor drawn at random.
DATA = HybridLMData("packed", RateSchedule(TokenSpans(0.3, random_from=16), final=0.15))
HELD_OUT = Evaluation(data={"noise.noise.rate": 0.15})


def _growing(steps: int = 7_812, parts: int = 10) -> tuple[Phase, ...]:
    """Batches that grow from 8,192 to 32,768 rows of 128 tokens; rows of 256 tokens from 70%, of 512 from 90%."""
    ends = [steps * part // parts for part in range(parts + 1)]
    phases = []
    for part in range(parts):
        longer = 1 if part < 7 else 2 if part < 9 else 4
        rows = (8_192 + 24_576 * (2 * part + 1) / (2 * parts)) / longer
        phases.append(Phase(ends[part + 1] - ends[part], 64 * round(rows / 64), 128 * longer))
    return tuple(phases)


def strict_small() -> Recipe:
    """GPT-BERT small, 20 billion tokens from 10 million words: BLiMP 81, the winner of BabyLM's strict-small track."""
    # The official batches grow in every update, here in ten parts.
    return Recipe(
        "gpt_bert.strict_small",
        Pretraining("gpt_bert_small", objective=HybridLM(z_loss=1e-4)),
        DATA,
        _growing(),
        Lamb(
            WarmupDecay(1.41e-2, warmup=125, final=1.41e-3, shape="cosine", cooldown=125),
            weight_decay=0.1,
            beta_2=0.98,
            epsilon=1e-8,
            bias_correction=True,
            global_clipnorm=2.0,
            use_ema=True,
            ema_momentum=0.999,
        ),
        held_out=HELD_OUT,
        dtype="mixed_bfloat16",
    )


def tiny() -> Recipe:
    """A small version for two CPU cores, with fewer targets in causal rows, of which there is one in four."""
    config = dict(num_layers=2, hidden_dim=128, num_heads=2, feed_forward_dim=384, **NO_DROPOUT)
    data = HybridLMData("packed", DATA.noise, causal_share=0.25, causal_targets=20)
    return Recipe(
        "gpt_bert.tiny",
        Pretraining("gpt_bert_base", config, HybridLM(z_loss=1e-4)),
        data,
        tiny_phase(),
        tiny_adam(),
        held_out=HELD_OUT,
    )
