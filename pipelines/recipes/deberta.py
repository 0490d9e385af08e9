"""DeBERTa's runs, versions 1 to 3 (He et al. 2020, arXiv 2006.03654; 2021, arXiv 2111.09543)."""

from .recipe import TINY, TINY_ADAM, TINY_RUN, TINY_SCHEDULE, Recipe


def _masked(name: str, size: str, **changes) -> Recipe:
    numbers = dict(
        backbone=size,
        batch_size=2_048,
        length=512,
        steps=1_000_000,
        schedule=dict(peak=2e-4, warmup=10_000, decay_from="start"),
        optimizer=dict(
            weight_decay=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-6, bias_correction=False, global_clipnorm=1.0
        ),
        config=dict(mask_decoder=True),
        # As in the code, the ends of long rows are never masked. "deberta_anywhere" masks them, too.
        data=dict(rule="deberta", ngrams=3, mask_rate=0.15, max_predictions=80),
    )
    return Recipe(name=name, **{**numbers, **changes})


def _replaced(name: str, size: str, **changes) -> Recipe:
    numbers = dict(
        backbone=size,
        generator=f"{size}_generator",
        batch_size=8_192,
        length=512,
        steps=500_000,
        schedule=dict(peak=6e-4, warmup=10_000, decay_from="start"),
        optimizer=dict(
            weight_decay=0.01, beta_1=0.9, beta_2=0.98, epsilon=1e-6, bias_correction=False, global_clipnorm=1.0
        ),
        objective="ReplacedTokenDetection",
        objective_options=dict(discriminator_weight=50.0, embedding_sharing="disentangled"),
        alternating=True,  # as in the code; with False, both losses are minimised in one step
        batches="ReplacedTokenBatches",
        data=dict(rule="deberta", mask_rate=0.15, mask_share=1.0),
    )
    return Recipe(name=name, **{**numbers, **changes})


def v1_base() -> Recipe:
    """DeBERTa-base: MNLI 88.8, SQuAD 2.0 F1 86.2."""
    return _masked("deberta.v1_base", "deberta_base")


def v1_large() -> Recipe:
    """DeBERTa-large: MNLI 91.1, SQuAD 2.0 F1 90.7, RACE 86.8."""
    return _masked("deberta.v1_large", "deberta_large")


def v2_xxlarge() -> Recipe:
    """DeBERTa with 1.5B parameters, 160 GB of text: the first single model above human performance on SuperGLUE."""
    schedule = dict(peak=1.5e-4, warmup=10_000, decay_from="start")
    return _masked("deberta.v2_xxlarge", "deberta_v2_xxlarge", schedule=schedule)


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
    schedule = dict(peak=3e-4, warmup=10_000, decay_from="start")
    return _replaced("deberta.v3_large", "deberta_v3_large", schedule=schedule)


_TINY = dict(TINY_RUN, schedule=TINY_SCHEDULE, optimizer=TINY_ADAM)


def tiny() -> Recipe:
    """A small version of v1_base for two CPU cores: disentangled attention, n-grams as in ALBERT, the mask decoder."""
    data = dict(ngrams=3, mask_rate=0.15)
    return _masked("deberta.tiny", "deberta_base", **dict(_TINY, config=dict(TINY, mask_decoder=True), data=data))


def v3_tiny() -> Recipe:
    """A small version of v3_small for two CPU cores: replaced tokens, gradient-disentangled embeddings."""
    run = dict(_TINY, config=TINY, generator_config=dict(TINY, num_layers=1, mask_decoder=True))
    return _replaced("deberta.v3_tiny", "deberta_v3_small", data=dict(mask_rate=0.15, mask_share=1.0), **run)
