"""Scores of embedders and rerankers on held-out examples: searches, pairs with labels, and lists of documents."""

from typing import Any

import numpy as np

from kerasbert import metrics
from kerasbert.retrieval import retrieve
from kerasbert.retrieval.evaluation import is_embedder, pair_scores
from kerasbert.retrieval.search import rows_of

from ..reading.examples import Examples
from ..reading.text_columns import Searches

SHOWN = 10  # documents of a search that are written as its answer
CUTOFFS = {"ndcg": (10,), "mrr": (10,), "map": (100,), "accuracy": (1, 10), "precision": (10,), "recall": (10, 100)}


def search_scores(first: Any, second: Any, examples: Searches, top_k: int, batch_size: int) -> tuple[dict, list]:
    """Searches a collection. Returns the metrics, and for each query its best documents with their scores."""
    results = retrieve(examples.collection, first, second, top_k, batch_size)
    scores = metrics.retrieval(examples.collection.relevant, results, CUTOFFS)
    answers = [sorted(found.items(), key=lambda item: (-item[1], item[0]))[:SHOWN] for found in results.values()]
    return scores, [{"answer": [name for name, _ in found], "scores": [s for _, s in found]} for found in answers]


def text_pair_scores(model: Any, examples: Examples, batch_size: int = 32) -> tuple[dict, list]:
    """Evaluates an embedder or a reranker. Returns the metrics, and the scores of all documents of each example.

    - searches: the metrics of `search_scores`; a reranker orders the results of BM25.
    - pairs with 0 or 1: `metrics.similar_pairs`; pairs with other numbers: Spearman and Pearson correlation.
    - lists with labels, which are 0 for documents that are not relevant; and triplets or n-tuples, whose first
      document is the positive, and whose labels, the scores of a teacher, do not count: `metrics.reranking`, and the
      accuracy, which is the share of positives with a higher score than all negatives.
    """
    if isinstance(examples, Searches):
        first, second = (model, None) if is_embedder(model) else ("bm25", model)
        return search_scores(first, second, examples, 100, batch_size)
    check_evaluable(examples)
    lists = [list(texts[1]) if isinstance(texts[-1], list) else list(texts[1:]) for texts in examples.x]
    found, labels = _scores_of(model, [texts[0] for texts in examples.x], lists, batch_size), examples.y
    if len(examples.x[0]) > 2:
        labels = [[1.0] + [0.0] * (len(row) - 1) for row in found]
    if isinstance(labels[0], list):
        return _list_scores(labels, found), [{"answer": row} for row in found]
    scores = [row[0] for row in found]
    if set(labels) <= {0, 1}:
        return metrics.similar_pairs(labels, scores), scores
    return {"spearman": metrics.spearman(labels, scores), "pearson": metrics.pearson(labels, scores)}, scores


def check_evaluable(examples: Examples, path: str = "") -> None:
    """Raises a ValueError, which begins with the path, for examples that `text_pair_scores` cannot evaluate."""
    if isinstance(examples, Searches):
        return
    texts, labels, start = examples.x[0], examples.y, path and f"{path}: "
    if len(texts) == 1:
        raise ValueError(f"{start}Examples to evaluate on need two texts or more. Received: rows of one text.")
    if isinstance(texts[-1], list):
        wrong = [y for (_, found), y in zip(examples.x, labels, strict=True) if not _is_list(y, len(found))]
        if wrong or not any(0 in y and max(y) > 0 for y in labels):
            raise ValueError(
                f"{start}Lists to evaluate on need labels, which are 0 for documents that are not relevant. Received: "
                f"{(wrong or labels)[0]!r:.60}. If the first document is the relevant one, write a column for each "
                "document."
            )
    elif labels[0] is None:
        if len(texts) == 2:
            raise ValueError(f"{start}Pairs to evaluate on need labels, or negatives. Received: pairs without labels.")
    elif not all(isinstance(label, float | int) or (len(texts) > 2 and isinstance(label, list)) for label in labels):
        raise ValueError(
            f"{start}Examples to evaluate on must be pairs with a number, triplets or n-tuples, or lists with a label "
            f"for each document. Received: {len(texts)} texts with {labels[0]!r:.40}."
        )


def _is_list(labels: Any, count: int) -> bool:
    return isinstance(labels, list) and len(labels) == count


def _list_scores(labels: list, scores: list) -> dict[str, float]:
    binary = [[int(label > 0) for label in row] for row in labels]
    right = [
        max((s for s, label in zip(*row, strict=True) if label), default=-np.inf)
        > max((s for s, label in zip(*row, strict=True) if not label), default=-np.inf)
        for row in zip(scores, binary, strict=True)
    ]
    return {"accuracy": float(np.mean(right)), **metrics.reranking(binary, scores)}


def _scores_of(model: Any, queries: list[str], lists: list[list[str]], batch_size: int) -> list[list[float]]:
    """The score of every document for the query of its example."""
    if not is_embedder(model):
        pairs = [(query, text) for query, texts in zip(queries, lists, strict=True) for text in texts]
        flat = iter(pair_scores(model, pairs, batch_size).tolist())
        return [[next(flat) for _ in texts] for texts in lists]
    places = {text: i for i, text in enumerate(dict.fromkeys(text for texts in lists for text in texts))}
    own = model.embed_queries(queries, batch_size=batch_size)
    theirs = model.embed_documents(list(places), batch_size=batch_size)
    found = []
    for i, texts in enumerate(lists):
        numbers = np.array([places[text] for text in texts])
        scores = model.similarity(rows_of(own, slice(i, i + 1)), rows_of(theirs, numbers))
        found.append(np.asarray(scores, float)[0].tolist())
    return found
