"""ModernBERT's three stages (Warner et al. 2024, arXiv 2412.13663, table 3 and the published configurations).

The paper counts tokens. They are converted to steps here, assuming full rows.
"""

from .recipe import TINY_RUN, TINY_SIZE, Recipe

_ADAM = dict(weight_decay=1e-5, beta_1=0.9, beta_2=0.98, epsilon=1e-6)


def _paper(name: str, size: str, **changes) -> Recipe:
    numbers = dict(
        backbone=size,
        optimizer_class="StableAdamW",
        optimizer=_ADAM,
        data=dict(rows="packed", rule="modernbert", mask_rate=0.3),
        held_out=dict(mask_rate=0.15),
        dtype="mixed_bfloat16",
    )
    return Recipe(name=name, **{**numbers, **changes})


def base() -> Recipe:
    """Stage 1 of base: 1.719 trillion tokens in rows of 1,024, with a constant learning rate and growing batches."""
    # Batches grow from 768 to 4,608 rows within 50 billion tokens, with the same number of updates for each size. The
    # warm-up takes 3 billion tokens.
    numbers = dict(batch_size=4_608, length=1_024, steps=375_240, config=dict(global_rope_theta=10_000.0))
    numbers |= dict(small_batches=tuple(768 * size for size in range(1, 6)), small_steps=4_240)
    return _paper("modernbert.base", "modernbert_base", schedule=dict(peak=8e-4, warmup=3_815, final=8e-4), **numbers)


def base_long() -> Recipe:
    """Stage 2 of base: 250 billion tokens in rows of 8,192; theta 160,000 in global layers."""
    numbers = dict(batch_size=576, length=8_192, steps=53_000, init_from="modernbert.base")
    numbers |= dict(config=dict(global_rope_theta=160_000.0))
    return _paper("modernbert.base_long", "modernbert_base", schedule=dict(peak=3e-4, warmup=0, final=3e-4), **numbers)


def base_decay() -> Recipe:
    """Stage 3 of base, 50 billion tokens, a learning rate that falls as 1 - sqrt: GLUE 88.4, BEIR 41.6."""
    numbers = dict(batch_size=576, length=8_192, steps=10_600, init_from="modernbert.base_long", average=4)
    schedule = dict(peak=3e-4, warmup=0, final=3e-7, shape="sqrt")
    return _paper("modernbert.base_decay", "modernbert_base", schedule=schedule, **numbers)


def large() -> Recipe:
    """Stage 1 of large: the first 900 billion tokens."""
    # Batches grow from 448 to 4,928 rows within 10 billion tokens. The warm-up takes 2 billion tokens. The paper starts
    # from the weights of base, tiled to the larger shapes.
    numbers = dict(batch_size=4_928, length=1_024, steps=180_180, config=dict(global_rope_theta=10_000.0))
    numbers |= dict(small_batches=tuple(448 * size for size in range(1, 11)), small_steps=396)
    return _paper("modernbert.large", "modernbert_large", schedule=dict(peak=5e-4, warmup=1_663, final=5e-4), **numbers)


def _later_large(name: str, init_from: str, **numbers) -> Recipe:
    """Settings after the first 900 billion tokens: a tenth of the learning rate and of the weight decay."""
    schedule, optimizer = dict(peak=5e-5, warmup=0, final=5e-5), dict(_ADAM, weight_decay=1e-6)
    numbers = dict(schedule=schedule, optimizer=optimizer, init_from=init_from) | numbers
    return _paper(name, "modernbert_large", **numbers)


def large_restart() -> Recipe:
    """Stage 1 of large: the last 800 billion tokens, after the loss stopped falling at the higher learning rate."""
    numbers = dict(batch_size=4_928, length=1_024, steps=158_500, config=dict(global_rope_theta=10_000.0))
    return _later_large("modernbert.large_restart", "modernbert.large", **numbers)


def large_long() -> Recipe:
    """Stage 2 of large: 250 billion tokens in rows of 8,192; theta 160,000 in global layers."""
    numbers = dict(batch_size=616, length=8_192, steps=49_500, config=dict(global_rope_theta=160_000.0))
    return _later_large("modernbert.large_long", "modernbert.large_restart", **numbers)


def large_decay() -> Recipe:
    """Stage 3 of large, 50 billion tokens, a learning rate that falls as 1 - sqrt: GLUE 90.4, BEIR 44.0."""
    # The paper uses the best of the last checkpoints, not their mean.
    numbers = dict(batch_size=624, length=8_192, steps=9_780)
    numbers |= dict(schedule=dict(peak=5e-5, warmup=0, final=5e-8, shape="sqrt"))
    return _later_large("modernbert.large_decay", "modernbert.large_long", **numbers)


def tiny() -> Recipe:
    """A small version of all stages for two CPU cores: packed rows, 30% masks, warm-up, constant rate, 1 - sqrt."""
    config = dict(TINY_SIZE, local_attention=32, attention_output_dropout=0.0)
    schedule = dict(peak=2e-3, warmup=200, decay_from=2_000, final=2e-6, shape="sqrt")
    run = dict(TINY_RUN, length=128, config=config, schedule=schedule, dtype="auto")
    return _paper("modernbert.tiny", "modernbert_base", **run)


def mini_en() -> Recipe:
    """6 layers, 256 wide, single sentences in packed rows of 128 tokens.

    `benchmarks/warm_start.py` makes a model to start from, with the token embeddings and the head of a BERT that was
    trained by `bert.mini_en` and `bert.mini_en_decay`.
    """
    # All layers attend to whole sentences. The learning rate is constant up to update 1,041 and then decays linearly.
    config = dict(num_layers=6, hidden_dim=256, num_heads=4, feed_forward_dim=384, max_length=128, global_every=1)
    config |= dict(global_rope_theta=10_000.0, initializer_range=0.05, attention_output_dropout=0.0)
    config |= dict(classifier_pooling="mean")
    schedule = dict(peak=1e-3, warmup=300, decay_from=1_041)
    data = dict(rows="packed", rule="modernbert", mask_rate=0.25, shares=(1.0, 0.0))
    run = dict(TINY_RUN, batch_size=8, length=128, steps=2_000, config=config, schedule=schedule, data=data)
    run |= dict(held_out=dict(mask_rate=0.2, shares=(1.0, 0.0)), dtype="auto")
    return _paper("modernbert.mini_en", "modernbert_base", **run)


def mini_en_long() -> Recipe:
    """The second stage of `saved_models/modernbert_mini_en`: one pass over its text, 100 minutes of one core."""
    # PyTorch is faster in bfloat16 than in float32 on processors that have instructions for it.
    schedule = dict(peak=1.2e-3, warmup=300, decay_from=5_000)
    changes = dict(name="modernbert.mini_en_long", init_from="modernbert.mini_en", dtype="mixed_bfloat16")
    changes |= dict(batch_size=16, steps=8_600, schedule=schedule, seed=2)
    return Recipe(**{**vars(mini_en()), **changes})


def mini_en_segments() -> Recipe:
    """The third stage of `saved_models/modernbert_mini_en`: one or two segments of several sentences in each row."""
    # Rows as in ELECTRA's code have the form of the inputs of fine-tuning: long texts, and pairs of texts.
    data = dict(rows="segments", mask_rate=0.25, shares=(1.0, 0.0))
    changes = dict(name="modernbert.mini_en_segments", init_from="modernbert.mini_en_long", data=data, steps=15_600)
    changes |= dict(schedule=dict(peak=1e-3, warmup=300, decay_from=2_000), seed=3)
    changes |= dict(held_out=dict(mask_rate=0.2, shares=(1.0, 0.0)))
    return Recipe(**{**vars(mini_en_long()), **changes})
