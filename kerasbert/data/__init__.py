"""From text to batches, in numpy: tokenizers, corpora, masking, and random access to every step of a run."""

from .batches.batches import Batches, ExampleBatches
from .batches.bidirectional_lm import BidirectionalLMBatches, bidirectional_targets, character_ids
from .batches.causal_lm import CausalLMBatches, StreamBatches
from .batches.denoising import DenoisingBatches, DenoisingLayout
from .batches.hybrid_lm import HybridLMBatches
from .batches.masked_lm import MaskedLMBatches
from .batches.masked_permuted_lm import MaskedPermutedLMBatches
from .batches.mixtures import MixtureBatches, mixed_documents, mixing_rates
from .batches.multi_task import TaskBatches
from .batches.pair_rows import SegmentPairs, SentenceOrder, SentencePairs
from .batches.permutation_lm import PermutationLMBatches
from .batches.replaced_token import ReplacedTokenBatches, electra_noise
from .batches.retro_mae import RetroMAEBatches
from .batches.seq2seq import Seq2SeqBatches, Seq2SeqLayout
from .batches.skip_gram import SkipGramBatches
from .batches.span_boundary import SpanMaskBatches
from .batches.translation_lm import TranslationLMBatches, parallel_documents
from .batches.whole_texts import TSDAEBatches, WholeTextBatches
from .corpus.corpus import Corpus
from .noise.corruption import positions_of
from .noise.denoising import Denoising
from .noise.infilling import TextInfilling
from .noise.masking import NGrams, RareTokens, Tokens, TokensWithReplacement, WholeWords, WindowNGrams, masking_rule
from .noise.noise import MaskableRows, Noise
from .noise.permutations import SpanTargets
from .noise.schedules import RateSchedule
from .noise.span_masks import Spans
from .noise.token_spans import TokenSpans
from .tasks.examples import encode_texts
from .text.documents import read_documents
from .tokenizers.tokenizer import Tokenizer

__all__ = [
    "Batches",
    "BidirectionalLMBatches",
    "CausalLMBatches",
    "Corpus",
    "Denoising",
    "DenoisingBatches",
    "DenoisingLayout",
    "ExampleBatches",
    "HybridLMBatches",
    "MaskableRows",
    "MaskedLMBatches",
    "MaskedPermutedLMBatches",
    "MixtureBatches",
    "NGrams",
    "Noise",
    "PermutationLMBatches",
    "RareTokens",
    "RateSchedule",
    "ReplacedTokenBatches",
    "RetroMAEBatches",
    "SegmentPairs",
    "SentenceOrder",
    "SentencePairs",
    "Seq2SeqBatches",
    "Seq2SeqLayout",
    "SkipGramBatches",
    "SpanMaskBatches",
    "SpanTargets",
    "Spans",
    "StreamBatches",
    "TSDAEBatches",
    "TaskBatches",
    "TextInfilling",
    "TokenSpans",
    "Tokenizer",
    "Tokens",
    "TokensWithReplacement",
    "TranslationLMBatches",
    "WholeTextBatches",
    "WholeWords",
    "WindowNGrams",
    "bidirectional_targets",
    "character_ids",
    "electra_noise",
    "encode_texts",
    "masking_rule",
    "mixed_documents",
    "mixing_rates",
    "parallel_documents",
    "positions_of",
    "read_documents",
]
