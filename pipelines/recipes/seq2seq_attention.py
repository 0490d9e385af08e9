"""Recurrent translation with and without attention (Bahdanau et al. 2014, arXiv 1409.0473, section 4).

Corpora consist of pairs (see `kerasbert.data.parallel_documents`).
"""

from .data import PairData, Phase
from .models import Pretraining, Seq2SeqLM
from .optimizers import Adadelta, WarmupDecay
from .recipe import Recipe
from .tiny import tiny_adam, tiny_phase

_DATA = PairData(num_buckets=8)
_DTYPE = "float32"  # the states of recurrent networks add up over a row


def _paper(name: str, size: str) -> Recipe:
    optimizer = Adadelta(WarmupDecay(1.0, final=1.0), rho=0.95, epsilon=1e-6, global_clipnorm=1.0)
    model, phases = Pretraining(size, objective=Seq2SeqLM()), (Phase(350_000, batch_size=80, length=50),)
    return Recipe(name, model, _DATA, phases, optimizer, dtype=_DTYPE)


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
    model = Pretraining("rnnsearch", config, Seq2SeqLM())
    return Recipe("seq2seq_attention.tiny", model, _DATA, tiny_phase(800, 32, 24), tiny_adam(3e-3, 100), dtype=_DTYPE)
