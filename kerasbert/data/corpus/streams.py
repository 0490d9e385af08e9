"""Reads a corpus as one long sequence of tokens, with an end token after every document or line."""

from collections.abc import Iterator

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
        self._tokens, self._end = corpus.tokens, end

        def starts(shift: bool) -> Iterator[np.ndarray]:
            """Where each document (or line) begins, in tokens or in the stream, where the end tokens shift it."""
            count = 0
            for block in corpus.blocks():
                found = block.sentences if lines else block.document_tokens
                yield (found[:-1] + shift * np.arange(count, count + len(found) - 1))[:, None]
                count += len(found) - 1
            yield np.array([[corpus.num_tokens + shift * count]])

        if corpus.block_documents is None:
            self._starts, self.starts = (np.concatenate([*starts(shift)])[:, 0] for shift in (False, end is not None))
        else:
            self._starts, self.starts = (
                corpus.plan("stream", {"lines": lines, "shift": shift}, lambda shift=shift: starts(shift))[:, 0]
                for shift in (False, end is not None)
            )

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        """The token ids at the positions `places` of the stream, int32, in the shape of `places`."""
        # In the dtype of the starts: numpy would copy all of these otherwise.
        number = np.searchsorted(self.starts, np.asarray(places, self.starts.dtype), side="right") - 1
        tokens = self._starts[number] + places - self.starts[number]
        if self._end is None:
            return self._tokens[tokens].astype(np.int32)
        ends = tokens == self._starts[number + 1]
        return np.where(ends, np.int32(self._end), self._tokens[np.where(ends, 0, tokens)].astype(np.int32))
