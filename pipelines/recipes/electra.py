"""ELECTRA's runs (Clark et al. 2020, arXiv 2003.10555, table 6, and the official code)."""

from .recipe import LOCAL_START, TINY, TINY_ADAM, TINY_RUN, TINY_SCHEDULE, Recipe


def _paper(name: str, size: str, **changes) -> Recipe:
    numbers = dict(
        backbone=size,
        generator=f"{size}_generator",
        length=512,
        # As in the code, Adam has no bias correction, and the learning rate also decays during the warm-up.
        optimizer=dict(
            weight_decay=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-6, bias_correction=False, global_clipnorm=1.0
        ),
        objective="ReplacedTokenDetection",
        objective_options=dict(discriminator_weight=50.0),
        batches="ReplacedTokenBatches",
        data=dict(rows="segments", mask_rate=0.15, mask_share=0.85),
    )
    return Recipe(name=name, **{**numbers, **changes})


def small() -> Recipe:
    """ELECTRA-small, 14M parameters: GLUE 79.9 (dev), 77.4 (test)."""
    schedule = dict(peak=5e-4, warmup=10_000, decay_from="throughout")
    return _paper("electra.small", "electra_small", batch_size=128, length=128, steps=1_000_000, schedule=schedule)


def base() -> Recipe:
    """ELECTRA-base, 110M parameters: GLUE 85.1 (dev), 82.7 (test)."""
    schedule = dict(peak=2e-4, warmup=10_000, decay_from="throughout")
    return _paper("electra.base", "electra_base", batch_size=256, steps=766_000, schedule=schedule)


def _large(name: str, steps: int) -> Recipe:
    schedule = dict(peak=2e-4, warmup=10_000, decay_from="throughout")
    data = dict(rows="segments", mask_rate=0.25, mask_share=0.85)
    return _paper(name, "electra_large", batch_size=2_048, steps=steps, schedule=schedule, data=data)


def large_400k() -> Recipe:
    """ELECTRA-400K, 335M parameters: GLUE 89.0 (dev), SQuAD 2.0 F1 89.6."""
    return _large("electra.large_400k", 400_000)


def large() -> Recipe:
    """ELECTRA-1.75M, 335M parameters: GLUE 89.5 (dev), SQuAD 2.0 F1 90.6."""
    return _large("electra.large", 1_750_000)


def _ablation(name: str, objective: str) -> Recipe:
    """Section 3.4: the base model with another objective for the discriminator."""
    schedule = dict(peak=2e-4, warmup=10_000, decay_from="throughout")
    options = dict(objective_options=dict(objective=objective), batch_size=256, steps=766_000, schedule=schedule)
    return _paper(name, "electra_base", **options)


def replaced_slots() -> Recipe:
    """ELECTRA 15%, a loss at masked positions only: GLUE 82.4."""
    return _ablation("electra.replaced_slots", "replaced_slots")


def replace_mlm() -> Recipe:
    """Replace MLM, the generator's tokens instead of the mask: GLUE 82.4."""
    return _ablation("electra.replace_mlm", "replace_mlm")


def all_tokens_mlm() -> Recipe:
    """All-Tokens MLM, with a copy mechanism: GLUE 84.3."""
    return _ablation("electra.all_tokens_mlm", "all_tokens_mlm")


def tiny() -> Recipe:
    """A small version of small for two CPU cores: a generator of one layer, full rows with a single segment.

    The generator is as wide as the discriminator, since the local start needs embeddings that are no wider than it.
    """
    config, data = dict(TINY, embedding_dim=128), dict(mask_rate=0.15, mask_share=0.85)
    run = dict(TINY_RUN, steps=3_000, config=config, generator_config=dict(config, num_layers=1), data=data)
    run |= dict(local_start=LOCAL_START, schedule=dict(TINY_SCHEDULE, peak=1e-3), optimizer=TINY_ADAM)
    return _paper("electra.tiny", "electra_small", **run)
