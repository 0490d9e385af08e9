"""DistilBERT's run (Sanh et al. 2019, arXiv 1910.01108, and the official training command)."""

from .recipe import NO_DROPOUT, TINY_ADAM, TINY_RUN, TINY_SCHEDULE, Recipe


def _paper(name: str, **changes) -> Recipe:
    numbers = dict(
        backbone="distilbert_base",
        batch_size=4_000,
        length=512,
        # 3 passes over Wikipedia and BooksCorpus, a warm-up of 5%.
        steps=6_000,
        schedule=dict(peak=5e-4, warmup=300),
        optimizer=dict(weight_decay=0.0, beta_1=0.9, beta_2=0.98, epsilon=1e-6, global_clipnorm=5.0),
        objective="Distillation",
        objective_options=dict(temperature=2.0, soft_weight=5.0, mlm_weight=2.0, cosine_weight=1.0),
        # As in the code, 15% of the tokens of a batch are predicted, more in rows with many rare tokens. Without the
        # rule, they are 15% of the tokens of each row.
        data=dict(rows="known_chunks", rule="distilbert", rare_exponent=0.7, mask_rate=0.15),
        teacher="hf://google-bert/bert-base-uncased",
    )
    return Recipe(name=name, **{**numbers, **changes})


def base() -> Recipe:
    """DistilBERT, 66M parameters, from BERT-base: GLUE 77.0 (BERT-base 79.5), SQuAD F1 85.8."""
    return _paper("distilbert.base")


def tiny() -> Recipe:
    """A small version of base for two CPU cores: one block of bert.tiny (trained first, or given as teacher=)."""
    config = dict(NO_DROPOUT, num_layers=1, hidden_dim=128, num_heads=2, feed_forward_dim=512, initializer_range=0.08)
    run = dict(TINY_RUN, steps=1_000, config=config, schedule=dict(TINY_SCHEDULE, peak=1e-3), optimizer=TINY_ADAM)
    data = dict(rare_exponent=0.7, mask_rate=0.15)  # the text is small, so all chunks are used
    return _paper("distilbert.tiny", teacher="bert.tiny", data=data, **run)
