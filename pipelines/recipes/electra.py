"""ELECTRA's runs (Clark et al. 2020, arXiv 2003.10555, table 6, and the official code)."""

from kerasbert.data import Tokens

from .data import MaskedLMData, Phase, ReplacedTokenData
from .models import Pretraining, ReplacedTokenDetection, Size
from .optimizers import AdamW, WarmupDecay
from .recipe import Recipe
from .tiny import LOCAL_START, TINY, tiny_adam, tiny_phase


def _noise(rate: float = 0.15) -> Tokens:
    """85% of the chosen tokens are masked, the others kept."""
    return Tokens(rate, shares=(0.85, 1 - 0.85))


def _paper(name: str, size: str, phase: Phase, peak: float = 2e-4, rate: float = 0.15, objective: str = "") -> Recipe:
    generator = Size(f"{size}_generator")
    if objective:  # for the discriminator, of section 3.4
        detection = ReplacedTokenDetection(generator, objective=objective)
    else:
        detection = ReplacedTokenDetection(generator, discriminator_weight=50.0)
    # As in the code, Adam has no bias correction, and the learning rate also decays during the warm-up.
    schedule = WarmupDecay(peak, warmup=10_000, decay_from="throughout")
    return Recipe(
        name,
        Pretraining(size, objective=detection),
        ReplacedTokenData("segments", _noise(rate)),
        (phase,),
        AdamW(schedule, weight_decay=0.01, epsilon=1e-6, bias_correction=False, global_clipnorm=1.0),
    )


def small() -> Recipe:
    """ELECTRA-small, 14M parameters: GLUE 79.9 (dev), 77.4 (test)."""
    return _paper("electra.small", "electra_small", Phase(1_000_000, batch_size=128, length=128), peak=5e-4)


_BASE = Phase(766_000, batch_size=256, length=512)


def base() -> Recipe:
    """ELECTRA-base, 110M parameters: GLUE 85.1 (dev), 82.7 (test)."""
    return _paper("electra.base", "electra_base", _BASE)


def large_400k() -> Recipe:
    """ELECTRA-400K, 335M parameters: GLUE 89.0 (dev), SQuAD 2.0 F1 89.6."""
    return _paper("electra.large_400k", "electra_large", Phase(400_000, batch_size=2_048, length=512), rate=0.25)


def large() -> Recipe:
    """ELECTRA-1.75M, 335M parameters: GLUE 89.5 (dev), SQuAD 2.0 F1 90.6."""
    return _paper("electra.large", "electra_large", Phase(1_750_000, batch_size=2_048, length=512), rate=0.25)


# Section 3.4: the base model with another objective for the discriminator.


def replaced_slots() -> Recipe:
    """ELECTRA 15%, a loss at masked positions only: GLUE 82.4."""
    return _paper("electra.replaced_slots", "electra_base", _BASE, objective="replaced_slots")


def replace_mlm() -> Recipe:
    """Replace MLM, the generator's tokens instead of the mask: GLUE 82.4."""
    return _paper("electra.replace_mlm", "electra_base", _BASE, objective="replace_mlm")


def all_tokens_mlm() -> Recipe:
    """All-Tokens MLM, with a copy mechanism: GLUE 84.3."""
    return _paper("electra.all_tokens_mlm", "electra_base", _BASE, objective="all_tokens_mlm")


_TINY = dict(TINY, embedding_dim=128)
# As wide as the discriminator, since the local start needs embeddings that are no wider than the model.
_TINY_GENERATOR = Size("electra_small_generator", dict(_TINY, num_layers=1))


def tiny() -> Recipe:
    """A small version of small for two CPU cores: a generator of one layer, full rows with a single segment."""
    objective = ReplacedTokenDetection(_TINY_GENERATOR, discriminator_weight=50.0)
    model = Pretraining("electra_small", _TINY, objective, LOCAL_START)
    return Recipe("electra.tiny", model, ReplacedTokenData(noise=_noise()), tiny_phase(3_000), tiny_adam(1e-3))


def tiny_generator() -> Recipe:
    """The generator of tiny alone, which tiny may start from: --set init_from=runs/generator/model."""
    # In the paper's two-stage training (section 3.2), the generator is trained first, too.
    model = Pretraining(_TINY_GENERATOR.size, _TINY_GENERATOR.config, start=LOCAL_START)
    return Recipe("electra.tiny_generator", model, MaskedLMData(noise=_noise()), tiny_phase(300), tiny_adam(1e-3, 30))
