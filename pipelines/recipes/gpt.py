"""GPT's run (Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", section 4.1)."""

from .recipe import LOCAL_START_TO_THE_LEFT, TINY, TINY_ADAM, TINY_RUN, TINY_SCHEDULE, Recipe


def _paper(name: str, **changes) -> Recipe:
    numbers = dict(
        backbone="gpt",
        batch_size=64,
        length=512,
        # 100 passes over the 800M words of BooksCorpus, about a billion pieces.
        steps=3_000_000,
        schedule=dict(peak=2.5e-4, warmup=2_000, shape="cosine"),
        optimizer=dict(weight_decay=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-8),
        objective="CausalLM",
        batches="CausalLMBatches",
    )
    return Recipe(name=name, **{**numbers, **changes})


def base() -> Recipe:
    """GPT, 117M parameters: perplexity 18.4 on held-out books, GLUE 72.8."""
    return _paper("gpt.base")


def tiny() -> Recipe:
    """A small version of base for two CPU cores."""
    run = dict(TINY_RUN, config=dict(TINY, embedding_dropout=0.0), local_start=LOCAL_START_TO_THE_LEFT)
    return _paper("gpt.tiny", **run, schedule=TINY_SCHEDULE, optimizer=TINY_ADAM)
