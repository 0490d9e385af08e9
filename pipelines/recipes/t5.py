"""T5's runs (Raffel et al. 2019, arXiv 1910.10683, sections 3 and 4), version 1.1 and mT5 (arXiv 2010.11934)."""

from dataclasses import replace

from kerasbert.data import Denoising, DenoisingLayout

from .data import DenoisingData, Mixing, PairData, Phase, TextAndTasks
from .models import CausalLM, Objective, Pretraining, Seq2SeqLM
from .optimizers import Adafactor, RootDecay, WarmupDecay
from .recipe import Recipe
from .tiny import tiny_phase

_OBJECTIVE = Seq2SeqLM(z_loss=1e-4)
_BASELINE = Phase(2**19, batch_size=128, length=512)
_FINAL = Phase(1_000_000, batch_size=2_048, length=512)


def _denoising(objective: str = "random_spans", layout: str = "encoder_decoder", **rows) -> DenoisingData:
    """15% of the tokens are noise, random spans have a mean length of 3."""
    return DenoisingData(Denoising(objective, rate=0.15, mean_span=3.0), DenoisingLayout(layout, **rows))


_SPANS = _denoising()


def _paper(
    name: str,
    size: str = "t5_base",
    data: DenoisingData | TextAndTasks = _SPANS,
    phase: Phase = _BASELINE,
    objective: Objective = _OBJECTIVE,
    **config,
) -> Recipe:
    """The baseline: 2^19 steps of 2^16 tokens, rate 1 / sqrt(max(n, 10,000))."""
    model = Pretraining(size, config, objective)
    return Recipe(f"t5.{name}", model, data, (phase,), Adafactor(RootDecay(0.01, warmup=10_000, flat=True)))


def base() -> Recipe:
    """The baseline with random spans of mean length 3: GLUE 83.49, SQuAD EM 81.84, CNN/DM ROUGE-2 19.62."""
    return _paper("base")


def small() -> Recipe:
    """T5-small, 60M parameters, on text alone, with as many rows as in mixture_small: 1M steps of 2,048."""
    return _paper("small", "t5_small", phase=_FINAL)


def large() -> Recipe:
    """T5-large, 770M parameters, on text alone, with as many rows as in mixture_large: 1M steps of 2,048."""
    return _paper("large", "t5_large", phase=_FINAL)


def prefix_lm() -> Recipe:
    """Table 4, prefix language modeling: GLUE 80.69, SQuAD EM 77.99."""
    return _paper("prefix_lm", data=_denoising("prefix_lm"))


def bert_style() -> Recipe:
    """Table 4, BERT-style denoising of the whole text: GLUE 82.96, SQuAD EM 80.65."""
    return _paper("bert_style", data=_denoising("bert"))


def deshuffling() -> Recipe:
    """Table 4, deshuffling: GLUE 73.17, SQuAD EM 67.61."""
    return _paper("deshuffling", data=_denoising("deshuffling"))


def mass_style() -> Recipe:
    """Table 5, MASS-style: no random tokens; GLUE 82.32, SQuAD EM 80.10."""
    return _paper("mass_style", data=_denoising("mass"))


def replace_spans() -> Recipe:
    """Table 5, the baseline: adjacent corrupted tokens become one sentinel; GLUE 83.28, SQuAD EM 80.88."""
    return _paper("replace_spans", data=_denoising("replace_spans"))


def drop_tokens() -> Recipe:
    """Table 5, corrupted tokens are dropped: GLUE 84.44, SQuAD EM 80.52."""
    return _paper("drop_tokens", data=_denoising("drop_tokens"))


def shared() -> Recipe:
    """Table 2, encoder and decoder share their weights: GLUE 82.81."""
    return _paper("shared", data=_denoising("replace_spans"), architecture="shared")


def language_model() -> Recipe:
    """Table 2, a decoder-only model that predicts every token: GLUE 73.78."""
    data = _denoising("lm", "causal")
    return _paper("language_model", data=data, objective=CausalLM(), architecture="language_model")


def prefix_language_model() -> Recipe:
    """Table 2, a decoder-only model with full attention on its prefix: GLUE 79.68."""
    data = _denoising("prefix_lm", "prefix")
    return _paper("prefix_language_model", data=data, objective=CausalLM(), architecture="prefix_language_model")


def _multitask(
    objective: str, text_examples: int, limit: float, exponent: float = 1.0, target_length: int = 512
) -> TextAndTasks:
    """Multi-task training on a corpus named "text" and one corpus per task, whose documents are (input, target) lines.

    `kerasbert.data.text_to_text` defines the formats, and `parallel_documents` creates the documents. Targets have up
    to 512 tokens, as in the paper. With random spans, the targets of text need only 114, but all rows of a batch have
    the same length.
    """
    text = _denoising(objective, target_length=target_length)
    tasks = PairData(target_length=target_length, full_width=True)
    return TextAndTasks(text, tasks, text_examples, mixing=Mixing(exponent, limit))


def multitask() -> Recipe:
    """Section 3.5.3: all tasks and text together, sizes capped at 2^19: GLUE 81.42, and 83.11 after fine-tuning."""
    # Text is larger than the cap.
    return _paper("multitask", data=_multitask("replace_spans", 2**19, limit=2.0**19))


def multitask_temperature() -> Recipe:
    """Section 3.5.2: mixing temperature 2, sizes capped at 2^21: GLUE 81.90."""
    data = _multitask("replace_spans", 2**21, limit=2.0**21, exponent=0.5)
    return _paper("multitask_temperature", data=data)


def _mixture(size: str, examples: int) -> Recipe:
    """A final model of section 3.7: all tasks, and text with random spans. Text counts as `examples` examples.

    Sizes are capped at 1M, which only concerns English-French and English-German text, because all other tasks are
    smaller. Scores are test set scores after fine-tuning on each task.
    """
    return _paper(f"mixture_{size}", f"t5_{size}", _multitask("random_spans", examples, limit=1e6), _FINAL)


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


def v1_1_base() -> Recipe:
    """T5 1.1-base: gated GELU, a separate output layer, no dropout, only C4; 1M steps of 2,048 rows."""
    return _paper("v1_1_base", "t5_v1_1_base", phase=_FINAL, dropout=0.0)


def mt5_base() -> Recipe:
    """mT5-base, 101 languages sampled with exponent 0.3, rows of 1,024 tokens: XNLI 75.4 (zero-shot)."""
    data = replace(_denoising(), mixing=Mixing(exponent=0.3))
    phase = Phase(1_000_000, batch_size=1_024, length=1_024)
    return _paper("mt5_base", "mt5_base", data, phase, dropout=0.0)


def _tiny(
    name: str,
    data: DenoisingData | TextAndTasks = _SPANS,
    steps: int = 2_000,
    objective: Objective = _OBJECTIVE,
    **config,
) -> Recipe:
    size = dict(num_layers=2, hidden_dim=128, num_heads=2, feed_forward_dim=512, dropout=0.0)
    model = Pretraining("t5_small", dict(size, **config), objective)
    # At a width of 128, learning is faster if Adafactor's relative steps decay during the run.
    optimizer = Adafactor(WarmupDecay(0.02, warmup=100, final=1e-3))
    return Recipe(f"t5.{name}", model, data, tiny_phase(steps), optimizer)


def tiny() -> Recipe:
    """A small version of base for two CPU cores: random spans. After 2,000 steps it is worse than bigrams."""
    return _tiny("tiny", steps=6_000)


def tiny_prefix_lm() -> Recipe:
    """A small version of prefix_lm for two CPU cores."""
    return _tiny("tiny_prefix_lm", _denoising("prefix_lm"), 4_000)


def tiny_bert_style() -> Recipe:
    """A small version of bert_style for two CPU cores."""
    return _tiny("tiny_bert_style", _denoising("bert"), 4_000)


def tiny_mass_style() -> Recipe:
    """A small version of mass_style for two CPU cores."""
    return _tiny("tiny_mass_style", _denoising("mass"))


def tiny_deshuffling() -> Recipe:
    """A small version of deshuffling for two CPU cores."""
    return _tiny("tiny_deshuffling", _denoising("deshuffling"))


def tiny_replace_spans() -> Recipe:
    """A small version of replace_spans for two CPU cores. After 3,000 steps it is worse than token frequencies."""
    return _tiny("tiny_replace_spans", _denoising("replace_spans"), 8_000)


def tiny_drop_tokens() -> Recipe:
    """A small version of drop_tokens for two CPU cores. Nothing in the input shows where tokens are missing."""
    return _tiny("tiny_drop_tokens", _denoising("drop_tokens"), 8_000)


def tiny_multitask() -> Recipe:
    """A small version of multitask for two CPU cores, temperature 2: text counts as 20,000 examples."""
    return _tiny("tiny_multitask", _multitask("random_spans", 20_000, 10_000.0, 0.5, target_length=24), 6_000)


def tiny_language_model() -> Recipe:
    """A small version of language_model for two CPU cores."""
    data = _denoising("lm", "causal")
    return _tiny("tiny_language_model", data, objective=CausalLM(), architecture="language_model")


def tiny_prefix_language_model() -> Recipe:
    """A small version of prefix_language_model for two CPU cores."""
    data = _denoising("prefix_lm", "prefix")
    return _tiny("tiny_prefix_language_model", data, objective=CausalLM(), architecture="prefix_language_model")
