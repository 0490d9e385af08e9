"""GPT-2's runs (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2).

The paper uses batches of 512 rows of 1,024 tokens, and learning rates tuned on held-out text. Steps, learning rates and
decay here are taken from GPT-3 models of similar size (Brown et al. 2020, arXiv 2005.14165, table 2.1).
"""

from dataclasses import replace

from .data import CausalLMData, Phase
from .models import CausalLM, Pretraining
from .optimizers import AdamW, WarmupDecay
from .recipe import Recipe
from .tiny import LOCAL_START_TO_THE_LEFT, NO_DROPOUT, TINY, tiny_adam, tiny_phase


def _paper(name: str, size: str, peak: float) -> Recipe:
    schedule = WarmupDecay(peak, warmup=2_000, shape="cosine", final=peak / 10)
    return Recipe(
        name,
        Pretraining(size, objective=CausalLM()),
        CausalLMData(),
        (Phase(600_000, batch_size=512, length=1_024),),
        AdamW(schedule, weight_decay=0.1, beta_2=0.95, epsilon=1e-8, global_clipnorm=1.0),
        dtype="mixed_bfloat16",
    )


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
    model = Pretraining("gpt2_small", dict(TINY, embedding_dropout=0.0), CausalLM(), LOCAL_START_TO_THE_LEFT)
    return Recipe("gpt2.tiny", model, CausalLMData(), tiny_phase(), tiny_adam())


def mini_en() -> Recipe:
    """6 layers, 256 wide, rows of 128 tokens of English novels, on one core."""
    # PyTorch is faster in bfloat16 than in float32 on processors that have instructions for it.
    config = dict(NO_DROPOUT, embedding_dropout=0.0, num_layers=6, hidden_dim=256, num_heads=4, feed_forward_dim=1_024)
    config |= dict(max_length=128, initializer_range=0.05)
    return Recipe(
        "gpt2.mini_en",
        Pretraining("gpt2_small", config, CausalLM(), LOCAL_START_TO_THE_LEFT),
        CausalLMData(),
        tiny_phase(8_000, length=128),
        tiny_adam(1e-3, 300, decay_from=2_000),
        dtype="mixed_bfloat16",
    )


def mini_en_four_layers() -> Recipe:
    """The second stage of `saved_models/gpt2_mini_en`: four of the layers of `gpt2.mini_en`, trained further.

    `benchmarks.studies.shipped_models.fewer_layers` makes the model to start from.
    """
    first = mini_en()
    return replace(
        first,
        name="gpt2.mini_en_four_layers",
        model=replace(first.model, config=dict(first.model.config, num_layers=4), start=None),
        phases=tiny_phase(2_000, length=128),
        optimizer=tiny_adam(8e-4, 100),
        seed=1,
    )
