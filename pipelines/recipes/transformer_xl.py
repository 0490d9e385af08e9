"""Transformer-XL's runs (Dai et al. 2019, arXiv 1901.02860, and the official scripts).

The results were measured with a longer memory than in training, and with shorter segments.
"""

from .data import Phase, StreamData
from .models import CausalLM, Pretraining
from .optimizers import AdamW, WarmupDecay
from .recipe import Evaluation, Recipe
from .tiny import tiny_adam, tiny_phase


def _paper(name: str, phase: Phase, evaluation: Evaluation, warmup: int = 0, lines: bool = False) -> Recipe:
    schedule = WarmupDecay(2.5e-4, warmup, decay_from="start", shape="cosine")
    return Recipe(
        f"transformer_xl.{name}",
        Pretraining(f"transformer_xl_{name}", objective=CausalLM()),
        StreamData(lines=lines),
        (phase,),
        AdamW(schedule, weight_decay=0.0, epsilon=1e-8, global_clipnorm=0.25),
        held_out=Evaluation(batch_size=10),
        evaluation=evaluation,
    )


def _evaluated(length: int, memory: int, clamp: int) -> Evaluation:
    """Evaluation on segments of `length` tokens, where every token attends to `memory` tokens, distances clamped."""
    return Evaluation(length=length, config=dict(memory_length=memory, clamp_length=clamp, same_length=True))


def wikitext103() -> Recipe:
    """WikiText-103, 151M parameters: perplexity 24.0."""
    return _paper("wikitext103", Phase(200_000, 60, 150), _evaluated(64, 640, 400), lines=True)


def wikitext103_large() -> Recipe:
    """WikiText-103, 257M parameters, adaptive embeddings: perplexity 18.3."""
    evaluation = _evaluated(128, 1_600, 1_000)
    return _paper("wikitext103_large", Phase(4_000_000, 128, 384), evaluation, warmup=16_000, lines=True)


def enwik8() -> Recipe:
    """enwik8, 41M parameters: 1.06 bits per character."""
    return _paper("enwik8", Phase(400_000, 22, 512), _evaluated(80, 2_100, 820))


def enwik8_large() -> Recipe:
    """enwik8, 277M parameters: 0.99 bits per character."""
    return _paper("enwik8_large", Phase(400_000, 64, 768), _evaluated(128, 3_800, 1_000), warmup=4_000)


def tiny() -> Recipe:
    """A small version of wikitext103 for two CPU cores: streams, a memory of one segment, an adaptive softmax."""
    config = dict(num_layers=2, num_heads=2, head_dim=64, hidden_dim=128, feed_forward_dim=512)
    config |= dict(cutoffs=(1_000, 3_000), memory_length=64, initializer_range=0.04, dropout=0.0)
    model = Pretraining("transformer_xl_wikitext103", config, CausalLM())
    return Recipe("transformer_xl.tiny", model, StreamData(), tiny_phase(), tiny_adam())
