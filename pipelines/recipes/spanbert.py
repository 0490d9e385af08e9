"""SpanBERT's runs (Joshi et al. 2019, arXiv 1907.10529, section 4, and the published command)."""

from kerasbert.data import Spans

from .data import Phase, SpanMaskData
from .models import MaskedLM, Objective, Pretraining, SpanBoundary
from .optimizers import AdamW, WarmupDecay
from .recipe import Recipe
from .tiny import LOCAL_START, TINY, tiny_adam, tiny_phase

OBJECTIVE = SpanBoundary(boundary_weight=1.0)
DATA = SpanMaskData(noise=Spans(0.15, geometric=0.2, longest=10), max_targets=15)


def _paper(name: str, size: str, objective: Objective = OBJECTIVE, data: SpanMaskData = DATA) -> Recipe:
    schedule = WarmupDecay(1e-4, warmup=10_000, decay_from="start")
    return Recipe(
        name,
        Pretraining(size, objective=objective),
        data,
        (Phase(2_400_000, batch_size=256, length=512),),
        # The weight decay of 0.1 is from the text of the paper. It applies to all variables.
        AdamW(schedule, weight_decay=0.01, epsilon=1e-8, global_clipnorm=1.0, no_decay=()),
    )


def base() -> Recipe:
    """SpanBERT-base: SQuAD 1.1 F1 92.4 (dev), coreference 77.4."""
    return _paper("spanbert.base", "bert_base_cased")


def large() -> Recipe:
    """SpanBERT-large: SQuAD 1.1 F1 94.6, SQuAD 2.0 88.7, coreference 79.6, GLUE 82.8."""
    return _paper("spanbert.large", "bert_large_cased")


def _scheme(name: str, noise: Spans) -> Recipe:
    """A run with a given masking scheme on single sequences, without the boundary objective."""
    return _paper(name, "bert_large_cased", MaskedLM(), SpanMaskData(noise=noise, boundary=False))


def one_sequence() -> Recipe:
    """The paper's BERT-1seq, which masks subword pieces: SQuAD 1.1 F1 93.3, GLUE 81.7."""
    return _scheme("spanbert.one_sequence", Spans(0.15, longest=1, words=False))


def words() -> Recipe:
    """Masks whole words, as in table 6, but on single sequences."""
    return _scheme("spanbert.words", Spans(0.15, longest=1))


def spans() -> Recipe:
    """Masks spans, without the boundary objective: SQuAD 2.0 F1 86.7 at 1.2M steps (table 7)."""
    return _scheme("spanbert.spans", Spans(0.15))


def tiny() -> Recipe:
    """A small version of base for two CPU cores."""
    model = Pretraining("bert_base_cased", TINY, OBJECTIVE, LOCAL_START)
    return Recipe("spanbert.tiny", model, DATA, tiny_phase(), tiny_adam(1e-3))
