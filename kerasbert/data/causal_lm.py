"""Batches for causal language modelling."""

import numpy as np

from .corpora import Corpus
from .passes import PassBatches, facts_of
from .streams import TokenStream


class CausalLMBatches(PassBatches):
    """Contiguous chunks of all text, each token with the one that follows it.

    x: "token_ids" (b, s), and "language_ids" (b, s) if a language is given. y: the next tokens (b, s), weights 1 where
    there is one. The documents stand one behind the other, each followed by the tokenizer's end (or separator) token,
    if it has one; rows are full but for the last.

    documents [5 6] and [7 8 9], end 2, length 3 -> rows [5 6 2] and [7 8 9], targets [6 2 7] and [8 9 2]

    A run goes through the corpus pass by pass, each in its own order. Papers: Radford et al. 2018, section 4.1; with
    `lines` and `language` the CLM of Lample & Conneau 2019, 1901.07291, section 3.2.

    Args:
        corpus: a `Corpus` that knows its tokenizer.
        batch_size: rows of an update.
        length: tokens of a row.
        seed: decides the orders.
        steps: updates in the run. Default: one pass over the text, each row once, the last batch filled up with
            rows of padding that weigh nothing.
        accumulation: items that make up an update.
        lines: the end token stands behind every line, not behind every document.
        language: number of the language, for XLM.
    """

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        length: int,
        seed: int = 0,
        steps: int | None = None,
        accumulation: int = 1,
        lines: bool = False,
        language: int | None = None,
    ):
        facts = facts_of(corpus)
        if length < 1:
            raise ValueError(f"`length` must be at least 1. Received: {length}.")
        self.corpus, self.length, self.lines, self.language = corpus, length, lines, language
        self._stream = TokenStream(corpus, facts["eos_id"] if facts["eos_id"] is not None else facts["sep_id"], lines)
        rows = -(-(len(self._stream) - 1) // length)
        if rows == 0:
            raise ValueError("A corpus needs two tokens, one to predict from and one to predict. Received: one.")
        super().__init__(batch_size, (0, rows), seed, steps, accumulation)

    def recipe(self) -> dict:
        further = {
            name: getattr(self, name) for name in ("lines", "language") if getattr(self, name) not in (False, None)
        }
        return {**super().recipe(), "corpus": self.corpus.fingerprint, **further}

    def _rows(self, update: int, first: int, last: int) -> tuple:
        lines, _ = self._places(update, first, last)
        columns = lines[:, None] * self.length + np.arange(self.length + 1)
        there = (columns < len(self._stream)) & (lines >= 0)[:, None]
        pad = np.int32(self.corpus.facts["pad_id"] or 0)
        tokens = np.where(there, self._stream[np.where(there, columns, 0)], pad)
        x = {"token_ids": tokens[:, :-1]}
        if self.language is not None:
            x["language_ids"] = np.full_like(tokens[:, :-1], self.language)
        return x, np.where(there[:, 1:], tokens[:, 1:], np.int32(0)), there[:, 1:].astype(np.float32)
