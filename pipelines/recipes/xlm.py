"""XLM's runs (Lample and Conneau 2019, arXiv 1901.07291, section 5.1, and the official commands)."""

from dataclasses import replace

from kerasbert.data import Tokens

from .data import CausalLMData, Data, Languages, MaskedLMData, Mixing, Phase, TranslationLMData
from .models import CausalLM, LocalStart, MaskedLM, Objective, Pretraining
from .optimizers import AdamW, RootDecay
from .recipe import Recipe
from .tiny import LOCAL_START, LOCAL_START_TO_THE_LEFT, NO_DROPOUT, tiny_adam, tiny_phase

_XNLI = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")
# Each token but the first of a row is selected independently, special tokens, too.
_NOISE = Tokens(0.15, mask_special=True, count="independent", skip_first=True)
_MASKED = MaskedLMData("stream", _NOISE)
_MIXING = Mixing(exponent=0.5, by="batches")
_OBJECTIVE = MaskedLM()
_PHASES = (Phase(1_000_000, batch_size=64, length=256),)


def _languages(names: tuple[str, ...], text: Data = _MASKED, pairs: Data | None = None) -> Languages:
    return Languages(names, text, pairs, mixing=_MIXING)


def _paper(name: str, data: Data, objective: Objective = _OBJECTIVE, **config) -> Recipe:
    optimizer = AdamW(RootDecay(1e-4, warmup=4_000), weight_decay=0.0, beta_2=0.98, epsilon=1e-8, global_clipnorm=5.0)
    return Recipe(name, Pretraining("xlm_mlm_xnli15_1024", config, objective), data, _PHASES, optimizer)


def mlm() -> Recipe:
    """XLM-15, masked language modeling in 15 languages: XNLI 71.5 on average (zero-shot)."""
    return _paper("xlm.mlm", _languages(_XNLI))


def mlm_tlm() -> Recipe:
    """XLM-15 with translation language modeling on parallel text: XNLI 75.1 on average (zero-shot)."""
    return _paper("xlm.mlm_tlm", _languages(_XNLI, pairs=TranslationLMData(_NOISE)))


def clm() -> Recipe:
    """Causal language modeling in two languages with 6 layers, for unsupervised translation."""
    data = _languages(("en", "fr"), CausalLMData(lines=True))
    return _paper("xlm.clm", data, CausalLM(), causal=True, num_layers=6)


def english() -> Recipe:
    """XLM-en, 665M parameters, one language: GLUE 82.8."""
    optimizer = AdamW(RootDecay(1e-4, warmup=30_000), weight_decay=0.01, epsilon=1e-6, global_clipnorm=5.0, no_decay=())
    return Recipe("xlm.english", Pretraining("xlm_mlm_en_2048"), replace(_MASKED, mixing=_MIXING), _PHASES, optimizer)


def _tiny(
    name: str, data: Data, steps: int = 2_000, peak: float = 1e-3, start: LocalStart = LOCAL_START, **model
) -> Recipe:
    config = dict(num_layers=2, hidden_dim=128, num_heads=2, embedding_initializer_range=128**-0.5, **NO_DROPOUT)
    config |= model.pop("config", {})
    model = Pretraining("xlm_mlm_xnli15_1024", config, start=start, **model)
    return Recipe(name, model, data, tiny_phase(steps), tiny_adam(peak))


_TINY = ("de", "en", "fr")


def tiny() -> Recipe:
    """A small version of mlm for two CPU cores, in three languages."""
    return _tiny("xlm.tiny", _languages(_TINY))


def tiny_clm() -> Recipe:
    """A small version of clm for two CPU cores, in three languages. After 2,000 steps it is worse than bigrams."""
    data, model = _languages(_TINY, CausalLMData(lines=True)), dict(objective=CausalLM(), config=dict(causal=True))
    return _tiny("xlm.tiny_clm", data, 5_000, 2e-3, LOCAL_START_TO_THE_LEFT, **model)


def tiny_tlm() -> Recipe:
    """A small version of mlm_tlm for two CPU cores: three languages, and parallel text such as de-en."""
    noise = replace(_NOISE, max_predictions=16)
    return _tiny("xlm.tiny_tlm", _languages(_TINY, MaskedLMData("stream", noise), TranslationLMData(noise)))
