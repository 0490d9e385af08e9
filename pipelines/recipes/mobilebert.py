"""MobileBERT's runs (Sun et al. 2020, arXiv 2004.02984, section 4.2, and the official code)."""

from .recipe import NO_DROPOUT, TINY_ADAM, TINY_RUN, TINY_SCHEDULE, Recipe

_LAMB = dict(weight_decay=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-6, global_clipnorm=1.0)
_DATA = dict(sentence_pairs=True, mask_rate=0.15, max_predictions=20, short_sequence_rate=0.1)


def _paper(name: str, **changes) -> Recipe:
    numbers = dict(
        backbone="mobilebert",
        batch_size=2_048,
        length=512,
        optimizer_class="TransformerLamb",
        optimizer=_LAMB,
        objective="KnowledgeTransfer",
        data=_DATA,
        teacher="mobilebert.teacher",
        from_teacher=dict(layers=(), transform=True),
    )
    return Recipe(name=name, **{**numbers, **changes})


def teacher() -> Recipe:
    """IB-BERT-large, 293M parameters, BERT-large with inverted bottlenecks; trained like BERT-large."""
    numbers = dict(backbone="ib_bert_large", batch_size=4_096, steps=500_000, teacher="", from_teacher={})
    numbers |= dict(objective="MaskedLM", objective_options=dict(sentence_pair=True))
    schedule = dict(peak=1.5e-3, warmup=10_000, decay_from="start")
    return _paper("mobilebert.teacher", schedule=schedule, **numbers)


def transfer() -> Recipe:
    """The first stage: transfers feature maps and attention block by block, 10,000 steps each, at a constant rate."""
    return _paper(
        "mobilebert.transfer",
        steps=240_000,
        schedule=dict(peak=1.5e-3, warmup=0, final=1.5e-3),
        optimizer_class="ProgressiveLamb",
        optimizer=dict(_LAMB, transfer_steps=240_000),
        objective_options=dict(strategy="progressive", transfer_steps=240_000),
    )


def base() -> Recipe:
    """MobileBERT, 25M parameters, 500,000 steps of distillation after the transfer: GLUE 77.7, SQuAD F1 90.0."""
    return _paper(
        "mobilebert.base",
        steps=500_000,
        schedule=dict(peak=1.5e-3, warmup=10_000, final=1.5e-7),
        objective_options=dict(strategy="joint", transfer_steps=0, hard_share=0.5),
        init_from="mobilebert.transfer",
    )


_SMALL = dict(NO_DROPOUT, num_layers=2, hidden_dim=128, num_heads=2, embedding_dim=64, initializer_range=0.08)
_TINY = dict(
    TINY_RUN,
    optimizer=TINY_ADAM,
    optimizer_class="TransformerAdamW",
    schedule=TINY_SCHEDULE,
    data=dict(sentence_pairs=True, mask_rate=0.15, dupe_factor=4),
)


def tiny_teacher() -> Recipe:
    """A small version of teacher for two CPU cores."""
    numbers = dict(backbone="ib_bert_large", teacher="", from_teacher={}, objective="MaskedLM")
    numbers |= dict(objective_options=dict(sentence_pair=True))
    numbers["config"] = dict(_SMALL, bottleneck_dim=192, feed_forward_dim=512)
    return _paper("mobilebert.tiny_teacher", **{**_TINY, **numbers})


def tiny() -> Recipe:
    """A small version of transfer and base for two CPU cores; the teacher is trained first or given as teacher=."""
    return _paper(
        "mobilebert.tiny",
        **{
            **_TINY,
            "steps": 1_500,
            "config": dict(_SMALL, bottleneck_dim=64, feed_forward_dim=256, num_feed_forwards=2),
            "optimizer_class": "ProgressiveAdamW",
            "optimizer": dict(TINY_ADAM, transfer_steps=300),
            "objective_options": dict(strategy="progressive", transfer_steps=300),
            "teacher": "mobilebert.tiny_teacher",
        },
    )
