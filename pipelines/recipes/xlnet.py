"""XLNet's runs (Yang et al. 2019, arXiv 1906.08237, appendix A.4, and the official code)."""

from .recipe import TINY, TINY_ADAM, TINY_RUN, TINY_SCHEDULE, Recipe


def _paper(name: str, size: str, **changes) -> Recipe:
    numbers = dict(
        backbone=size,
        batch_size=8_192,
        length=512,
        steps=500_000,
        config=dict(memory_length=384, reuse_length=256, bidirectional_data=True),
        schedule=dict(peak=4e-4, warmup=40_000, final=4e-7),  # the code's min_lr_ratio is 0.001
        # As in the code, Adam with weight decay has no bias correction.
        optimizer=dict(
            weight_decay=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-6, bias_correction=False, global_clipnorm=1.0
        ),
        objective="PermutationLM",
        batches="PermutationLMBatches",
        data=dict(
            reuse_length=256,
            bidirectional_data=True,
            partial_prediction=6,
            max_predictions=85,
            max_span=5,
            permutation_size=256,
        ),
    )
    return Recipe(name=name, **{**numbers, **changes})


def large() -> Recipe:
    """XLNet-large, 126 GB of text: RACE 85.4, SQuAD 2.0 F1 90.6, MNLI 90.8."""
    return _paper("xlnet.large", "xlnet_large")


def base() -> Recipe:
    """XLNet-base on BERT's text with BERT's batch size, K = 6: RACE 66.66, SQuAD 2.0 F1 80.98, MNLI 85.63."""
    schedule = dict(peak=1e-4, warmup=10_000, final=1e-7)
    return _paper("xlnet.base", "xlnet_base", batch_size=256, steps=1_000_000, schedule=schedule)


def tiny() -> Recipe:
    """A small version of base for two CPU cores: two streams, a memory, both directions."""
    config = dict(TINY, memory_length=32, reuse_length=32, bidirectional_data=True)
    data = dict(reuse_length=32, bidirectional_data=True, partial_prediction=6, max_span=5)
    run = dict(TINY_RUN, config=config, data=data, schedule=TINY_SCHEDULE, optimizer=TINY_ADAM)
    return _paper("xlnet.tiny", "xlnet_base", **run)
