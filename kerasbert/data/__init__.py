"""Text to batches, in numpy: tokenizers, corpora, masking, and random access to every step of a run."""

from .batches import Batches, ExampleBatches
from .causal_lm import CausalLMBatches, StreamBatches
from .corpora import Corpus
from .documents import read_documents
from .examples import encode_texts
from .masked_lm import MaskedLMBatches
from .replaced_token import ReplacedTokenBatches
from .seq2seq import Seq2SeqBatches
from .tokenizers import Tokenizer

__all__ = [
    "Batches",
    "CausalLMBatches",
    "Corpus",
    "ExampleBatches",
    "MaskedLMBatches",
    "ReplacedTokenBatches",
    "Seq2SeqBatches",
    "StreamBatches",
    "Tokenizer",
    "encode_texts",
    "read_documents",
]
