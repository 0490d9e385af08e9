"""ELMo's run (Peters et al. 2018, arXiv 1802.05365, section 3.4, and the code, bilm-tf).

Words are the tokens of the corpus. Each row begins with a zero state, whereas bilm-tf carries states from row to row.
"""

from .recipe import TINY_ADAM, TINY_RUN, Recipe


def _paper(name: str, **changes) -> Recipe:
    numbers = dict(
        dtype="float32",  # the cells of LSTMs add up over a row
        backbone="elmo",
        batch_size=384,
        length=20,
        # 10 passes over the 768,648,884 words of the 1B Word Benchmark.
        steps=1_000_840,
        schedule=dict(peak=0.2, warmup=0, final=0.2),
        # The code minimises 20 times the mean loss (20 words per row), clips its gradients G at norm 10, and
        # initialises Adagrad's accumulators with 1. The gradient of the mean is g = G / 20, so the clip norm is 10 /
        # 20. Adagrad's update is rate * G / sqrt(1 + sum G^2) = rate * g / sqrt(1 / 20^2 + sum g^2), so accumulators
        # start at 1 / 400. If they started at 1, the updates for small gradients would be 20 times smaller.
        optimizer_class="Adagrad",
        optimizer=dict(initial_accumulator_value=1 / 400, global_clipnorm=0.5, epsilon=0.0),
        objective="BidirectionalLM",
        batches="BidirectionalLMBatches",
        data=dict(characters=True, lines=True),
    )
    return Recipe(name=name, **{**numbers, **changes})


def base() -> Recipe:
    """ELMo, 93.6M parameters without the output layer: perplexity 39.7, the mean of both directions."""
    return _paper("elmo.base")


def tiny() -> Recipe:
    """A small version of base for two CPU cores, with AdamW: few filters, width 64."""
    filters = ((1, 16), (2, 16), (3, 32), (4, 64))
    config = dict(filters=filters, num_highways=1, hidden_dim=64, cell_dim=256, dropout=0.0)
    run = dict(TINY_RUN, batch_size=32, length=32, steps=1_500, config=config, optimizer=TINY_ADAM)
    return _paper("elmo.tiny", **run, optimizer_class="TransformerAdamW", schedule=dict(peak=3e-3, warmup=100))
