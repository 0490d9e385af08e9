"""GPT's run (Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", section 4.1)."""

from .data import CausalLMData, Phase
from .models import CausalLM, Pretraining
from .optimizers import AdamW, WarmupDecay
from .recipe import Recipe
from .tiny import LOCAL_START_TO_THE_LEFT, TINY, tiny_adam, tiny_phase


def base() -> Recipe:
    """GPT, 117M parameters: perplexity 18.4 on held-out books, GLUE 72.8."""
    return Recipe(
        "gpt.base",
        Pretraining("gpt", objective=CausalLM()),
        CausalLMData(),
        # 100 passes over the 800M words of BooksCorpus, about a billion pieces.
        (Phase(3_000_000, batch_size=64, length=512),),
        AdamW(WarmupDecay(2.5e-4, warmup=2_000, shape="cosine"), weight_decay=0.01, epsilon=1e-8),
    )


def tiny() -> Recipe:
    """A small version of base for two CPU cores."""
    model = Pretraining("gpt", dict(TINY, embedding_dropout=0.0), CausalLM(), LOCAL_START_TO_THE_LEFT)
    return Recipe("gpt.tiny", model, CausalLMData(), tiny_phase(), tiny_adam())
