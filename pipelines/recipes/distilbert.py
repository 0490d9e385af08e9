"""DistilBERT's run (Sanh et al. 2019, arXiv 1910.01108, and the official training command)."""

from kerasbert.data import RareTokens

from .data import MaskedLMData, Phase
from .models import Distillation, Pretraining
from .optimizers import AdamW, WarmupDecay
from .recipe import Recipe
from .tiny import NO_DROPOUT, tiny_adam, tiny_phase

_OBJECTIVE = Distillation(temperature=2.0, soft_weight=5.0, mlm_weight=2.0, cosine_weight=1.0)


def base() -> Recipe:
    """DistilBERT, 66M parameters, from BERT-base: GLUE 77.0 (BERT-base 79.5), SQuAD F1 85.8."""
    return Recipe(
        "distilbert.base",
        Pretraining("distilbert_base", objective=_OBJECTIVE),
        # As in the code, 15% of the tokens of a batch are predicted, more in rows with many rare tokens. Without
        # `whole_batch`, they are 15% of the tokens of each row.
        MaskedLMData("known_chunks", RareTokens(0.15, exponent=0.7, whole_batch=True)),
        # 3 passes over Wikipedia and BooksCorpus, a warm-up of 5%.
        (Phase(6_000, batch_size=4_000, length=512),),
        AdamW(WarmupDecay(5e-4, warmup=300), weight_decay=0.0, beta_2=0.98, epsilon=1e-6, global_clipnorm=5.0),
        teacher="hf://google-bert/bert-base-uncased",
    )


def tiny() -> Recipe:
    """A small version of base for two CPU cores: one block of bert.tiny (trained first, or given as teacher=)."""
    config = dict(NO_DROPOUT, num_layers=1, hidden_dim=128, num_heads=2, feed_forward_dim=512, initializer_range=0.08)
    model = Pretraining("distilbert_base", config, _OBJECTIVE)
    data = MaskedLMData(noise=RareTokens(0.15, exponent=0.7))  # the text is small, so all chunks are used
    return Recipe("distilbert.tiny", model, data, tiny_phase(1_000), tiny_adam(1e-3), teacher="bert.tiny")
