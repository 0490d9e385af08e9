"""Batches for bidirectional language models: words as the ids of their bytes, and targets on both sides."""

from collections.abc import Sequence

import numpy as np

from ..corpus.corpus import Corpus
from .causal_lm import CausalLMBatches

SENTENCE_START, SENTENCE_END, WORD_START, WORD_END, FILLER = 256, 257, 258, 259, 260
SLOTS = 50  # per word, including its start and end marks


def character_ids(sentences: Sequence[Sequence[str]], length: int | None = None, marks: bool = False) -> dict:
    """int32 "character_ids" (b, s, 50) and "lengths" (b,) of sentences of words; 0 where there is no word.

    A word consists of its UTF-8 bytes, at most 48, between two marks, followed by filler; all ids are shifted by one,
    as 0 is padding.

    "cat" -> 259 100 98 117 260 261 261 ...

    Args:
        sentences: lists of words.
        length: number of words to which sentences are cut. Default: that of the longest.
        marks: add the words that mark the start and the end of a sentence to each.
    """
    rows = [[_slots(list(word.encode("utf-8"))) for word in sentence] for sentence in sentences]
    if marks:
        rows = [[_slots([SENTENCE_START]), *row, _slots([SENTENCE_END])] for row in rows]
    length = max(map(len, rows), default=0) if length is None else length
    ids = np.zeros((len(rows), length, SLOTS), dtype=np.int32)
    for place, row in zip(ids, rows, strict=True):
        if row[:length]:
            place[: len(row)] = row[:length]
    return {"character_ids": ids, "lengths": np.array([min(len(row), length) for row in rows], dtype=np.int32)}


def bidirectional_targets(token_ids, lengths):
    """(y, weights) for `BidirectionalLM`, for rows padded on the right; no targets lie beyond the ends of a row.

    row 5 6 7 -> forward 6 7 ., backward . 5 6

    Args:
        token_ids: int32 (b, s). lengths: int32 (b,).
    """
    token_ids, columns = np.asarray(token_ids, "int32"), np.arange(np.shape(token_ids)[1])
    lengths = np.asarray(lengths)[:, None]
    forward, backward = np.roll(token_ids, -1, axis=1), np.roll(token_ids, 1, axis=1)
    weights = {"forward": columns < lengths - 1, "backward": (columns > 0) & (columns < lengths)}
    y = {"forward": forward, "backward": backward}
    y = {name: np.where(weights[name], ids, np.int32(0)) for name, ids in y.items()}
    return y, {name: weight.astype("float32") for name, weight in weights.items()}


class BidirectionalLMBatches(CausalLMBatches):
    """Contiguous chunks of all text; the targets of each token are the next token and the previous one.

    x: "token_ids" (b, s), "lengths" (b,), and with `characters` "character_ids" (b, s, 50). y and weights: dicts of
    "forward" and "backward" (b, s). The first token of a row has no previous token; the next token of the last one is
    the first of the next row. Rows are those of `CausalLMBatches`; no state is carried from one to the next.

    rows [5 6 2] [7 8 9], end 2 -> forward [6 2 7] [8 9 2], backward [. 5 6] [. 7 8]

    Args:
        corpus: a `Corpus` that knows its tokenizer.
        batch_size: rows per update.
        length: tokens per row.
        characters: also return the bytes of every token, with the end token as the mark of a sentence's end.
        **options: arguments of `CausalLMBatches`: `seed`, `steps`, `lines`, `accumulation`.
    """

    def __init__(self, corpus: Corpus, batch_size: int, length: int, characters: bool = False, **options):
        super().__init__(corpus, batch_size, length, **options)
        self.characters = characters
        if characters:
            info = self.corpus.tokenizer_info
            words = character_ids([[token] for token in corpus.tokenizer().tokens])["character_ids"][:, 0]
            end = info["sep_id"] if info["eos_id"] is None else info["eos_id"]
            if end is not None:
                words[end] = _slots([SENTENCE_END])
            self._words = words

    def recipe(self) -> dict:
        return {**super().recipe(), "characters": self.characters}

    def _rows(self, update: int, first: int, last: int) -> tuple:
        x, following, weights = super()._rows(update, first, last)
        known = np.count_nonzero(weights, axis=1)
        lengths = np.where((known > 0) & (known < self.length), known + 1, known).astype(np.int32)
        y, sides = bidirectional_targets(x["token_ids"], lengths)
        x["lengths"] = lengths
        if self.characters:
            real = np.arange(self.length) < lengths[:, None]
            x["character_ids"] = np.where(real[..., None], self._words[x["token_ids"]], np.int32(0))
        return x, {**y, "forward": following}, {**sides, "forward": weights}


def _slots(numbers: list[int]) -> list[int]:
    numbers = [WORD_START, *numbers[: SLOTS - 2], WORD_END]
    return [number + 1 for number in numbers + [FILLER] * (SLOTS - len(numbers))]
