"""BERT's runs (Devlin et al. 2018, arXiv 1810.04805, appendix A.2, and the official code).

The sizes from tiny to medium are from Turc et al. 2019 (arXiv 1908.08962), and are pretrained like base.
"""

from dataclasses import replace

from kerasbert.data import SegmentPairs, Tokens, WholeWords
from kerasbert.objectives import TransferWeights

from .data import MaskedLMData, Phase
from .models import KnowledgeTransfer, LocalStart, Pretraining
from .optimizers import AdamW, WarmupDecay
from .recipe import Evaluation, Recipe
from .tiny import LOCAL_START, NO_DROPOUT, tiny_adam, tiny_phase

DATA = MaskedLMData(SegmentPairs(passes=10, short_sequence_rate=0.1), Tokens(0.15), static_masks=10)


def _paper(name: str, size: str, data: MaskedLMData = DATA) -> Recipe:
    return Recipe(
        name,
        Pretraining(size),
        data,
        # "We then train the rest 10% of the steps of sequence of 512 to learn the positional embeddings."
        (Phase(900_000, batch_size=256, length=128), Phase(100_000, batch_size=256, length=512)),
        # As in the code, Adam has no bias correction, and the decay of the learning rate is counted from the first
        # step.
        AdamW(
            WarmupDecay(1e-4, warmup=10_000, decay_from="start"),
            weight_decay=0.01,
            epsilon=1e-6,
            bias_correction=False,
            global_clipnorm=1.0,
        ),
    )


def base() -> Recipe:
    """BERT-base: 110M parameters, 40 passes over 3.3 billion words."""
    return _paper("bert.base", "bert_base")


def large() -> Recipe:
    """BERT-large: 340M parameters, otherwise like base."""
    return _paper("bert.large", "bert_large")


def large_whole_words() -> Recipe:
    """The later checkpoints of BERT-large, whose masks cover whole words."""
    return _paper("bert.large_whole_words", "bert_large", replace(DATA, noise=WholeWords(0.15)))


def medium() -> Recipe:
    """BERT-medium: 8 layers of width 512."""
    return _paper("bert.medium", "bert_medium")


def small() -> Recipe:
    """BERT-small: 4 layers of width 512."""
    return _paper("bert.small", "bert_small")


def mini() -> Recipe:
    """BERT-mini: 4 layers of width 256."""
    return _paper("bert.mini", "bert_mini")


def tiny() -> Recipe:
    """A small version of base for a laptop: 2 layers of width 128, 16 rows of 64 tokens, a higher learning rate."""
    # 0.02 is suitable for a width of 768. With this width, the loss would stay on a plateau for thousands of steps.
    model = Pretraining("bert_tiny", dict(NO_DROPOUT, initializer_range=0.08), start=LOCAL_START)
    return Recipe("bert.tiny", model, DATA, tiny_phase(), tiny_adam(1e-3, decay_from="start"))


def _mini_en(name: str, steps: int, schedule: WarmupDecay, **changes) -> Recipe:
    """A run on single sentences in which all targets are masked, as in BabyBERTa (Huebner et al. 2021)."""
    parts = dict(
        model=Pretraining("bert_mini", dict(NO_DROPOUT, max_length=128, initializer_range=0.06)),
        data=MaskedLMData("packed", Tokens(0.2, shares=(0.9, 0.0))),
        phases=tiny_phase(steps, 8, 128),
        optimizer=replace(tiny_adam(), schedule=schedule),
        held_out=Evaluation(data={"noise.shares": (1.0, 0.0)}),
    )
    return Recipe(name, **{**parts, **changes})


def mini_en() -> Recipe:
    """4 layers of width 256, with a constant learning rate. `modernbert.mini_en` starts with its token embeddings.

    Each document of the corpus is one sentence. Several sentences are packed into a row of 128 tokens.
    """
    recipe = _mini_en("bert.mini_en", 13_000, WarmupDecay(1e-3, warmup=500, final=1e-3))
    # Without local attention at the start, the loss stays near the unigram entropy for thousands of updates.
    return replace(recipe, model=replace(recipe.model, start=LocalStart(num_blocks=2, deviation=0.06)))


def mini_en_decay() -> Recipe:
    """The second stage of mini_en, in which the learning rate decays to 1e-5."""
    schedule = WarmupDecay(1e-3, warmup=100, final=1e-5)
    return _mini_en("bert.mini_en_decay", 5_000, schedule, seed=1, init_from="bert.mini_en")


def mini_en_distilled() -> Recipe:
    """The first stage of `saved_models/bert_mini_en`: 6 layers that learn from `saved_models/modernbert_mini_en`.

    The loss is MobileBERT's: the outputs and the attention of each layer, and the probabilities of the hidden tokens.
    """
    # The teacher has the same tokenizer, width, and number of layers and heads.
    weights = TransferWeights(features=10.0, means=0.0, variances=0.0)
    objective = KnowledgeTransfer(strategy="auxiliary", transfer_weights=weights, layers=())
    config = dict(NO_DROPOUT, max_length=128, initializer_range=0.06, num_layers=6, feed_forward_dim=512)
    return _mini_en(
        "bert.mini_en_distilled",
        9_000,
        WarmupDecay(1e-3, warmup=300, decay_from=2_000),
        model=Pretraining("bert_mini", config, objective),
        data=MaskedLMData("packed", Tokens(0.25, shares=(1.0, 0.0))),
        phases=tiny_phase(9_000, 16, 128),
        held_out=Evaluation(data={"noise.rate": 0.2}),
        dtype="mixed_bfloat16",
        seed=2,
        teacher="modernbert.mini_en_segments",
    )


def mini_en_distilled_segments() -> Recipe:
    """The second stage of `saved_models/bert_mini_en`: one or two segments of several sentences in each row."""
    first = mini_en_distilled()
    return replace(
        first,
        name="bert.mini_en_distilled_segments",
        init_from=first.name,
        data=replace(first.data, rows="segments"),
        phases=tiny_phase(4_500, 16, 128),
        optimizer=replace(first.optimizer, schedule=WarmupDecay(1e-3, warmup=200, decay_from=800)),
        seed=3,
    )
