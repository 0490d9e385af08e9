"""Sentences for bidirectional language models: words as the numbers of their bytes, and targets on both sides."""

from collections.abc import Sequence

import numpy as np

SENTENCE_START, SENTENCE_END, WORD_START, WORD_END, FILLER = 256, 257, 258, 259, 260
SLOTS = 50  # of a word, its marks included


def character_ids(sentences: Sequence[Sequence[str]], length: int | None = None, marks: bool = False) -> dict:
    """int32 "character_ids" (b, s, 50) and "lengths" (b,) of sentences of words; 0 where there is no word.

    A word is its UTF-8 bytes, at most 48, between two marks, filled up; all numbers are moved by one: 0 is padding.

    "cat" -> 259 100 98 117 260 261 261 ...

    Args:
        sentences: lists of words.
        length: words to which sentences are cut. Default: those of the longest.
        marks: put the words that mark the start and the end of a sentence around each.
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
    """(y, weights) for `BidirectionalLM`, of rows padded on the right; the ends of a row predict nothing beyond it.

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


def _slots(numbers: list[int]) -> list[int]:
    numbers = [WORD_START, *numbers[: SLOTS - 2], WORD_END]
    return [number + 1 for number in numbers + [FILLER] * (SLOTS - len(numbers))]
