"""ModernBERT's three stages (Warner et al. 2024, arXiv 2412.13663, table 3 and the published configurations).

The paper counts tokens. They are converted to steps here, assuming full rows.
"""

from dataclasses import replace

from kerasbert.data import RateSchedule, Tokens

from .data import MaskedLMData, Phase
from .models import Pretraining
from .optimizers import StableAdamW, WarmupDecay
from .recipe import Evaluation, Recipe
from .tiny import TINY_SIZE, tiny_phase

# Each token is selected independently, special tokens, too.
DATA = MaskedLMData("packed", Tokens(0.3, mask_special=True, count="independent"))


def _adam(schedule: WarmupDecay, weight_decay: float = 1e-5) -> StableAdamW:
    return StableAdamW(schedule, weight_decay=weight_decay, beta_2=0.98, epsilon=1e-6)


def _paper(name: str, size: str, theta: float | None, phases: tuple[Phase, ...], *, optimizer: StableAdamW, **changes):
    """A stage, with the base of the rotations in global layers."""
    config = {} if theta is None else dict(global_rope_theta=theta)
    held_out = Evaluation(data={"noise.rate": 0.15})
    parts = dict(data=DATA, phases=phases, optimizer=optimizer, held_out=held_out, dtype="mixed_bfloat16")
    return Recipe(name, Pretraining(size, config), **{**parts, **changes})


def _growing(sizes: int, step: int, updates: int, steps: int) -> tuple[Phase, ...]:
    """Batches of `step` rows, twice as many, and so on, with `updates` of each, before those of the full size."""
    phases = [Phase(updates, step * number, 1_024, seed=1 + number) for number in range(1, sizes)]
    return (*phases, Phase(steps - updates * len(phases), step * sizes, 1_024, seed=0))


def base() -> Recipe:
    """Stage 1 of base: 1.719 trillion tokens in rows of 1,024, with a constant learning rate and growing batches."""
    # Batches grow from 768 to 4,608 rows within 50 billion tokens, with the same number of updates for each size. The
    # warm-up takes 3 billion tokens.
    phases, optimizer = _growing(6, 768, 4_240, steps=375_240), _adam(WarmupDecay(8e-4, warmup=3_815, final=8e-4))
    return _paper("modernbert.base", "modernbert_base", 10_000.0, phases, optimizer=optimizer)


def base_long() -> Recipe:
    """Stage 2 of base: 250 billion tokens in rows of 8,192; theta 160,000 in global layers."""
    phases, optimizer = (Phase(53_000, 576, 8_192),), _adam(WarmupDecay(3e-4, final=3e-4))
    source = dict(optimizer=optimizer, init_from="modernbert.base")
    return _paper("modernbert.base_long", "modernbert_base", 160_000.0, phases, **source)


def base_decay() -> Recipe:
    """Stage 3 of base, 50 billion tokens, a learning rate that falls as 1 - sqrt: GLUE 88.4, BEIR 41.6."""
    phases, optimizer = (Phase(10_600, 576, 8_192),), _adam(WarmupDecay(3e-4, final=3e-7, shape="sqrt"))
    source = dict(optimizer=optimizer, init_from="modernbert.base_long", average=4)
    return _paper("modernbert.base_decay", "modernbert_base", None, phases, **source)


def large() -> Recipe:
    """Stage 1 of large: the first 900 billion tokens."""
    # Batches grow from 448 to 4,928 rows within 10 billion tokens. The warm-up takes 2 billion tokens. The paper starts
    # from the weights of base, tiled to the larger shapes.
    phases, optimizer = _growing(11, 448, 396, steps=180_180), _adam(WarmupDecay(5e-4, warmup=1_663, final=5e-4))
    return _paper("modernbert.large", "modernbert_large", 10_000.0, phases, optimizer=optimizer)


# After the first 900 billion tokens: a tenth of the learning rate and of the weight decay.


def large_restart() -> Recipe:
    """Stage 1 of large: the last 800 billion tokens, after the loss stopped falling at the higher learning rate."""
    phases, optimizer = (Phase(158_500, 4_928, 1_024),), _adam(WarmupDecay(5e-5, final=5e-5), 1e-6)
    source = dict(optimizer=optimizer, init_from="modernbert.large")
    return _paper("modernbert.large_restart", "modernbert_large", 10_000.0, phases, **source)


def large_long() -> Recipe:
    """Stage 2 of large: 250 billion tokens in rows of 8,192; theta 160,000 in global layers."""
    phases, optimizer = (Phase(49_500, 616, 8_192),), _adam(WarmupDecay(5e-5, final=5e-5), 1e-6)
    source = dict(optimizer=optimizer, init_from="modernbert.large_restart")
    return _paper("modernbert.large_long", "modernbert_large", 160_000.0, phases, **source)


def large_decay() -> Recipe:
    """Stage 3 of large, 50 billion tokens, a learning rate that falls as 1 - sqrt: GLUE 90.4, BEIR 44.0."""
    # The paper uses the best of the last checkpoints, not their mean.
    phases, optimizer = (Phase(9_780, 624, 8_192),), _adam(WarmupDecay(5e-5, final=5e-8, shape="sqrt"), 1e-6)
    source = dict(optimizer=optimizer, init_from="modernbert.large_long")
    return _paper("modernbert.large_decay", "modernbert_large", None, phases, **source)


def tiny() -> Recipe:
    """A small version of all stages for two CPU cores: packed rows, 30% masks, warm-up, constant rate, 1 - sqrt."""
    return Recipe(
        "modernbert.tiny",
        Pretraining("modernbert_base", dict(TINY_SIZE, local_attention=32, attention_output_dropout=0.0)),
        DATA,
        tiny_phase(length=128),
        _adam(WarmupDecay(2e-3, warmup=200, decay_from=2_000, final=2e-6, shape="sqrt")),
        held_out=Evaluation(data={"noise.rate": 0.15}),
    )


def mini_en() -> Recipe:
    """6 layers, 256 wide, single sentences in packed rows of 128 tokens.

    `benchmarks.studies.shipped_models.warm_start` makes a model to start from, with the token embeddings and the head
    of a BERT that was trained by `bert.mini_en` and `bert.mini_en_decay`.
    """
    # All layers attend to whole sentences. The learning rate is constant up to update 1,041 and then decays linearly.
    config = dict(num_layers=6, hidden_dim=256, num_heads=4, feed_forward_dim=384, max_length=128, global_every=1)
    config |= dict(global_rope_theta=10_000.0, initializer_range=0.05, attention_output_dropout=0.0)
    config |= dict(classifier_pooling="mean")
    return Recipe(
        "modernbert.mini_en",
        Pretraining("modernbert_base", config),
        replace(DATA, noise=replace(DATA.noise, rate=0.25, shares=(1.0, 0.0))),
        tiny_phase(2_000, 8, 128),
        _adam(WarmupDecay(1e-3, warmup=300, decay_from=1_041)),
        held_out=Evaluation(data={"noise.rate": 0.2}),
    )


def mini_en_long() -> Recipe:
    """The second stage of `saved_models/modernbert_mini_en`: one pass over its text, 100 minutes of one core."""
    # PyTorch is faster in bfloat16 than in float32 on processors that have instructions for it.
    return replace(
        mini_en(),
        name="modernbert.mini_en_long",
        phases=tiny_phase(8_600, 16, 128),
        optimizer=_adam(WarmupDecay(1.2e-3, warmup=300, decay_from=5_000)),
        dtype="mixed_bfloat16",
        seed=2,
        init_from="modernbert.mini_en",
    )


def mini_en_segments() -> Recipe:
    """The third stage of `saved_models/modernbert_mini_en`: one or two segments of several sentences in each row."""
    return replace(
        mini_en_long(),
        name="modernbert.mini_en_segments",
        # Rows as in ELECTRA's code have the form of the inputs of fine-tuning: long texts, and pairs of texts.
        data=MaskedLMData("segments", Tokens(0.25, shares=(1.0, 0.0))),
        phases=tiny_phase(15_600, 16, 128),
        optimizer=_adam(WarmupDecay(1e-3, warmup=300, decay_from=2_000)),
        seed=3,
        init_from="modernbert.mini_en_long",
    )


def mini_en_simple() -> Recipe:
    """The fourth stage of `saved_models/modernbert_mini_en`: ten million words, almost twice, 77 minutes of two cores.

    `benchmarks.studies.shipped_models.simple_text` writes the text: modern and simple English, and novels.
    """
    return replace(
        mini_en_long(),
        name="modernbert.mini_en_simple",
        # A model is asked about one masked word at a time, so the last batches have few masks.
        data=MaskedLMData("packed", RateSchedule(Tokens(0.3, shares=(1.0, 0.0)), final=0.15)),
        phases=tiny_phase(13_000, 16, 128),
        optimizer=_adam(WarmupDecay(1.2e-3, warmup=300, decay_from=6_500)),
        seed=4,
        init_from="modernbert.mini_en_segments",
        held_out=Evaluation(data={"noise.noise.rate": 0.15}),
    )
