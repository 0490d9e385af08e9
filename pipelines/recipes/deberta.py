"""DeBERTa's runs, versions 1 to 3 (He et al. 2020, arXiv 2006.03654; 2021, arXiv 2111.09543)."""

from kerasbert.data import NGrams, Tokens, WindowNGrams

from .data import MaskedLMData, Phase, ReplacedTokenData
from .models import Pretraining, ReplacedTokenDetection, Size
from .optimizers import AdamW, WarmupDecay
from .recipe import Recipe
from .tiny import TINY, tiny_adam, tiny_phase

_ADAM = dict(weight_decay=0.01, epsilon=1e-6, bias_correction=False, global_clipnorm=1.0)
_REPLACED = dict(discriminator_weight=50.0, embedding_sharing="disentangled")


def _masked(name: str, size: str, peak: float = 2e-4) -> Recipe:
    # As in the code, the ends of long rows are never masked. `anywhere=True` masks them, too.
    noise = WindowNGrams(0.15, ngrams=3, max_predictions=80)
    return Recipe(
        name,
        Pretraining(size, dict(mask_decoder=True)),
        MaskedLMData(noise=noise),
        (Phase(1_000_000, batch_size=2_048, length=512),),
        AdamW(WarmupDecay(peak, warmup=10_000, decay_from="start"), **_ADAM),
    )


def _replaced(name: str, size: str, peak: float = 6e-4) -> Recipe:
    noise = WindowNGrams(0.15, ngrams=1, words=False, shares=(1.0, 0.0))
    # Two optimizers, as in the code; with alternating=False, both losses are minimized in one step.
    objective = ReplacedTokenDetection(Size(f"{size}_generator"), **_REPLACED, alternating=True)
    return Recipe(
        name,
        Pretraining(size, objective=objective),
        ReplacedTokenData(noise=noise),
        (Phase(500_000, batch_size=8_192, length=512),),
        AdamW(WarmupDecay(peak, warmup=10_000, decay_from="start"), beta_2=0.98, **_ADAM),
    )


def v1_base() -> Recipe:
    """DeBERTa-base: MNLI 88.8, SQuAD 2.0 F1 86.2."""
    return _masked("deberta.v1_base", "deberta_base")


def v1_large() -> Recipe:
    """DeBERTa-large: MNLI 91.1, SQuAD 2.0 F1 90.7, RACE 86.8."""
    return _masked("deberta.v1_large", "deberta_large")


def v2_xxlarge() -> Recipe:
    """DeBERTa with 1.5B parameters, 160 GB of text: the first single model above human performance on SuperGLUE."""
    return _masked("deberta.v2_xxlarge", "deberta_v2_xxlarge", peak=1.5e-4)


def v3_xsmall() -> Recipe:
    """DeBERTa-v3-xsmall, 22M parameters without embeddings: MNLI 88.1, SQuAD 2.0 F1 84.8."""
    return _replaced("deberta.v3_xsmall", "deberta_v3_xsmall")


def v3_small() -> Recipe:
    """DeBERTa-v3-small, 44M parameters without embeddings: MNLI 88.3, SQuAD 2.0 F1 82.9."""
    return _replaced("deberta.v3_small", "deberta_v3_small")


def v3_base() -> Recipe:
    """DeBERTa-v3-base, 86M parameters without embeddings: MNLI 90.6, SQuAD 2.0 F1 88.4."""
    return _replaced("deberta.v3_base", "deberta_v3_base")


def v3_large() -> Recipe:
    """DeBERTa-v3-large, 304M parameters without embeddings: MNLI 91.8, SQuAD 2.0 F1 91.5."""
    return _replaced("deberta.v3_large", "deberta_v3_large", peak=3e-4)


def tiny() -> Recipe:
    """A small version of v1_base for two CPU cores: disentangled attention, n-grams as in ALBERT, the mask decoder."""
    model = Pretraining("deberta_base", dict(TINY, mask_decoder=True))
    return Recipe("deberta.tiny", model, MaskedLMData(noise=NGrams(0.15, ngrams=3)), tiny_phase(), tiny_adam())


_V3_TINY_GENERATOR = Size("deberta_v3_small_generator", dict(TINY, num_layers=1, mask_decoder=True))
_V3_TINY_NOISE = Tokens(0.15, shares=(1.0, 0.0))


def v3_tiny() -> Recipe:
    """A small version of v3_small for two CPU cores: replaced tokens, gradient-disentangled embeddings."""
    objective = ReplacedTokenDetection(_V3_TINY_GENERATOR, **_REPLACED, alternating=True)
    model = Pretraining("deberta_v3_small", TINY, objective)
    return Recipe("deberta.v3_tiny", model, ReplacedTokenData(noise=_V3_TINY_NOISE), tiny_phase(), tiny_adam())


def v3_tiny_generator() -> Recipe:
    """The generator of v3_tiny alone, which v3_tiny may start from: --set init_from=runs/generator/model."""
    model = Pretraining(_V3_TINY_GENERATOR.size, _V3_TINY_GENERATOR.config)
    data = MaskedLMData(noise=_V3_TINY_NOISE)
    return Recipe("deberta.v3_tiny_generator", model, data, tiny_phase(300), tiny_adam(warmup=30))
