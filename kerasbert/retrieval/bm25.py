"""Search by words."""

from collections.abc import Sequence

import numpy as np

from ..core.packages import required
from .search import Best, Found, check_top_k, order_of


class BM25:
    """Search by words: BM25 (Robertson, Zaragoza 2009) with the formula of Lucene, by the library bm25s.

    Args:
        documents: the texts.
        ids: their ids, which order equal scores; see `search`.
        k1, b: how much repeated words count, and by how much long documents are discounted. The defaults are those
            of Anserini's baselines.
        language: language of the stemmer ("english", "german", ...). For English, stop words do not count, either. None
            compares lowercase words without a stemmer.
        token_pattern: regular expression of a word. By default, a word has two characters or more, as in bm25s and
            scikit-learn. Pass r"\\b\\w+\\b" to find "vitamin C" or "part 7" by the last word.

    Raises:
        ValueError: if `documents` is a single str or has no words, `ids` are not different, `language` is unknown, or
            `k1` or `b` is out of range.
        ImportError: if bm25s, or for a language its stemmer, is not installed.

    Example:
        >>> from kerasbert.retrieval import BM25
        >>> documents = ["The cat sat on the mat.", "A dog ran home.", "Snow fell last night."]
        >>> found = BM25(documents).search(["running dogs"], top_k=1)
        >>> documents[found.numbers[0, 0]]
        'A dog ran home.'
    """

    def __init__(
        self,
        documents: Sequence[str],
        ids: Sequence[str] | None = None,
        k1: float = 0.9,
        b: float = 0.4,
        language: str | None = "english",
        token_pattern: str = r"\b\w\w+\b",
    ):
        check_list(documents, "documents")
        if not (0 <= k1 < np.inf and 0 <= b <= 1):
            raise ValueError(f"`k1` must be at least 0, and `b` from 0 to 1. Received: k1={k1}, b={b}.")
        library, self._stemmer, self._stop_words = required("bm25s", "retrieval"), None, []
        if language is not None:
            stemmers = required("Stemmer", "retrieval")
            if language not in stemmers.algorithms():
                known = ", ".join(stemmers.algorithms())
                raise ValueError(f"`language` must be None or one of {known}. Received: {language!r}.")
            self._stemmer = stemmers.Stemmer(language)
            self._stop_words = STOP_WORDS if language == "english" else []
        self._tokenize, self._pattern = library.tokenize, token_pattern
        self.order = order_of(ids, len(documents))
        words = self._words(documents)
        if not any(words):
            raise ValueError(f"BM25 needs documents with words. Received: {len(documents)} documents without any.")
        self._index = library.BM25(k1=k1, b=b, method="lucene")
        self._index.index(words, show_progress=False)

    def _words(self, texts):
        return self._tokenize(
            list(texts),
            token_pattern=self._pattern,
            stopwords=self._stop_words,
            stemmer=self._stemmer,
            return_ids=False,
            show_progress=False,
        )

    def search(self, queries: Sequence[str], top_k: int | None = None) -> Found:
        """Finds the documents with words of the queries. Documents without any are not found.

        See `search` for `top_k`.

        Raises:
            ValueError: if `queries` is a single str, or `top_k` is not from 1 to the number of documents.
        """
        check_list(queries, "queries")
        best = Best(len(queries), check_top_k(top_k, len(self.order)), self.order)
        for row, words in enumerate(self._words(queries)):
            known = [word for word in words if word in self._index.vocab_dict]
            scores = self._index.get_scores(known) if known else np.zeros(len(self.order), "float32")
            scores = np.where(scores > 0, scores, -np.inf)
            best.add(slice(row, row + 1), slice(0, len(scores)), scores[None])
        return best.found()


def check_list(texts, what):
    """Raises a ValueError unless texts are a list of str."""
    if isinstance(texts, str):
        raise ValueError(f"`{what}` must be a list of str. Received: {texts!r:.60}, one str. Use [{texts!r:.60}].")
    wrong = next(((number, text) for number, text in enumerate(texts) if not isinstance(text, str)), None)
    if wrong is not None:
        raise ValueError(f"`{what}` must be a list of str. Received: {wrong[1]!r:.60}, as text {wrong[0]}.")


# The stop words of Lucene.
STOP_WORDS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with"
).split()
