"""Language models that count words: unigrams, and n-grams with interpolated modified Kneser-Ney smoothing.

They are baselines for models that read whole sentences. The smoothing follows Chen, Goodman 1998 (Harvard TR-10-98),
after Kneser, Ney 1995. If h' is the context h without its first token,

    p(w | h) = max(c(h w) - D(c(h w)), 0) / c(h) + gamma(h) p(w | h'),

where c is the number of occurrences for the longest n-grams, and the number of different tokens to the left of the
n-gram for all shorter n-grams. gamma(h) is the probability that the discounts D remove. Unigrams are interpolated with
the uniform distribution, 1 / vocabulary size.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Level:
    """All n-grams of one length that the text contains.

    Args:
        keys: int64 (n-grams,), sorted. A key is the row of the n-gram's first n - 1 tokens in the level below, times
            the vocabulary size, plus its last token.
        probability: float64 (n-grams,), the first term of the sum in the formula.
        backoff: float64 (n-grams of the level below,), gamma, or 1 for n-grams that are never followed by a token.
    """

    keys: np.ndarray
    probability: np.ndarray
    backoff: np.ndarray

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Returns the row of each key, or -1 for missing keys."""
        rows = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[rows] == keys, rows, -1)


class NgramModel:
    """An n-gram model of a stream of token ids.

    With order 5, the model takes about 50 bytes per token of the text, and 125 while it is estimated.

    Args:
        ids: integers (tokens,), the text.
        vocabulary_size: number of different ids.
        order: maximum number of tokens in an n-gram.
    """

    def __init__(self, ids: np.ndarray, vocabulary_size: int, order: int = 5):
        ids = np.asarray(ids, "int64")
        if order < 1 or len(ids) <= order or ids.min() < 0 or ids.max() >= vocabulary_size:
            raise ValueError(
                "An n-gram model needs a text longer than its order, of ids below the vocabulary size. Received: "
                f"{len(ids)} ids, order={order}, vocabulary_size={vocabulary_size}."
            )
        self.vocabulary_size, self.levels = vocabulary_size, []
        rows = np.zeros(
            len(ids) + 1, "int64"
        )  # row of the n-gram that begins at each position, initially the empty n-gram
        keys, counts, lower = None, None, 1
        for length in range(1, order + 1):
            longer = rows[: len(ids) - length + 1] * vocabulary_size + ids[length - 1 :]
            longer, places, rows_of_longer, counts_of_longer = np.unique(
                longer, return_index=True, return_inverse=True, return_counts=True
            )
            if length > 1:
                left = np.bincount(rows[places + 1], minlength=len(keys))  # number of different tokens to the left
                self.levels.append(_smoothed(keys, left, lower, vocabulary_size))
                lower = len(keys)
            rows, keys, counts = rows_of_longer, longer, counts_of_longer
        self.levels.append(_smoothed(keys, counts, lower, vocabulary_size))

    def log_probabilities(self, ids: np.ndarray) -> np.ndarray:
        """Computes the log probability of each token given at most order - 1 tokens before it: float64 (tokens,)."""
        ids = np.asarray(ids, "int64")
        probability = np.full(len(ids), 1.0 / self.vocabulary_size)
        rows = np.zeros(len(ids), "int64")
        for length, level in enumerate(self.levels[: len(ids)], start=1):
            contexts = rows[: len(ids) - length + 1]
            rows = np.where(contexts < 0, -1, level.find(contexts * self.vocabulary_size + ids[length - 1 :]))
            kept = np.where(rows < 0, 0.0, level.probability[rows])
            backoff = np.where(contexts < 0, 1.0, level.backoff[contexts])
            probability[length - 1 :] = kept + backoff * probability[length - 1 :]
        return np.log(probability)


def _smoothed(keys: np.ndarray, counts: np.ndarray, contexts: int, vocabulary_size: int) -> Level:
    """Creates the level of n-grams with these counts. `contexts` is the number of n-grams in the level below."""
    removed = discounts(counts)[np.minimum(counts, 3)]
    context = keys // vocabulary_size
    totals = np.bincount(context, counts, contexts)
    seen = np.maximum(totals, 1)
    backoff = np.where(totals > 0, np.bincount(context, removed, contexts) / seen, 1.0)
    return Level(keys, (counts - removed) / seen[context], backoff)


def discounts(counts: np.ndarray) -> np.ndarray:
    """Estimates the discounts [0, D(1), D(2), D(3 or more)]. In small texts, they default to 0.5, 1 and 1.5."""
    n = np.bincount(np.minimum(counts, 5), minlength=6)[1:5].astype("float64")
    k = np.arange(1, 4)
    found = k - (k + 1) * n[0] / (n[0] + 2 * n[1]) * n[1:] / n[:3] if n.all() else k / 2
    return np.append(0.0, found if (found > 0).all() and (found < k).all() else k / 2)


# === Words of a text ===


def words(text: str) -> list[str]:
    """Splits a text into lower-case words and punctuation marks: "He's here." -> he's, here, and the full stop."""
    return re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*|[.,;:!?]", text.lower().replace("’", "'"))


class Words:
    """The words of a text, in the order of the text.

    Args:
        documents: the text.

    Attributes:
        ids: int32 (words,), the text as indices of words.
        vocabulary: {word: index}. 0 is the index of words that are not in the text.
    """

    def __init__(self, documents: Iterable[str]):
        self.vocabulary = {"": 0}
        index, parts = self.vocabulary.setdefault, []
        for document in documents:
            parts.append(np.array([index(word, len(self.vocabulary)) for word in words(document)], "int32"))
        self.ids = np.concatenate(parts)

    def counts(self) -> Counter[str]:
        return Counter(dict(zip(self.vocabulary, np.bincount(self.ids).tolist(), strict=True)))

    def encode(self, texts: Iterable[str]) -> list[np.ndarray]:
        return [np.array([self.vocabulary.get(word, 0) for word in words(text)], "int32") for text in texts]


# === Scores of sentences ===


class Unigrams:
    """Scores sentences with a model that uses only word frequencies, with add-one smoothing.

    Args:
        counts: {word in lower case: number of occurrences}.
    """

    def __init__(self, counts: Mapping[str, int]):
        self.counts, self.total = counts, sum(counts.values()) + len(counts) + 1

    def score(self, texts: Sequence[str]) -> list[float]:
        # An exact sum, so that the score does not depend on the order of the words.
        return [
            math.fsum(math.log((self.counts.get(word, 0) + 1) / self.total) for word in words(text)) for text in texts
        ]


class Ngrams:
    """Scores sentences with an n-gram model, as if each of them followed a full stop.

    Args:
        model: an n-gram model of the ids of a text.
        encoder: the `Words` or the tokenizer with which the text was encoded.
    """

    def __init__(self, model: NgramModel, encoder):
        self.model, self.encoder = model, encoder

    def score(self, texts: Sequence[str]) -> list[float]:
        options = {} if isinstance(self.encoder, Words) else dict(add_special_tokens=False)
        (start,) = self.encoder.encode(["."], **options)
        rows = self.encoder.encode([f". {text}" for text in texts], **options)
        return [float(self.model.log_probabilities(row)[len(start) :].sum()) for row in rows]
