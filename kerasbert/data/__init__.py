"""Text to batches, in numpy: tokenizers, corpora, masking, and random access to every step of a run."""

from .batches import Batches, ExampleBatches
from .bidirectional_lm import BidirectionalLMBatches, bidirectional_targets, character_ids
from .causal_lm import CausalLMBatches, StreamBatches
from .corpora import Corpus
from .denoising import DenoisingBatches
from .documents import read_documents
from .examples import encode_texts
from .masked_lm import MaskedLMBatches
from .mixtures import MixtureBatches, mixed_documents, mixing_rates
from .permutation_lm import PermutationLMBatches
from .replaced_token import ReplacedTokenBatches
from .seq2seq import Seq2SeqBatches
from .skip_gram import SkipGramBatches
from .span_boundary import SpanMaskBatches
from .task_batches import TaskBatches
from .tokenizers import Tokenizer
from .translation_lm import TranslationLMBatches, parallel_documents

__all__ = [
    "Batches",
    "BidirectionalLMBatches",
    "CausalLMBatches",
    "Corpus",
    "DenoisingBatches",
    "ExampleBatches",
    "MaskedLMBatches",
    "MixtureBatches",
    "PermutationLMBatches",
    "ReplacedTokenBatches",
    "Seq2SeqBatches",
    "SkipGramBatches",
    "SpanMaskBatches",
    "StreamBatches",
    "TaskBatches",
    "Tokenizer",
    "TranslationLMBatches",
    "bidirectional_targets",
    "character_ids",
    "encode_texts",
    "mixed_documents",
    "mixing_rates",
    "parallel_documents",
    "read_documents",
]
