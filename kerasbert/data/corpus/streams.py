"""Reads a corpus as one long sequence of tokens, with an end token after every document or line."""

import numpy as np

from .corpus import Corpus


class TokenStream:
    """The concatenated documents (or lines) of a corpus, each followed by an end token.

    documents [5 6] and [7 8 9], end 2 -> 5 6 2 7 8 9 2

    Args:
        corpus: the corpus to read.
        end: id of the end token, or None to concatenate without an end token.
        lines: whether the end token follows every line instead of every document.
    """

    def __init__(self, corpus: Corpus, end: int | None, lines: bool = False):
        starts = np.append(corpus.sequence_starts, corpus.num_tokens)
        self._tokens, self._end = corpus.tokens, end
        self._starts = starts if lines else starts[corpus.document_starts]
        # Where each document (or line) begins in the stream. The end tokens shift it.
        self.starts = self._starts + (np.arange(len(self._starts)) if end is not None else 0)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        """The token ids at the positions `places` of the stream, int32, in the shape of `places`."""
        number = np.searchsorted(self.starts, places, side="right") - 1
        tokens = self._starts[number] + places - self.starts[number]
        if self._end is None:
            return self._tokens[tokens].astype(np.int32)
        ends = tokens == self._starts[number + 1]
        return np.where(ends, np.int32(self._end), self._tokens[np.where(ends, 0, tokens)].astype(np.int32))
