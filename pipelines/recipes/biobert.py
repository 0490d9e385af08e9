"""BioBERT (Lee et al. 2019, arXiv 1901.08746): BERT's pretraining, continued on other text with the same vocabulary.

Only the weights are loaded. Optimizer and schedule start anew. The corpus must have the tokenizer of the model.
"""

from dataclasses import replace

from . import bert
from .data import Phase
from .models import Pretraining
from .recipe import Recipe
from .tiny import LOCAL_START, tiny_phase


def _paper(name: str, steps: int) -> Recipe:
    phases = (Phase(steps, batch_size=192, length=512),)  # throughout
    model = Pretraining("bert_base_cased")
    return replace(bert.base(), name=name, model=model, phases=phases, init_from="hf://google-bert/bert-base-cased")


def pubmed() -> Recipe:
    """BioBERT 1.1, PubMed: F1 89.71 on the diseases of NCBI (BERT 85.63)."""
    return _paper("biobert.pubmed", 1_000_000)


def pubmed_pmc() -> Recipe:
    """BioBERT 1.0, PubMed and PMC: 470,000 steps."""
    return _paper("biobert.pubmed_pmc", 470_000)


def tiny() -> Recipe:
    """A small version for two CPU cores: continues from bert.tiny, which is trained first or given as init_from=."""
    model = Pretraining("bert_tiny", start=LOCAL_START)
    return replace(bert.tiny(), name="biobert.tiny", model=model, phases=tiny_phase(1_000), init_from="bert.tiny")
