"""T5's runs (Raffel et al. 2019, arXiv 1910.10683, sections 3 and 4), version 1.1 and mT5 (arXiv 2010.11934)."""

from .recipe import TINY_RUN, Recipe

_ADAFACTOR = dict(beta_2_decay=-0.8, clip_threshold=1.0, epsilon_1=1e-30, epsilon_2=1e-3)


def _paper(name: str, size: str = "t5_base", objective: str = "random_spans", **changes) -> Recipe:
    """The baseline: 2^19 steps of 2^16 tokens, rate 1 / sqrt(max(n, 10,000)), spans of mean length 3, 15% noise."""
    noise = {"random_spans": dict(rate=0.15, mean_span=3.0), "prefix_lm": {}, "deshuffling": {}, "lm": {}}
    numbers = dict(
        backbone=size,
        batch_size=128,
        length=512,
        steps=2**19,
        schedule_class="RootDecay",
        schedule=dict(peak=0.01, warmup=10_000, flat=True),
        optimizer_class="TransformerAdafactor",
        optimizer=_ADAFACTOR,
        objective="Seq2SeqLM",
        objective_options=dict(z_loss=1e-4),
        batches="DenoisingBatches",
        data=dict(objective=objective, **noise.get(objective, dict(rate=0.15))),
    )
    return Recipe(name=name, **{**numbers, **changes})


def base() -> Recipe:
    """The baseline with random spans of mean length 3: GLUE 83.49, SQuAD EM 81.84, CNN/DM ROUGE-2 19.62."""
    return _paper("t5.base")


def small() -> Recipe:
    """T5-small, 60M parameters, on text alone, with as many rows as in mixture_small: 1M steps of 2,048."""
    return _paper("t5.small", "t5_small", batch_size=2_048, steps=1_000_000)


def large() -> Recipe:
    """T5-large, 770M parameters, on text alone, with as many rows as in mixture_large: 1M steps of 2,048."""
    return _paper("t5.large", "t5_large", batch_size=2_048, steps=1_000_000)


def prefix_lm() -> Recipe:
    """Table 4, prefix language modelling: GLUE 80.69, SQuAD EM 77.99."""
    return _paper("t5.prefix_lm", objective="prefix_lm")


def bert_style() -> Recipe:
    """Table 4, BERT-style denoising of the whole text: GLUE 82.96, SQuAD EM 80.65."""
    return _paper("t5.bert_style", objective="bert")


def deshuffling() -> Recipe:
    """Table 4, deshuffling: GLUE 73.17, SQuAD EM 67.61."""
    return _paper("t5.deshuffling", objective="deshuffling")


def mass_style() -> Recipe:
    """Table 5, MASS-style: no random tokens; GLUE 82.32, SQuAD EM 80.10."""
    return _paper("t5.mass_style", objective="mass")


def replace_spans() -> Recipe:
    """Table 5, the baseline: adjacent corrupted tokens become one sentinel; GLUE 83.28, SQuAD EM 80.88."""
    return _paper("t5.replace_spans", objective="replace_spans")


def drop_tokens() -> Recipe:
    """Table 5, corrupted tokens are dropped: GLUE 84.44, SQuAD EM 80.52."""
    return _paper("t5.drop_tokens", objective="drop_tokens")


def shared() -> Recipe:
    """Table 2, encoder and decoder share their weights: GLUE 82.81."""
    return _paper("t5.shared", objective="replace_spans", config=dict(architecture="shared"))


def language_model() -> Recipe:
    """Table 2, a decoder-only model that predicts every token: GLUE 73.78."""
    recipe = _paper(
        "t5.language_model", objective="lm", objective_options={}, config=dict(architecture="language_model")
    )
    return _causal(recipe, "causal")


def prefix_language_model() -> Recipe:
    """Table 2, a decoder-only model with full attention on its prefix: GLUE 79.68."""
    config = dict(architecture="prefix_language_model")
    return _causal(_paper("t5.prefix_language_model", objective="prefix_lm", objective_options={}, config=config))


def _multitask(name: str, target_length: int = 512, **changes) -> Recipe:
    """Multi-task training on a corpus named "text" and one corpus per task, whose documents are (input, target) lines.

    `kerasbert.data.text_to_text` defines the formats, and `parallel_documents` creates the documents. Targets have up
    to 512 tokens, as in the paper. With random spans, the targets of text need only 114, but all rows of a batch have
    the same length.
    """
    recipe = _paper(name, **changes)
    data = {**recipe.data, "target_length": target_length}
    task = dict(target_length=target_length, full_width=True)
    numbers = dict(data=data, pairs="PairBatches", pair_data=task, unlabelled="text")
    return Recipe(**{**vars(recipe), **numbers})


def multitask() -> Recipe:
    """Section 3.5.3: all tasks and text together, sizes capped at 2^19: GLUE 81.42, and 83.11 after fine-tuning."""
    sizes = dict(sampling_limit=2.0**19, unlabelled_examples=2**19)  # text is larger than the cap
    return _multitask("t5.multitask", objective="replace_spans", **sizes)


def multitask_temperature() -> Recipe:
    """Section 3.5.2: mixing temperature 2, sizes capped at 2^21: GLUE 81.90."""
    sizes = dict(sampling_exponent=0.5, sampling_limit=2.0**21, unlabelled_examples=2**21)
    return _multitask("t5.multitask_temperature", objective="replace_spans", **sizes)


def _mixture(size: str, examples: int) -> Recipe:
    """A final model of section 3.7: all tasks, and text with random spans. Text counts as `examples` examples.

    Sizes are capped at 1M, which only concerns English-French and English-German text, because all other tasks are
    smaller. Scores are test set scores after fine-tuning on each task.
    """
    numbers = dict(batch_size=2_048, steps=1_000_000, sampling_limit=1e6, unlabelled_examples=examples)
    return _multitask(f"t5.mixture_{size}", size=f"t5_{size}", **numbers)


def mixture_small() -> Recipe:
    """T5-small, 60M parameters, tasks and text: GLUE 77.4, SuperGLUE 63.3."""
    return _mixture("small", 710_000)


def mixture_base() -> Recipe:
    """T5-base, 220M parameters, tasks and text: GLUE 82.7, SuperGLUE 76.2."""
    return _mixture("base", 2_620_000)


def mixture_large() -> Recipe:
    """T5-large, 770M parameters, tasks and text: GLUE 86.4, SuperGLUE 82.3."""
    return _mixture("large", 8_660_000)


def mixture_3b() -> Recipe:
    """T5-3B, tasks and text: GLUE 88.5, SuperGLUE 86.4."""
    return _mixture("3b", 33_500_000)


def mixture_11b() -> Recipe:
    """T5-11B, tasks and text: GLUE 90.3, SuperGLUE 88.9."""
    return _mixture("11b", 133_000_000)


def _causal(recipe: Recipe, layout: str = "prefix") -> Recipe:
    values = {**vars(recipe), "objective": "CausalLM", "data": {**recipe.data, "layout": layout}}
    return Recipe(**values)


def v1_1_base() -> Recipe:
    """T5 1.1-base: gated GELU, a separate output layer, no dropout, only C4; 1M steps of 2,048 rows."""
    return _paper("t5.v1_1_base", "t5_v1_1_base", batch_size=2_048, steps=1_000_000, config=dict(dropout=0.0))


def mt5_base() -> Recipe:
    """mT5-base, 101 languages sampled with exponent 0.3, rows of 1,024 tokens: XNLI 75.4 (zero-shot)."""
    numbers = dict(batch_size=1_024, length=1_024, steps=1_000_000, config=dict(dropout=0.0), sampling_exponent=0.3)
    return _paper("t5.mt5_base", "mt5_base", **numbers)


# At a width of 128, learning is faster if Adafactor's relative steps decay during the run.
_TINY = dict(
    TINY_RUN,
    schedule_class="WarmupDecay",
    schedule=dict(peak=0.02, warmup=100, final=1e-3),
)
_TINY_CONFIG = dict(num_layers=2, hidden_dim=128, num_heads=2, feed_forward_dim=512, dropout=0.0)


def _tiny(name: str, objective: str = "random_spans", **changes) -> Recipe:
    config = {**_TINY_CONFIG, **changes.pop("config", {})}
    return _paper(f"t5.{name}", "t5_small", objective, config=config, **{**_TINY, **changes})


def tiny() -> Recipe:
    """A small version of base for two CPU cores: random spans. After 2,000 steps it is worse than bigrams."""
    return _tiny("tiny", steps=6_000)


def tiny_prefix_lm() -> Recipe:
    """A small version of prefix_lm for two CPU cores."""
    return _tiny("tiny_prefix_lm", "prefix_lm", steps=4_000)


def tiny_bert_style() -> Recipe:
    """A small version of bert_style for two CPU cores."""
    return _tiny("tiny_bert_style", "bert", steps=4_000)


def tiny_mass_style() -> Recipe:
    """A small version of mass_style for two CPU cores."""
    return _tiny("tiny_mass_style", "mass")


def tiny_deshuffling() -> Recipe:
    """A small version of deshuffling for two CPU cores."""
    return _tiny("tiny_deshuffling", "deshuffling")


def tiny_replace_spans() -> Recipe:
    """A small version of replace_spans for two CPU cores. After 3,000 steps it is worse than token frequencies."""
    return _tiny("tiny_replace_spans", "replace_spans", steps=8_000)


def tiny_drop_tokens() -> Recipe:
    """A small version of drop_tokens for two CPU cores. Nothing in the input shows where tokens are missing."""
    return _tiny("tiny_drop_tokens", "drop_tokens", steps=8_000)


def tiny_multitask() -> Recipe:
    """A small version of multitask for two CPU cores, temperature 2: text counts as 20,000 examples."""
    sizes = dict(sampling_exponent=0.5, sampling_limit=10_000.0, unlabelled_examples=20_000)
    run = dict(_TINY, size="t5_small", config=_TINY_CONFIG, steps=6_000)
    return _multitask("t5.tiny_multitask", 24, **run, **sizes)


def tiny_language_model() -> Recipe:
    """A small version of language_model for two CPU cores."""
    config = dict(architecture="language_model")
    return _causal(_tiny("tiny_language_model", "lm", objective_options={}, config=config), "causal")


def tiny_prefix_language_model() -> Recipe:
    """A small version of prefix_language_model for two CPU cores."""
    config = dict(architecture="prefix_language_model")
    recipe = _tiny("tiny_prefix_language_model", "prefix_lm", objective_options={}, config=config)
    return _causal(recipe)
