"""GPT-2's runs (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2).

The paper uses batches of 512 rows of 1,024 tokens, and learning rates tuned on held-out text. Steps, learning rates and
decay here are taken from GPT-3 models of similar size (Brown et al. 2020, arXiv 2005.14165, table 2.1).
"""

from .recipe import LOCAL_START_TO_THE_LEFT, NO_DROPOUT, TINY, TINY_ADAM, TINY_RUN, TINY_SCHEDULE, Recipe


def _paper(name: str, size: str, peak: float, **changes) -> Recipe:
    numbers = dict(
        backbone=size,
        batch_size=512,
        length=1_024,
        steps=600_000,
        schedule=dict(peak=peak, warmup=2_000, shape="cosine", final=peak / 10),
        optimizer=dict(weight_decay=0.1, beta_1=0.9, beta_2=0.95, epsilon=1e-8, global_clipnorm=1.0),
        objective="CausalLM",
        batches="CausalLMBatches",
        dtype="mixed_bfloat16",
    )
    return Recipe(name=name, **{**numbers, **changes})


def small() -> Recipe:
    """GPT-2, 124M parameters: LAMBADA perplexity 35.13, WikiText-103 37.50."""
    return _paper("gpt2.small", "gpt2_small", 6e-4)


def medium() -> Recipe:
    """GPT-2, 355M parameters."""
    return _paper("gpt2.medium", "gpt2_medium", 3e-4)


def large() -> Recipe:
    """GPT-2, 774M parameters."""
    return _paper("gpt2.large", "gpt2_large", 2.5e-4)


def xl() -> Recipe:
    """GPT-2, 1.56B parameters: LAMBADA perplexity 8.63, WikiText-103 17.48."""
    return _paper("gpt2.xl", "gpt2_xl", 2e-4)


def tiny() -> Recipe:
    """A small version of small for two CPU cores."""
    config = dict(TINY, embedding_dropout=0.0)
    run = dict(TINY_RUN, config=config, local_start=LOCAL_START_TO_THE_LEFT, optimizer=TINY_ADAM, dtype="auto")
    return _paper("gpt2.tiny", "gpt2_small", 2e-3, schedule=TINY_SCHEDULE, **run)


def mini_en() -> Recipe:
    """6 layers, 256 wide, rows of 128 tokens of English novels, on one core."""
    # PyTorch is faster in bfloat16 than in float32 on processors that have instructions for it.
    config = dict(NO_DROPOUT, embedding_dropout=0.0, num_layers=6, hidden_dim=256, num_heads=4, feed_forward_dim=1_024)
    config |= dict(max_length=128, initializer_range=0.05)
    run = dict(TINY_RUN, length=128, steps=8_000, config=config, local_start=LOCAL_START_TO_THE_LEFT)
    run |= dict(optimizer=TINY_ADAM, schedule=dict(peak=1e-3, warmup=300, decay_from=2_000))
    return _paper("gpt2.mini_en", "gpt2_small", 1e-3, **run)


def mini_en_four_layers() -> Recipe:
    """The second stage of `saved_models/gpt2_mini_en`: four of the layers of `gpt2.mini_en`, trained further.

    `benchmarks/fewer_layers.py` makes the model to start from.
    """
    first = mini_en()
    changes = dict(name="gpt2.mini_en_four_layers", config=dict(first.config, num_layers=4), local_start={})
    changes |= dict(steps=2_000, schedule=dict(peak=8e-4, warmup=100), seed=1)
    return Recipe(**{**vars(first), **changes})
