"""Token frequencies, and the loss of unigram models, which predict tokens from their frequencies alone."""

from collections.abc import Iterable

import numpy as np


def count_tokens(blocks: Iterable[np.ndarray], size: int = 1) -> np.ndarray:
    """Counts how often each token id occurs in arrays of ids: int64 (n,), with n the largest id + 1, or `size`."""
    counts = np.zeros(size, dtype=np.int64)
    for block in blocks:
        found = np.bincount(block)
        counts = np.pad(counts, (0, max(0, len(found) - len(counts))))
        counts[: len(found)] += found
    return counts


def entropy(counts: np.ndarray) -> float:
    """Entropy of the token frequencies, in nats per token: the loss of the best unigram model.

    counts 2 1 1 -> 1.5 ln 2 = 1.04
    """
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def smoothed_unigram_loss(counts: np.ndarray, held_out: np.ndarray, vocabulary_size: int) -> float:
    """Computes the loss of a unigram model with add-one smoothing on held-out text, in nats per token.

    Args:
        counts: int64 (n,), how often each token occurs in the training text, with n <= vocabulary_size.
        held_out: the same for the held-out text.
    """
    known, found = (np.pad(c, (0, vocabulary_size - len(c))) for c in (counts, held_out))
    return float(-(found * np.log((known + 1) / (known.sum() + vocabulary_size))).sum() / found.sum())
