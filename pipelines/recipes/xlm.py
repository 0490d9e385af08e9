"""XLM's runs (Lample and Conneau 2019, arXiv 1901.07291, section 5.1, and the official commands)."""

from .recipe import LOCAL_START, LOCAL_START_TO_THE_LEFT, NO_DROPOUT, TINY_ADAM, TINY_RUN, TINY_SCHEDULE, Recipe

_XNLI = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")
_MASKS = dict(rule="xlm", mask_rate=0.15)
_STREAM = dict(rows="stream", **_MASKS)


def _paper(name: str, size: str, **changes) -> Recipe:
    numbers = dict(
        backbone=size,
        batch_size=64,
        length=256,
        steps=1_000_000,
        schedule_class="RootDecay",
        schedule=dict(peak=1e-4, warmup=4_000),
        optimizer=dict(weight_decay=0.0, beta_1=0.9, beta_2=0.98, epsilon=1e-8, global_clipnorm=5.0),
        data=_STREAM,
        languages=_XNLI,
        sampling_exponent=0.5,
        mixed_by="batches",
    )
    return Recipe(name=name, **{**numbers, **changes})


def mlm() -> Recipe:
    """XLM-15, masked language modelling in 15 languages: XNLI 71.5 on average (zero-shot)."""
    return _paper("xlm.mlm", "xlm_mlm_xnli15_1024")


def mlm_tlm() -> Recipe:
    """XLM-15 with translation language modelling on parallel text: XNLI 75.1 on average (zero-shot)."""
    pairs = dict(pairs="TranslationLMBatches", pair_data=_MASKS)
    return _paper("xlm.mlm_tlm", "xlm_mlm_xnli15_1024", **pairs)


def clm() -> Recipe:
    """Causal language modelling in two languages with 6 layers, for unsupervised translation."""
    config = dict(causal=True, num_layers=6)
    numbers = dict(objective="CausalLM", batches="CausalLMBatches", data=dict(lines=True), config=config)
    return _paper("xlm.clm", "xlm_mlm_xnli15_1024", languages=("en", "fr"), **numbers)


def english() -> Recipe:
    """XLM-en, 665M parameters, one language: GLUE 82.8."""
    optimizer = dict(weight_decay=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-6, global_clipnorm=5.0, no_decay=())
    schedule = dict(peak=1e-4, warmup=30_000)
    return _paper("xlm.english", "xlm_mlm_en_2048", schedule=schedule, optimizer=optimizer, languages=())


_MASKED = dict(local_start=LOCAL_START, schedule=dict(TINY_SCHEDULE, peak=1e-3))


def _tiny(name: str, **changes) -> Recipe:
    config = dict(num_layers=2, hidden_dim=128, num_heads=2, embedding_initializer_range=128**-0.5, **NO_DROPOUT)
    run = dict(TINY_RUN, schedule_class="WarmupDecay", schedule=TINY_SCHEDULE, optimizer=TINY_ADAM)
    run |= dict(config={**config, **changes.pop("config", {})}, languages=("de", "en", "fr"))
    return _paper(name, "xlm_mlm_xnli15_1024", **{**run, **changes})


def tiny() -> Recipe:
    """A small version of mlm for two CPU cores, in three languages."""
    return _tiny("xlm.tiny", **_MASKED)


def tiny_clm() -> Recipe:
    """A small version of clm for two CPU cores, in three languages. After 2,000 steps it is worse than bigrams."""
    numbers = dict(objective="CausalLM", batches="CausalLMBatches", data=dict(lines=True), config=dict(causal=True))
    return _tiny("xlm.tiny_clm", steps=5_000, local_start=LOCAL_START_TO_THE_LEFT, **numbers)


def tiny_tlm() -> Recipe:
    """A small version of mlm_tlm for two CPU cores: three languages, and parallel text such as de-en."""
    masks = dict(_MASKS, max_predictions=16)
    pairs = dict(pairs="TranslationLMBatches", pair_data=masks, data=dict(rows="stream", **masks))
    return _tiny("xlm.tiny_tlm", **pairs, **_MASKED)
