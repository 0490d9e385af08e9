"""Skip-gram with negative sampling (Mikolov et al. 2013, arXiv 1310.4546, and the tool's defaults)."""

from .recipe import Recipe


def _paper(name: str, **changes) -> Recipe:
    numbers = dict(
        dtype="float32",  # sums of a few products; half precision saves nothing
        backbone="google_news",
        # The tool uses 0.025 for one pair at a time. The mean over many pairs needs a higher learning rate.
        batch_size=1_024,
        length=1,
        steps=10_000_000,
        schedule=dict(peak=25.0, warmup=0, final=0.0025),
        optimizer_class="SGD",
        objective="SkipGram",
        batches="SkipGramBatches",
        data=dict(window=5, negatives=5, threshold=1e-5, rule="paper"),
    )
    return Recipe(name=name, **{**numbers, **changes})


def google_news() -> Recipe:
    """300 dimensions, 100 billion words. With 1,000 dimensions and 33 billion words: 72% of the phrase analogies."""
    return _paper("word_vectors.google_news")


def tiny() -> Recipe:
    """A small version for two CPU cores, with AdamW: 64 dimensions."""
    data = dict(window=5, negatives=5, threshold=1e-3, rule="code")
    run = dict(batch_size=1_024, steps=4_000, schedule=dict(peak=5e-3, warmup=100), optimizer_class="TransformerAdamW")
    return _paper("word_vectors.tiny", config=dict(hidden_dim=64), optimizer=dict(weight_decay=0.0), data=data, **run)
