"""RetroMAE and DupMAE, pretraining for retrieval (Xiao et al. 2022, arXiv 2205.12035; 2023, arXiv 2305.02564).

The decoder that a run trains is in its checkpoints, and not in the model that it writes. A run that starts from that
model therefore starts with another decoder.
"""

from dataclasses import replace

from .data import Phase, RetroMAEData
from .models import Pretraining, RetroMAE
from .optimizers import AdamW, WarmupDecay
from .recipe import Recipe
from .tiny import LOCAL_START, TINY, tiny_adam, tiny_phase

BERT = "hf://google-bert/bert-base-uncased"
DUPMAE = RetroMAE(bag_of_words_weight=0.1)


def _paper(name: str, phase: Phase, init_from: str) -> Recipe:
    optimizer = AdamW(WarmupDecay(1e-4, warmup=phase.steps // 10), epsilon=1e-8, global_clipnorm=1.0)
    model = Pretraining("bert_base", objective=RetroMAE())
    return Recipe(name, model, RetroMAEData(), (phase,), optimizer, init_from=init_from)


def base() -> Recipe:
    """BERT-base, 8 passes over Wikipedia and BooksCorpus: MS MARCO MRR@10 .382 (BERT .346), BEIR nDCG@10 .452."""
    # BERT's million updates with rows of the same size are 40 passes.
    return _paper("retromae.base", Phase(200_000, batch_size=256, length=512), BERT)


def msmarco() -> Recipe:
    """The second stage of base, 20 passes over the 8.8M passages of MS MARCO: MRR@10 .393, with distillation .416."""
    return _paper("retromae.msmarco", Phase(172_660, batch_size=1_024, length=150), "retromae.base")


def dupmae_base() -> Recipe:
    """DupMAE: base, and the words of the text are predicted from all tokens of the encoder: BEIR nDCG@10 .491."""
    found = base()
    return replace(found, name="retromae.dupmae_base", model=replace(found.model, objective=DUPMAE))


def tiny() -> Recipe:
    """A small version of DupMAE for two CPU cores, from random weights."""
    model = Pretraining("bert_base", TINY, DUPMAE, start=LOCAL_START)
    return Recipe("retromae.tiny", model, RetroMAEData(), tiny_phase(), tiny_adam())
