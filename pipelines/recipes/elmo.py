"""ELMo's run (Peters et al. 2018, arXiv 1802.05365, section 3.4, and the code, bilm-tf).

Words are the tokens of the corpus. Each row begins with a zero state, whereas bilm-tf carries states from row to row.
"""

from .data import BidirectionalLMData, Phase
from .models import BidirectionalLM, Pretraining
from .optimizers import Adagrad, WarmupDecay
from .recipe import Recipe
from .tiny import tiny_adam, tiny_phase

_DATA = BidirectionalLMData(characters=True, lines=True)
_DTYPE = "float32"  # the cells of LSTMs add up over a row


def base() -> Recipe:
    """ELMo, 93.6M parameters without the output layer: perplexity 39.7, the mean of both directions."""
    return Recipe(
        "elmo.base",
        Pretraining("elmo", objective=BidirectionalLM()),
        _DATA,
        # 10 passes over the 768,648,884 words of the 1B Word Benchmark.
        (Phase(1_000_840, batch_size=384, length=20),),
        # The code minimizes 20 times the mean loss (20 words per row), clips its gradients G at norm 10, and
        # initializes Adagrad's accumulators with 1. The gradient of the mean is g = G / 20, so the clip norm is 10 /
        # 20. Adagrad's update is rate * G / sqrt(1 + sum G^2) = rate * g / sqrt(1 / 20^2 + sum g^2), so accumulators
        # start at 1 / 400. If they started at 1, the updates for small gradients would be 20 times smaller.
        Adagrad(WarmupDecay(0.2, final=0.2), initial_accumulator_value=1 / 400, global_clipnorm=0.5, epsilon=0.0),
        dtype=_DTYPE,
    )


def tiny() -> Recipe:
    """A small version of base for two CPU cores, with AdamW: few filters, width 64."""
    filters = ((1, 16), (2, 16), (3, 32), (4, 64))
    config = dict(filters=filters, num_highways=1, hidden_dim=64, cell_dim=256, dropout=0.0)
    model = Pretraining("elmo", config, BidirectionalLM())
    return Recipe("elmo.tiny", model, _DATA, tiny_phase(1_500, 32, 32), tiny_adam(3e-3, 100), dtype=_DTYPE)
