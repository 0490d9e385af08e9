"""SpanBERT's runs (Joshi et al. 2019, arXiv 1907.10529, section 4, and the published command)."""

from .recipe import LOCAL_START, TINY, TINY_ADAM, TINY_RUN, TINY_SCHEDULE, Recipe


def _paper(name: str, size: str, **changes) -> Recipe:
    numbers = dict(
        backbone=size,
        batch_size=256,
        length=512,
        steps=2_400_000,
        schedule=dict(peak=1e-4, warmup=10_000, decay_from="start"),
        # The weight decay of 0.1 is from the text of the paper. It applies to all variables.
        optimizer=dict(weight_decay=0.01, beta_1=0.9, beta_2=0.999, epsilon=1e-8, global_clipnorm=1.0, no_decay=()),
        objective="SpanBoundary",
        objective_options=dict(max_targets=15, boundary_weight=1.0),
        batches="SpanMaskBatches",
        data=dict(scheme="spans", mask_rate=0.15, geometric=0.2, longest=10, max_targets=15),
    )
    return Recipe(name=name, **{**numbers, **changes})


def base() -> Recipe:
    """SpanBERT-base: SQuAD 1.1 F1 92.4 (dev), coreference 77.4."""
    return _paper("spanbert.base", "bert_base_cased")


def large() -> Recipe:
    """SpanBERT-large: SQuAD 1.1 F1 94.6, SQuAD 2.0 88.7, coreference 79.6, GLUE 82.8."""
    return _paper("spanbert.large", "bert_large_cased")


def _scheme(name: str, scheme: str, **changes) -> Recipe:
    """A run with a given masking scheme on single sequences, without the boundary objective."""
    data = dict(scheme=scheme, mask_rate=0.15, boundary=False)
    return _paper(name, "bert_large_cased", objective="MaskedLM", objective_options={}, data=data, **changes)


def one_sequence() -> Recipe:
    """The paper's BERT-1seq, which masks subword pieces: SQuAD 1.1 F1 93.3, GLUE 81.7."""
    return _scheme("spanbert.one_sequence", "pieces")


def words() -> Recipe:
    """Masks whole words, as in table 6, but on single sequences."""
    return _scheme("spanbert.words", "words")


def spans() -> Recipe:
    """Masks spans, without the boundary objective: SQuAD 2.0 F1 86.7 at 1.2M steps (table 7)."""
    return _scheme("spanbert.spans", "spans")


def tiny() -> Recipe:
    """A small version of base for two CPU cores."""
    run = dict(TINY_RUN, config=TINY, local_start=LOCAL_START, optimizer=TINY_ADAM)
    return _paper("spanbert.tiny", "bert_base_cased", schedule=dict(TINY_SCHEDULE, peak=1e-3), **run)
