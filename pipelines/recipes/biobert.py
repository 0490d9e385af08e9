"""BioBERT (Lee et al. 2019, arXiv 1901.08746): BERT's pretraining, continued on other text with the same vocabulary.

Only the weights are loaded. Optimizer and schedule start anew. The corpus must have the tokenizer of the model.
"""

from . import bert
from .recipe import Recipe


def _paper(name: str, steps: int, **changes) -> Recipe:
    numbers = dict(
        name=name,
        backbone="bert_base_cased",
        # 192 rows of 512 tokens throughout.
        batch_size=192,
        length=512,
        long_length=0,
        long_steps=0,
        steps=steps,
        init_from="hf://google-bert/bert-base-cased",
    )
    return Recipe(**{**vars(bert.base()), **numbers, **changes})


def pubmed() -> Recipe:
    """BioBERT 1.1, PubMed: F1 89.71 on the diseases of NCBI (BERT 85.63)."""
    return _paper("biobert.pubmed", 1_000_000)


def pubmed_pmc() -> Recipe:
    """BioBERT 1.0, PubMed and PMC: 470,000 steps."""
    return _paper("biobert.pubmed_pmc", 470_000)


def tiny() -> Recipe:
    """A small version for two CPU cores: continues from bert.tiny, which is trained first or given as init_from=."""
    numbers = dict(name="biobert.tiny", init_from="bert.tiny", steps=1_000, config={})
    return Recipe(**{**vars(bert.tiny()), **numbers})
