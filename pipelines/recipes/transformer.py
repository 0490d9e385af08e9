"""The Transformer's runs (Vaswani et al. 2017, arXiv 1706.03762, sections 5.2 to 5.4).

Corpora consist of pairs (see `kerasbert.data.parallel_documents`).
"""

from .recipe import TINY_RUN, Recipe


def _paper(name: str, size: str, hidden_dim: int, **changes) -> Recipe:
    numbers = dict(
        backbone=size,
        # The paper counts tokens, about 25,000 per side and batch. The recipe counts pairs, which have about 30 tokens.
        batch_size=832,
        length=256,
        schedule_class="InverseSquareRoot",
        schedule=dict(hidden_dim=hidden_dim, warmup=4_000),
        optimizer=dict(weight_decay=0.0, beta_1=0.9, beta_2=0.98, epsilon=1e-9),
        objective="Seq2SeqLM",
        objective_options=dict(label_smoothing=0.1),
        batches="PairBatches",
        data=dict(num_buckets=8),
    )
    return Recipe(name=name, **{**numbers, **changes})


def base() -> Recipe:
    """The base model, 65M parameters, WMT 2014: BLEU 27.3 to German, 38.1 to French."""
    return _paper("transformer.base", "transformer_base", 512, steps=100_000, average=5)


def big() -> Recipe:
    """The big model, 213M parameters, WMT 2014 to German: BLEU 28.4."""
    return _paper("transformer.big", "transformer_big", 1_024, steps=300_000, average=20)


def big_en_fr() -> Recipe:
    """The big model with less dropout, WMT 2014 to French: BLEU 41.8."""
    return _paper("transformer.big_en_fr", "transformer_big_en_fr", 1_024, steps=300_000, average=20)


def tiny() -> Recipe:
    """A small version of base for two CPU cores: pairs of captions."""
    config = dict(num_layers=2, hidden_dim=128, num_heads=4, feed_forward_dim=512, dropout=0.0)
    run = dict(TINY_RUN, batch_size=32, length=32, steps=1_500, config=config)
    schedule = dict(hidden_dim=128, warmup=400)
    return _paper("transformer.tiny", "transformer_base", 128, **dict(run, schedule=schedule))
