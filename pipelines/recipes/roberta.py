"""RoBERTa's runs (Liu et al. 2019, arXiv 1907.11692, tables 1 to 4 and 9, and fairseq's configuration)."""

from .recipe import LOCAL_START, TINY, TINY_ADAM, TINY_RUN, TINY_SCHEDULE, Recipe


def _paper(name: str, size: str, **changes) -> Recipe:
    numbers = dict(
        backbone=size,
        batch_size=8_192,
        length=512,
        steps=500_000,
        schedule=dict(peak=6e-4, warmup=24_000),
        # Weight decay applies to all variables, including biases and norms. Gradients are not clipped.
        optimizer=dict(weight_decay=0.01, beta_1=0.9, beta_2=0.98, epsilon=1e-6, no_decay=()),
        data=dict(rows="full_sentences", rule="roberta", mask_rate=0.15),
        dtype="mixed_bfloat16",
    )
    return Recipe(name=name, **{**numbers, **changes})


def base() -> Recipe:
    """RoBERTa-base, 160 GB of text: MNLI 87.6, SST-2 94.8."""
    return _paper("roberta.base", "roberta_base")


def large() -> Recipe:
    """RoBERTa-large, 160 GB of text: MNLI 90.2, SQuAD 2.0 F1 89.4, GLUE 88.5 (ensemble)."""
    return _paper("roberta.large", "roberta_large", schedule=dict(peak=4e-4, warmup=30_000))


def base_books() -> Recipe:
    """Table 3, 16 GB of text in batches of 2,048: perplexity 3.68, MNLI 85.2, SST-2 92.9."""
    # The rate is from the table. The warm-up is from fairseq's configuration, which has a rate of 5e-4.
    schedule = dict(peak=7e-4, warmup=10_000)
    return _paper("roberta.base_books", "roberta_base", batch_size=2_048, steps=125_000, schedule=schedule)


def _format(name: str, rows: str, **changes) -> Recipe:
    """A row of table 2: the base model with BERT's text and batches of 256 rows of up to 512 tokens.

    If rows are shorter, the paper uses more of them, so that updates have about the same number of tokens. It does not
    give their numbers. The numbers here are estimates for Wikipedia and books. For other text, use batch_size = 131,072
    / mean number of tokens per row.
    """
    data = dict(rows=rows, rule="roberta", mask_rate=0.15)
    pairs = dict(sentence_pair=True) if rows.endswith("pairs") else {}
    numbers = dict(batch_size=256, steps=1_000_000, schedule=dict(peak=1e-4, warmup=10_000), objective_options=pairs)
    size = "bert_base" if pairs else "roberta_base"  # pairs need segment embeddings and a head on the first token
    return _paper(name, size, **{**numbers, "data": data, **changes})


def segment_pairs() -> Recipe:
    """Table 2, SEGMENT-PAIR with NSP: SQuAD 90.4, MNLI 84.0, RACE 64.2."""
    return _format("roberta.segment_pairs", "segment_pairs")


def sentence_pairs() -> Recipe:
    """Table 2, SENTENCE-PAIR with NSP: SQuAD 88.7, MNLI 82.9, RACE 63.0."""
    # Pairs have about 50 tokens. Few have more than 128, so --set length=128 avoids most of the padding.
    return _format("roberta.sentence_pairs", "sentence_pairs", batch_size=2_560)


def full_sentences() -> Recipe:
    """Table 2, FULL-SENTENCES: SQuAD 90.4, MNLI 84.7, RACE 64.8."""
    return _format("roberta.full_sentences", "full_sentences")


def doc_sentences() -> Recipe:
    """Table 2, DOC-SENTENCES: SQuAD 90.6, MNLI 84.7, RACE 65.6."""
    # Rows have about 370 tokens, because most articles are shorter than a row.
    return _format("roberta.doc_sentences", "doc_sentences", batch_size=352)


def tiny() -> Recipe:
    """A small version of base for two CPU cores: whole lines across documents, new masks in every step."""
    run = dict(TINY_RUN, config=TINY, local_start=LOCAL_START, optimizer=TINY_ADAM, dtype="auto")
    return _paper("roberta.tiny", "roberta_base", schedule=dict(TINY_SCHEDULE, peak=1e-3), **run)
