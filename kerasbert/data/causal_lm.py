"""Batches for causal language modelling."""

import numpy as np

from .batches import Batches
from .corpora import Corpus
from .sampling import shuffled


class CausalLMBatches(Batches):
    """Contiguous chunks of all text, each token with the one that follows it.

    x: "token_ids" (b, s). y: the next tokens (b, s), weights 1 where there is one. The documents stand one behind the
    other, each followed by the tokenizer's end (or separator) token, if it has one; rows are full but for the last.

    documents [5 6] and [7 8 9], end 2, length 3 -> rows [5 6 2] and [7 8 9], targets [6 2 7] and [8 9 2]

    A run goes through the corpus pass by pass, each in its own order. Paper: Radford et al. 2018, section 4.1.

    Args:
        corpus: a `Corpus` that knows its tokenizer.
        batch_size: rows of an update.
        length: tokens of a row.
        seed: decides the orders.
        steps: updates in the run. Default: one pass over the text, each row once, the last batch filled up with
            rows of padding that weigh nothing.
        accumulation: items that make up an update.
    """

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        length: int,
        seed: int = 0,
        steps: int | None = None,
        accumulation: int = 1,
    ):
        facts = corpus.facts
        if facts is None:
            raise ValueError("The corpus must know its tokenizer. Open it with Corpus.open(path, tokenizer=...).")
        if length < 1:
            raise ValueError(f"`length` must be at least 1. Received: {length}.")
        self.corpus, self.length = corpus, length
        self._end = facts["eos_id"] if facts["eos_id"] is not None else facts["sep_id"]
        self._starts = np.append(corpus.sequence_starts, corpus.num_tokens)[corpus.document_starts]
        # Where each document begins in the stream, which has one more token a document.
        self._places = self._starts + (np.arange(len(self._starts)) if self._end is not None else 0)
        self.num_rows = -(-(int(self._places[-1]) - 1) // length)
        if self.num_rows == 0:
            raise ValueError("A corpus needs two tokens, one to predict from and one to predict. Received: one.")
        self._last_row = None if steps is not None else self.num_rows
        updates = -(-self.num_rows // max(1, batch_size)) if steps is None else steps
        super().__init__(batch_size, updates, seed, accumulation)

    def recipe(self) -> dict:
        return {**super().recipe(), "corpus": self.corpus.fingerprint}

    def _rows(self, update: int, first: int, last: int) -> tuple:
        places = update * self.batch_size + np.arange(first, last)
        rows = np.zeros(len(places), dtype=np.int64)
        passes = places // self.num_rows
        for number in np.unique(passes):
            here = passes == number
            rows[here] = shuffled(places[here] % self.num_rows, self.num_rows, self.seed, int(number))
        columns = rows[:, None] * self.length + np.arange(self.length + 1)
        there = columns < self._places[-1]
        if self._last_row is not None:
            there &= (places < self._last_row)[:, None]
        tokens = np.where(there, self._stream(np.where(there, columns, 0)), np.int32(self.corpus.facts["pad_id"] or 0))
        weights = there[:, 1:].astype(np.float32)
        return {"token_ids": tokens[:, :-1]}, np.where(there[:, 1:], tokens[:, 1:], np.int32(0)), weights

    def _stream(self, places: np.ndarray) -> np.ndarray:
        """The tokens at places of the stream, int32."""
        documents = np.searchsorted(self._places, places, side="right") - 1
        tokens = self._starts[documents] + places - self._places[documents]
        ends = tokens == self._starts[documents + 1]  # never, where documents have no end token
        found = self.corpus.tokens[np.where(ends, 0, tokens)].astype(np.int32)
        return found if self._end is None else np.where(ends, np.int32(self._end), found)
