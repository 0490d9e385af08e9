"""From text to batches, in numpy: tokenizers, corpora, masking, and random access to every step of a run."""

from .batches.batches import Batches, ExampleBatches
from .batches.bidirectional_lm import BidirectionalLMBatches, bidirectional_targets, character_ids
from .batches.causal_lm import CausalLMBatches, StreamBatches
from .batches.denoising import DenoisingBatches
from .batches.masked_lm import MaskedLMBatches
from .batches.mixtures import MixtureBatches, mixed_documents, mixing_rates
from .batches.permutation_lm import PermutationLMBatches
from .batches.replaced_token import ReplacedTokenBatches
from .batches.seq2seq import Seq2SeqBatches
from .batches.skip_gram import SkipGramBatches
from .batches.span_boundary import SpanMaskBatches
from .batches.tasks import TaskBatches
from .batches.translation_lm import TranslationLMBatches, parallel_documents
from .corpus.corpus import Corpus
from .tasks.examples import encode_texts
from .text.documents import read_documents
from .tokenizers.tokenizer import Tokenizer

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
