"""Encodes texts without special tokens, for models that give each token a vector or a weight of its own."""

from collections.abc import Sequence

import numpy as np

from ..data.tokenizers.tokenizer import Tokenizer


def unmarked_rows(tokenizer: Tokenizer, texts: Sequence[str], length: int) -> list[np.ndarray]:
    """The token ids of texts, at most `length` of each, without special tokens, int32."""
    return [row[:length] for row in tokenizer.encode(texts, add_special_tokens=False)]


def encode_unmarked(tokenizer: Tokenizer, texts: Sequence[str], length: int) -> dict[str, np.ndarray]:
    """Encodes texts without special tokens as a batch, with the keys of `encode_texts`. A row may have no tokens."""
    rows, left = unmarked_rows(tokenizer, texts, length), tokenizer.padding_side == "left"
    width = max([1, *map(len, rows)])
    ids = np.zeros((len(rows), width), "int32")
    for array, row in zip(ids, rows, strict=True):
        array[slice(width - len(row), None) if left else slice(len(row))] = row
    lengths = np.array([len(row) for row in rows], "int32")
    found = {"token_ids": ids}
    if left:
        found["padding_mask"] = np.arange(width)[::-1] < lengths[:, None]
    else:
        found["lengths"] = lengths
    if tokenizer.has_segments:
        found["segment_ids"] = np.zeros_like(ids)
    return found
