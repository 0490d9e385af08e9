"""Recurrent translation with and without attention (Bahdanau et al. 2014, arXiv 1409.0473, section 4).

Corpora consist of pairs (see `kerasbert.data.parallel_documents`).
"""

from .recipe import TINY_ADAM, TINY_RUN, Recipe


def _paper(name: str, size: str, **changes) -> Recipe:
    numbers = dict(
        dtype="float32",  # the states of recurrent networks add up over a row
        backbone=size,
        batch_size=80,
        length=50,
        steps=350_000,
        schedule=dict(peak=1.0, warmup=0, final=1.0),
        optimizer_class="Adadelta",
        optimizer=dict(rho=0.95, epsilon=1e-6, global_clipnorm=1.0),
        objective="Seq2SeqLM",
        batches="PairBatches",
        data=dict(num_buckets=8),
    )
    return Recipe(name=name, **{**numbers, **changes})


def attention() -> Recipe:
    """RNNsearch-50, WMT 2014 English to French: BLEU 26.75 (28.45 when trained longer)."""
    return _paper("seq2seq_attention.attention", "rnnsearch")


def fixed_vector() -> Recipe:
    """RNNencdec-50, which represents the whole source by one vector: BLEU 17.82."""
    return _paper("seq2seq_attention.fixed_vector", "rnnencdec")


def tiny() -> Recipe:
    """A small version of attention for two CPU cores: pairs of captions, AdamW."""
    config = dict(embedding_dim=64, hidden_dim=128, alignment_dim=64, output_dim=64)
    config |= dict(initializer_range=0.05, alignment_range=0.05)
    run = dict(TINY_RUN, batch_size=32, length=24, steps=800, config=config, optimizer=TINY_ADAM)
    run |= dict(optimizer_class="TransformerAdamW", schedule=dict(peak=3e-3, warmup=100))
    return _paper("seq2seq_attention.tiny", "rnnsearch", **run)
