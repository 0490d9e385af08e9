"""BERT's runs (Devlin et al. 2018, arXiv 1810.04805, appendix A.2, and the official code).

The sizes from tiny to medium are from Turc et al. 2019 (arXiv 1908.08962), and are pretrained like base.
"""

from .recipe import LOCAL_START, NO_DROPOUT, TINY_ADAM, Recipe


def _paper(name: str, size: str, **changes) -> Recipe:
    numbers = dict(
        backbone=size,
        batch_size=256,
        length=128,
        steps=1_000_000,
        # "We then train the rest 10% of the steps of sequence of 512 to learn the positional embeddings."
        long_length=512,
        long_steps=100_000,
        # As in the code, Adam has no bias correction, and the decay of the learning rate is counted from the first
        # step.
        schedule=dict(peak=1e-4, warmup=10_000, decay_from="start"),
        optimizer=dict(
            weight_decay=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-6, bias_correction=False, global_clipnorm=1.0
        ),
        objective_options=dict(sentence_pair=True),
        data=dict(sentence_pairs=True, static_masks=True, dupe_factor=10, mask_rate=0.15, short_sequence_rate=0.1),
    )
    return Recipe(name=name, **{**numbers, **changes})


def base() -> Recipe:
    """BERT-base: 110M parameters, 40 passes over 3.3 billion words."""
    return _paper("bert.base", "bert_base")


def large() -> Recipe:
    """BERT-large: 340M parameters, otherwise like base."""
    return _paper("bert.large", "bert_large")


def large_whole_words() -> Recipe:
    """The later checkpoints of BERT-large, whose masks cover whole words."""
    recipe = _paper("bert.large_whole_words", "bert_large")
    recipe.data["whole_words"] = True
    return recipe


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
    return _paper(
        "bert.tiny",
        "bert_tiny",
        batch_size=16,
        length=64,
        steps=2_000,
        long_length=0,
        long_steps=0,
        # 0.02 is suitable for a width of 768. With this width, the loss would stay on a plateau for thousands of steps.
        config=dict(NO_DROPOUT, initializer_range=0.08),
        local_start=LOCAL_START,
        schedule=dict(peak=1e-3, warmup=200, decay_from="start"),
        optimizer=TINY_ADAM,
    )


def _mini_en(name: str, **changes) -> Recipe:
    """A run on single sentences in which all targets are masked, as in BabyBERTa (Huebner et al. 2021)."""
    numbers = dict(
        batch_size=8,
        length=128,
        long_length=0,
        long_steps=0,
        config=dict(NO_DROPOUT, max_length=128, initializer_range=0.06),
        optimizer=TINY_ADAM,
        objective_options={},
        data=dict(rows="packed", mask_rate=0.2, shares=(0.9, 0.0)),
        held_out=dict(shares=(1.0, 0.0)),
    )
    return _paper(name, "bert_mini", **{**numbers, **changes})


def mini_en() -> Recipe:
    """4 layers of width 256, with a constant learning rate. `modernbert.mini_en` starts with its token embeddings.

    Each document of the corpus is one sentence. Several sentences are packed into a row of 128 tokens.
    """
    # Without local attention at the start, the loss stays near the unigram entropy for thousands of updates.
    start = dict(num_blocks=2, deviation=0.06)
    schedule = dict(peak=1e-3, warmup=500, final=1e-3)
    return _mini_en("bert.mini_en", steps=13_000, schedule=schedule, local_start=start)


def mini_en_decay() -> Recipe:
    """The second stage of mini_en, in which the learning rate decays to 1e-5."""
    schedule = dict(peak=1e-3, warmup=100, final=1e-5)
    return _mini_en("bert.mini_en_decay", steps=5_000, schedule=schedule, seed=1, init_from="bert.mini_en")


def mini_en_distilled() -> Recipe:
    """The first stage of `saved_models/bert_mini_en`: 6 layers that learn from `saved_models/modernbert_mini_en`.

    The loss is MobileBERT's: the outputs and the attention of each layer, and the probabilities of the hidden tokens.
    """
    # The teacher has the same tokenizer, width, and number of layers and heads.
    options = dict(strategy="auxiliary", feature_weight=10.0, mean_weight=0.0, variance_weight=0.0)
    config = dict(NO_DROPOUT, max_length=128, initializer_range=0.06, num_layers=6, feed_forward_dim=512)
    changes = dict(objective="KnowledgeTransfer", objective_options=options, teacher="modernbert.mini_en_segments")
    changes |= dict(from_teacher=dict(layers=()), config=config, dtype="mixed_bfloat16", batch_size=16)
    changes |= dict(data=dict(rows="packed", mask_rate=0.25, shares=(1.0, 0.0)), held_out=dict(mask_rate=0.2))
    schedule = dict(peak=1e-3, warmup=300, decay_from=2_000)
    return _mini_en("bert.mini_en_distilled", steps=9_000, schedule=schedule, seed=2, **changes)


def mini_en_distilled_segments() -> Recipe:
    """The second stage of `saved_models/bert_mini_en`: one or two segments of several sentences in each row."""
    first = mini_en_distilled()
    changes = dict(name="bert.mini_en_distilled_segments", init_from=first.name, from_teacher={})
    changes |= dict(data=dict(first.data, rows="segments"), steps=4_500, seed=3)
    changes |= dict(schedule=dict(peak=1e-3, warmup=200, decay_from=800))
    return Recipe(**{**vars(first), **changes})
