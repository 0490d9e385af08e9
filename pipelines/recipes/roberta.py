"""RoBERTa's runs (Liu et al. 2019, arXiv 1907.11692, tables 1 to 4 and 9, and fairseq's configuration)."""

from kerasbert.data import SegmentPairs, SentencePairs, Tokens

from .data import MaskedLMData, Phase
from .models import Pretraining
from .optimizers import AdamW, WarmupDecay
from .recipe import Recipe
from .tiny import LOCAL_START, TINY, tiny_adam, tiny_phase

# Of fairseq's code: special tokens may be masked, random tokens are not among the first four, and the number of targets
# is rounded at random.
RULE = dict(mask_special=True, count="drawn", random_from=4)
DATA = MaskedLMData("full_sentences", Tokens(0.15, **RULE))
PHASE = Phase(500_000, batch_size=8_192, length=512)


def _paper(
    name: str,
    size: str,
    peak: float = 6e-4,
    warmup: int = 24_000,
    data: MaskedLMData = DATA,
    phase: Phase = PHASE,
) -> Recipe:
    # Weight decay applies to all variables, including biases and norms. Gradients are not clipped.
    optimizer = AdamW(WarmupDecay(peak, warmup), weight_decay=0.01, beta_2=0.98, epsilon=1e-6, no_decay=())
    return Recipe(name, Pretraining(size), data, (phase,), optimizer, dtype="mixed_bfloat16")


def base() -> Recipe:
    """RoBERTa-base, 160 GB of text: MNLI 87.6, SST-2 94.8."""
    return _paper("roberta.base", "roberta_base")


def large() -> Recipe:
    """RoBERTa-large, 160 GB of text: MNLI 90.2, SQuAD 2.0 F1 89.4, GLUE 88.5 (ensemble)."""
    return _paper("roberta.large", "roberta_large", peak=4e-4, warmup=30_000)


def base_books() -> Recipe:
    """Table 3, 16 GB of text in batches of 2,048: perplexity 3.68, MNLI 85.2, SST-2 92.9."""
    # The rate is from the table. The warm-up is from fairseq's configuration, which has a rate of 5e-4.
    phase = Phase(125_000, batch_size=2_048, length=512)
    return _paper("roberta.base_books", "roberta_base", peak=7e-4, warmup=10_000, phase=phase)


def _format(name: str, rows: str | SegmentPairs, batch_size: int = 256) -> Recipe:
    """A row of table 2: the base model with BERT's text and batches of 256 rows of up to 512 tokens.

    If rows are shorter, the paper uses more of them, so that updates have about the same number of tokens. It does not
    give their numbers. The numbers here are estimates for Wikipedia and books. For other text, use batch_size = 131,072
    / mean number of tokens per row.
    """
    data, phase = MaskedLMData(rows, DATA.noise), Phase(1_000_000, batch_size, length=512)
    size = "bert_base" if data.labeled else "roberta_base"  # pairs need segment embeddings, and a head
    return _paper(name, size, peak=1e-4, warmup=10_000, data=data, phase=phase)


def segment_pairs() -> Recipe:
    """Table 2, SEGMENT-PAIR with NSP: SQuAD 90.4, MNLI 84.0, RACE 64.2."""
    return _format("roberta.segment_pairs", SegmentPairs())


def sentence_pairs() -> Recipe:
    """Table 2, SENTENCE-PAIR with NSP: SQuAD 88.7, MNLI 82.9, RACE 63.0."""
    # Pairs have about 50 tokens. Few have more than 128, so --set length=128 avoids most of the padding.
    return _format("roberta.sentence_pairs", SentencePairs(), batch_size=2_560)


def full_sentences() -> Recipe:
    """Table 2, FULL-SENTENCES: SQuAD 90.4, MNLI 84.7, RACE 64.8."""
    return _format("roberta.full_sentences", "full_sentences")


def doc_sentences() -> Recipe:
    """Table 2, DOC-SENTENCES: SQuAD 90.6, MNLI 84.7, RACE 65.6."""
    # Rows have about 370 tokens, because most articles are shorter than a row.
    return _format("roberta.doc_sentences", "doc_sentences", batch_size=352)


def tiny() -> Recipe:
    """A small version of base for two CPU cores: whole lines across documents, new masks in every step."""
    model = Pretraining("roberta_base", TINY, start=LOCAL_START)
    return Recipe("roberta.tiny", model, DATA, tiny_phase(), tiny_adam(1e-3))
