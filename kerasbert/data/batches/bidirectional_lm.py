"""Batches for bidirectional language models (ELMo), which predict the next and the previous token."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..corpus.corpus import Corpus
from .causal_lm import CausalLMBatches

SENTENCE_START, SENTENCE_END, WORD_START, WORD_END, FILLER = 256, 257, 258, 259, 260
SLOTS = 50  # ids per word, including its start and end marks


def character_ids(sentences: Sequence[Sequence[str]], length: int | None = None, marks: bool = False) -> dict:
    """Converts the words of sentences to ids of their bytes, as ELMo does.

    Each word becomes 50 ids: a start mark, at most the first 48 UTF-8 bytes, an end mark, and filler.
    All ids are shifted by one, because 0 is padding.

    "cat" -> 259 100 98 117 260 261 261 ...

    Args:
        sentences: lists of words.
        length: maximum number of words. Longer sentences are truncated. Default: the length of the longest sentence.
        marks: whether to add one word that marks the start of each sentence and another that marks its end.

    Returns: a dict of "character_ids", int32 (b, s, 50), 0 where there is no word, and "lengths", int32 (b,).
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


def bidirectional_targets(token_ids: np.ndarray, lengths: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Computes the targets of `BidirectionalLM`: the next token ("forward") and the previous token ("backward").

    row 5 6 7 -> forward 6 7 ., backward . 5 6

    Args:
        token_ids: int32 (b, s), padded on the right.
        lengths: int32 (b,), number of tokens in each row.

    Returns: y and weights, dicts of "forward" and "backward", int32 and float32 (b, s). At the ends of a row, where
        there is no next or previous token, the weight is 0.
    """
    token_ids, columns = np.asarray(token_ids, "int32"), np.arange(np.shape(token_ids)[1])
    lengths = np.asarray(lengths)[:, None]
    forward, backward = np.roll(token_ids, -1, axis=1), np.roll(token_ids, 1, axis=1)
    weights = {"forward": columns < lengths - 1, "backward": (columns > 0) & (columns < lengths)}
    y = {"forward": forward, "backward": backward}
    y = {name: np.where(weights[name], ids, np.int32(0)) for name, ids in y.items()}
    return y, {name: weight.astype("float32") for name, weight in weights.items()}


class BidirectionalLMBatches(CausalLMBatches):
    """Contiguous chunks of the whole text. The targets of each token are the next and the previous token.

    x: "token_ids" (b, s), "lengths" (b,), and with `characters` "character_ids" (b, s, 50). y and weights: dicts of
    "forward" and "backward" (b, s). The rows are the same as in `CausalLMBatches`. The forward target of the last token
    of a row is the first token of the following row. The first token of a row has no backward target.

    rows [5 6 2] [7 8 9], end 2 -> forward [6 2 7] [8 9 2], backward [. 5 6] [. 7 8]

    Args:
        corpus: a `Corpus` that knows its tokenizer.
        batch_size: rows per update.
        length: tokens per row.
        characters: whether x also contains the bytes of every token (see `character_ids`). End tokens are then
            represented by the mark of the end of a sentence.
        **options: arguments of `CausalLMBatches`: `seed`, `steps`, `lines`.

    Raises:
        ValueError: as in `CausalLMBatches`.
    """

    def __init__(self, corpus: Corpus, batch_size: int, length: int, characters: bool = False, **options: Any):
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
