"""XLNet's runs (Yang et al. 2019, arXiv 1906.08237, appendix A.4, and the official code)."""

from kerasbert.data import SpanTargets

from .data import PermutationLMData, Phase
from .models import PermutationLM, Pretraining
from .optimizers import AdamW, WarmupDecay
from .recipe import Recipe
from .tiny import TINY, tiny_adam, tiny_phase

_NOISE = SpanTargets(partial=6, longest=5, max_predictions=85)


def _paper(name: str, size: str, phase: Phase, schedule: WarmupDecay) -> Recipe:
    return Recipe(
        name,
        Pretraining(size, dict(memory_length=384), PermutationLM()),
        PermutationLMData(reuse_length=256, bidirectional_data=True, noise=_NOISE, permutation_size=256),
        (phase,),
        # As in the code, Adam with weight decay has no bias correction.
        AdamW(schedule, weight_decay=0.01, epsilon=1e-6, bias_correction=False, global_clipnorm=1.0),
    )


def large() -> Recipe:
    """XLNet-large, 126 GB of text: RACE 85.4, SQuAD 2.0 F1 90.6, MNLI 90.8."""
    schedule = WarmupDecay(4e-4, warmup=40_000, final=4e-7)  # the code's min_lr_ratio is 0.001
    return _paper("xlnet.large", "xlnet_large", Phase(500_000, batch_size=8_192, length=512), schedule)


def base() -> Recipe:
    """XLNet-base on BERT's text with BERT's batch size, K = 6: RACE 66.66, SQuAD 2.0 F1 80.98, MNLI 85.63."""
    schedule = WarmupDecay(1e-4, warmup=10_000, final=1e-7)
    return _paper("xlnet.base", "xlnet_base", Phase(1_000_000, batch_size=256, length=512), schedule)


def tiny() -> Recipe:
    """A small version of base for two CPU cores: two streams, a memory, both directions."""
    model = Pretraining("xlnet_base", dict(TINY, memory_length=32), PermutationLM())
    data = PermutationLMData(reuse_length=32, bidirectional_data=True, noise=SpanTargets(partial=6, longest=5))
    return Recipe("xlnet.tiny", model, data, tiny_phase(), tiny_adam())
