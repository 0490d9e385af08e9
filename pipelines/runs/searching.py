"""Evaluation on collections in BEIR format, with one stage or two."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kerasbert
from kerasbert.retrieval.evaluation import is_embedder

from ..command_line.options import Options
from ..reading.text_columns import Searches, read_searches
from .cutting import say_cut
from .finetuning import flat
from .task_models import cut_texts
from .text_scores import search_scores

RETRIEVAL = "retrieval"  # the task of searching a collection
WORDS = "bm25"  # the search by words, which is no folder


@dataclass(frozen=True)
class Stages(Options):
    """How a collection is searched, for --task retrieval.

    Args:
        first_stage: bm25, or an embedder, whose first documents the model orders again. Default: the model itself, and
            for a reranker bm25.
        top_k: number of documents of the first stage for each query.
        split: which queries: the name of a file in `qrels`.
    """

    first_stage: str | None = None
    top_k: int = 100
    split: str = "test"

    def __post_init__(self):
        if self.top_k < 1:
            raise ValueError(f"`top_k` must be at least 1. Received: {self.top_k}.")


def stages_of(model: str, stages: Stages) -> tuple[Any, Any]:
    """Loads the first and the second stage; the second may be None."""
    last = loaded_stage(model)
    if stages.first_stage is None:
        return (last, None) if last == WORDS or is_embedder(last) else (WORDS, last)
    if last == WORDS:
        raise ValueError(f"{WORDS} is a first stage. Received: --model {WORDS} --first-stage {stages.first_stage}.")
    return loaded_stage(stages.first_stage), last


def loaded_stage(name: str) -> Any:
    """Loads an embedder or a reranker; returns WORDS as it is."""
    if name == WORDS and not Path(name).exists():
        return WORDS
    model = kerasbert.load(name)
    if not is_embedder(model) and not hasattr(model, "rank"):
        raise ValueError(
            f"A search needs {WORDS}, an embedder or a reranker. Received: {name}, a {type(model).__name__}."
        )
    return model


def loaded_reranker(name: str | None) -> Any:
    """Loads the model of --reranker, which gives one score per pair; returns None as it is."""
    if name is None:
        return None
    model = kerasbert.load(name)
    if not hasattr(model, "score") or not hasattr(model, "rank"):
        raise ValueError(
            f"--reranker must be a reranker. Received: {name}, a {type(model).__name__}. Train one with kerasbert "
            "finetune --task rerank. An embedder is for --model."
        )
    if len(model.labels) > 1:
        raise ValueError(
            f"--reranker must give one score per pair. Received: {name} with {len(model.labels)} outputs, "
            f"{', '.join(map(str, model.labels))}."
        )
    return model


def score_searches(
    model: str, sources: dict[str, str], stages: Stages, batch_size: int
) -> tuple[dict[str, float], list[tuple[Searches, list]]]:
    """Searches collections. Returns the scores of all, and the queries of each with their answers."""
    if not sources:
        raise ValueError(f"--task {RETRIEVAL} needs folders in BEIR format. Received: no --data.")
    examples = {name: read_searches(path, stages.split) for name, path in sources.items()}
    first, second = stages_of(model, stages)
    scores, answers = {}, []
    for name, each in examples.items():
        for stage in (first, second):
            if stage is not None and stage != WORDS:
                say_cut(cut_texts(stage, RETRIEVAL, each))
        scores[name], found = search_scores(first, second, each, stages.top_k, batch_size)
        answers.append((each, found))
    return flat(scores), answers
