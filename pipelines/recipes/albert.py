"""ALBERT's runs (Lan et al. 2019, arXiv 1909.11942, section 4.1, and the official code)."""

from .recipe import LOCAL_START, TINY, TINY_ADAM, TINY_RUN, TINY_SCHEDULE, Recipe

_DATA = dict(
    rows="sentence_order",
    ngrams=3,
    mask_rate=0.15,
    max_predictions=20,
    short_sequence_rate=0.1,
    static_masks=True,
    dupe_factor=40,
)


def _paper(name: str, size: str, **changes) -> Recipe:
    numbers = dict(
        backbone=size,
        batch_size=4_096,
        length=512,
        steps=125_000,
        schedule=dict(peak=1.76e-3, warmup=3_125, decay_from="start"),
        optimizer_class="TransformerLamb",
        optimizer=dict(weight_decay=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-6, global_clipnorm=1.0),
        objective_options=dict(sentence_pair=True),
        data=_DATA,
    )
    return Recipe(name=name, **{**numbers, **changes})


def base() -> Recipe:
    """ALBERT-base, 12M parameters: average 80.1, SQuAD 1.1 F1 89.3, MNLI 81.6."""
    return _paper("albert.base", "albert_base_v1")


def large() -> Recipe:
    """ALBERT-large, 18M parameters: average 82.4."""
    return _paper("albert.large", "albert_large_v1")


def xlarge() -> Recipe:
    """ALBERT-xlarge, 60M parameters: average 85.5."""
    return _paper("albert.xlarge", "albert_xlarge_v1")


def xxlarge() -> Recipe:
    """ALBERT-xxlarge, 235M parameters: average 88.7, RACE 82.3."""
    return _paper("albert.xxlarge", "albert_xxlarge_v1")


def base_nsp() -> Recipe:
    """Table 5: next-sentence prediction instead of sentence order prediction: average 79.2, SOP accuracy 52.0."""
    return _paper("albert.base_nsp", "albert_base_v1", data=dict(_DATA, rows="segment_pairs"))


def base_mlm() -> Recipe:
    """Table 5: no sentence-pair loss: average 79.0."""
    return _paper("albert.base_mlm", "albert_base_v1", data=dict(_DATA, rows="chunks"), objective_options={})


def tiny() -> Recipe:
    """A small version of base for two CPU cores: n-grams of whole words, sentence order, shared layers.

    The embeddings are as wide as those of the paper, and therefore as wide as the hidden states. With 64, the model is
    no better than token frequencies after 3,000 updates.
    """
    data = dict(rows="sentence_order", ngrams=3, mask_rate=0.15, short_sequence_rate=0.1, dupe_factor=4)
    run = dict(TINY_RUN, steps=3_000, config=dict(TINY, embedding_dim=128), data=data, local_start=LOCAL_START)
    run |= dict(schedule=dict(TINY_SCHEDULE, peak=1e-3), optimizer=TINY_ADAM, optimizer_class="TransformerAdamW")
    return _paper("albert.tiny", "albert_base_v2", **run)
