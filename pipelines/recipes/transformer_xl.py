"""Transformer-XL's runs (Dai et al. 2019, arXiv 1901.02860, and the official scripts).

The results were measured with a longer memory than in training, and with shorter segments.
"""

from .recipe import TINY_ADAM, TINY_RUN, TINY_SCHEDULE, Recipe


def _paper(name: str, size: str, **changes) -> Recipe:
    numbers = dict(
        backbone=size,
        optimizer=dict(weight_decay=0.0, beta_1=0.9, beta_2=0.999, epsilon=1e-8, global_clipnorm=0.25),
        objective="CausalLM",
        batches="StreamBatches",
        data=dict(lines=True),
        held_out=dict(batch_size=10),
    )
    return Recipe(name=name, **{**numbers, **changes})


def _evaluated(length: int, memory: int, clamp: int) -> dict:
    """Evaluation on segments of `length` tokens, where every token attends to `memory` tokens, distances clamped."""
    config = dict(memory_length=memory, clamp_length=clamp, same_length=True)
    return dict(evaluation_data=dict(length=length), evaluation_config=config)


def _cosine(warmup: int = 0) -> dict:
    return dict(peak=2.5e-4, warmup=warmup, decay_from="start", shape="cosine")


def wikitext103() -> Recipe:
    """WikiText-103, 151M parameters: perplexity 24.0."""
    numbers = dict(batch_size=60, length=150, steps=200_000, schedule=_cosine())
    numbers |= _evaluated(64, 640, 400)
    return _paper("transformer_xl.wikitext103", "transformer_xl_wikitext103", **numbers)


def wikitext103_large() -> Recipe:
    """WikiText-103, 257M parameters, adaptive embeddings: perplexity 18.3."""
    numbers = dict(batch_size=128, length=384, steps=4_000_000, schedule=_cosine(16_000))
    numbers |= _evaluated(128, 1_600, 1_000)
    return _paper("transformer_xl.wikitext103_large", "transformer_xl_wikitext103_large", **numbers)


def enwik8() -> Recipe:
    """enwik8, 41M parameters: 1.06 bits per character."""
    numbers = dict(batch_size=22, length=512, steps=400_000, schedule=_cosine(), data={})
    numbers |= _evaluated(80, 2_100, 820)
    return _paper("transformer_xl.enwik8", "transformer_xl_enwik8", **numbers)


def enwik8_large() -> Recipe:
    """enwik8, 277M parameters: 0.99 bits per character."""
    numbers = dict(batch_size=64, length=768, steps=400_000, schedule=_cosine(4_000), data={})
    numbers |= _evaluated(128, 3_800, 1_000)
    return _paper("transformer_xl.enwik8_large", "transformer_xl_enwik8_large", **numbers)


def tiny() -> Recipe:
    """A small version of wikitext103 for two CPU cores: streams, a memory of one segment, an adaptive softmax."""
    config = dict(num_layers=2, num_heads=2, head_dim=64, hidden_dim=128, feed_forward_dim=512)
    config |= dict(cutoffs=(1_000, 3_000), memory_length=64, initializer_range=0.04, dropout=0.0)
    run = dict(TINY_RUN, config=config, schedule=TINY_SCHEDULE, optimizer=TINY_ADAM, data={}, held_out={})
    return _paper("transformer_xl.tiny", "transformer_xl_wikitext103", **run)
