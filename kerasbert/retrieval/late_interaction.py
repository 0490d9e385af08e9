"""MaxSim of texts whose vectors are in memory, for search and re-ranking."""

from collections.abc import Sequence

import numpy as np

from .similarity import BLOCK, HIDDEN


def max_sim_of_texts(queries: Sequence, documents: Sequence, mean: bool = False) -> np.ndarray:
    """Computes the MaxSim of all queries with all documents.

    The tokens of many documents are compared at once, without padding, so that the result for a document does not
    depend on the others.

    Args:
        queries, documents: lists of numpy float (tokens, m).
        mean: whether the sum over the query's tokens is divided by their number.

    Returns: numpy float32 (a, b). A document without tokens has the score -1e9 before a division.
    """
    queries, documents = _checked(queries, "queries"), _checked(documents, "documents")
    widths = {x.shape[1] for x in (*queries, *documents)}
    if len(widths) > 1:
        raise ValueError(f"All token vectors must have the same width. Received: widths {sorted(widths)}.")
    scores = np.zeros((len(queries), len(documents)), "float32")
    most = max(1, BLOCK // max(1, max(map(len, queries), default=1)))
    for columns in _blocks(documents, most):
        part = documents[columns]
        tokens = np.concatenate(part)
        for rows in _blocks(queries, max(1, BLOCK // max(1, len(tokens)))):
            scores[rows, columns] = _scores(queries[rows], tokens, [len(x) for x in part])
    if mean:
        scores /= np.maximum([len(query) for query in queries], 1)[:, None].astype("float32")
    return scores


def _scores(queries, tokens, lengths):
    """MaxSim of a few queries with documents whose tokens stand one after the other."""
    sizes, lengths = np.array([len(query) for query in queries]), np.array(lengths)
    found = np.zeros((len(queries), len(lengths)), "float32")
    rows, columns = sizes > 0, lengths > 0
    if rows.any() and columns.any():
        products = np.concatenate(queries) @ tokens.T
        best = np.maximum.reduceat(products, _starts(lengths[columns]), axis=1)
        found[np.ix_(rows, columns)] = np.add.reduceat(best, _starts(sizes[rows]), axis=0)
    found[:, ~columns] = HIDDEN
    return found


def _starts(lengths):
    return np.cumsum(lengths) - lengths


def _checked(texts, name):
    if isinstance(texts, np.ndarray) and texts.ndim == 2:
        texts = [texts]
    arrays = [np.asarray(text, "float32") for text in texts]
    wrong = next((array.shape for array in arrays if array.ndim != 2), None)
    if wrong is not None:
        raise ValueError(f"`{name}` must be arrays (tokens, width), one per text. Received: one of shape {wrong}.")
    return arrays


def _blocks(texts, most):
    """Yields slices of consecutive texts with at most `most` tokens, or a single text."""
    start, total = 0, 0
    for number, text in enumerate(texts):
        if number > start and total + len(text) > most:
            yield slice(start, number)
            start, total = number, 0
        total += len(text)
    if start < len(texts):
        yield slice(start, len(texts))
