"""Batches for causal language modeling."""

import numpy as np

from ..corpus.corpus import Corpus
from ..corpus.streams import TokenStream
from .batches import Batches
from .passes import PassBatches, tokenizer_info_of


class CausalLMBatches(PassBatches):
    """Contiguous chunks of the whole text. The target of each token is the next token.

    x: "token_ids" (b, s), and "language_ids" (b, s) if a language is given. y: the next tokens (b, s). The weight is 1
    where there is a next token, and 0 elsewhere. Documents are concatenated, each followed by the tokenizer's end (or
    separator) token if it has one. All rows except the last are full.

    documents [5 6] and [7 8 9], end 2, length 3 -> rows [5 6 2] and [7 8 9], targets [6 2 7] and [8 9 2]

    A run makes passes over the corpus, each in a different order. Papers: Radford et al. 2018, section 4.1; Lample,
    Conneau 2019, arXiv 1901.07291, section 3.2 (CLM, with `lines` and `language`).

    Args:
        corpus: a `Corpus` that knows its tokenizer.
        batch_size: rows per update.
        length: tokens per row.
        seed: seed of the order of the rows.
        steps: number of updates in the run. Default: one pass over the text, with padding rows of weight 0 at the end
            of the last batch.
        lines: whether the end token follows every line instead of every document.
        language: language id of all tokens, for XLM.

    Raises:
        ValueError: if the corpus does not know its tokenizer, has fewer than two tokens, or `length` is below 1.

    Example:
        >>> from kerasbert.data import CausalLMBatches, Corpus, Tokenizer
        >>> tokenizer = Tokenizer.from_preset("bert_mini_en")
        >>> corpus = Corpus.in_memory(["the cat sat on the mat"], tokenizer)
        >>> x, y, sample_weight = CausalLMBatches(corpus, batch_size=1, length=6)[0]
        >>> tokenizer.decode(x["token_ids"][0])
        'the cat sat on the mat'
        >>> tokenizer.decode(y[0], skip_special_tokens=False)
        'cat sat on the mat [SEP]'
    """

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        length: int,
        seed: int = 0,
        steps: int | None = None,
        lines: bool = False,
        language: int | None = None,
    ):
        self._stream = _checked_stream(corpus, length, lines)
        self.corpus, self.length, self.lines, self.language = corpus, length, lines, language
        rows = -(-(len(self._stream) - 1) // length)
        super().__init__(batch_size, (0, rows), seed, steps)

    def recipe(self) -> dict:
        further = {
            name: getattr(self, name) for name in ("lines", "language") if getattr(self, name) not in (False, None)
        }
        return {**super().recipe(), "corpus": self.corpus.fingerprint, **further}

    def _rows(self, update: int, first: int, last: int) -> tuple:
        lines, _ = self._places(update, first, last)
        columns = lines[:, None] * self.length + np.arange(self.length + 1)
        there = (columns < len(self._stream)) & (lines >= 0)[:, None]
        tokens, targets, weights = _aligned(self._stream, columns, there, self.corpus.tokenizer_info["pad_id"])
        x = {"token_ids": tokens}
        if self.language is not None:
            x["language_ids"] = np.full_like(tokens, self.language)
        return x, targets, weights


class StreamBatches(Batches):
    """Parallel streams of text for a model with a memory: each row continues where the same row of the last step ended.

    x: "token_ids" (b, s), and "stream_start" (b,), True for rows that do not continue. y: the next tokens (b, s). The
    weight is 1 where there is a next token, and 0 elsewhere. Documents are concatenated as in `CausalLMBatches`. The
    text is divided into as many columns of equal length as there are rows, and step n reads segment n of every column
    (Dai et al. 2019, arXiv 1901.02860).

    stream 1 2 3 4 5 6 7, 2 rows, length 2 -> [1 2] [4 5], targets [2 3] [5 6]; [3 4] [6 7], targets [4 .] [7 .]

    Every token but the first is a target once per pass. At the start of every pass, "stream_start" is True.

    Args:
        corpus: a `Corpus` that knows its tokenizer.
        batch_size: number of parallel streams.
        length: tokens per segment.
        steps: number of updates in the run. Default: one pass over the text.
        lines: whether the end token follows every line instead of every document.

    Raises:
        ValueError: if the corpus does not know its tokenizer, has fewer than two tokens, or `length` is below 1.
    """

    single_step = "rows continue from step to step"

    def __init__(self, corpus: Corpus, batch_size: int, length: int, steps: int | None = None, lines: bool = False):
        self._stream = _checked_stream(corpus, length, lines)
        self.corpus, self.length, self.lines = corpus, length, lines
        self._column = -(-(len(self._stream) - 1) // max(1, batch_size))
        self.steps_per_pass = -(-self._column // length)
        super().__init__(batch_size, self.steps_per_pass if steps is None else steps)

    def recipe(self) -> dict:
        return {**super().recipe(), "corpus": self.corpus.fingerprint, "lines": self.lines}

    def _rows(self, update: int, first: int, last: int) -> tuple:
        segment = update % self.steps_per_pass
        rows = np.arange(first, last)
        places = segment * self.length + np.arange(self.length + 1)
        columns = rows[:, None] * self._column + places
        # The last target of a column is the first token of the next.
        there = (places <= self._column) & (columns < len(self._stream))
        tokens, targets, weights = _aligned(self._stream, columns, there, self.corpus.tokenizer_info["pad_id"])
        return {"token_ids": tokens, "stream_start": np.full(len(rows), segment == 0)}, targets, weights


def _checked_stream(corpus: Corpus, length: int, lines: bool) -> TokenStream:
    info = tokenizer_info_of(corpus)
    if length < 1:
        raise ValueError(f"`length` must be at least 1. Received: {length}.")
    stream = TokenStream(corpus, info["eos_id"] if info["eos_id"] is not None else info["sep_id"], lines)
    if len(stream) < 2:
        raise ValueError("A corpus needs at least two tokens, one to read and one to predict. Received: fewer.")
    return stream


def _aligned(stream: TokenStream, columns: np.ndarray, there: np.ndarray, pad_id: int | None) -> tuple:
    """Returns the tokens, the next tokens and the weights, each (b, s).

    Args:
        columns: int (b, s + 1), positions in the stream.
        there: bool (b, s + 1), False at positions without a token.
    """
    tokens = np.where(there, stream[np.where(there, columns, 0)], np.int32(pad_id or 0))
    return tokens[:, :-1], np.where(there[:, 1:], tokens[:, 1:], np.int32(0)), there[:, 1:].astype(np.float32)
