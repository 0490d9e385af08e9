"""How many examples have more tokens than a model reads, which cuts them. Keras is not imported here."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasbert.data.batches.bucketing import row_lengths
from kerasbert.data.tasks.choices import encode_choices
from kerasbert.data.tasks.examples import encode_texts

UNLIMITED = 2**30  # tokens


def longest_rows(tokenizer: Any, examples: Sequence[Sequence]) -> np.ndarray:
    """Number of tokens in the longest row of each example, int (n,). A row is a text or a pair of texts."""
    lengths = iter(row_lengths(encode_texts(tokenizer, [row for rows in examples for row in rows], UNLIMITED)))
    return np.array([max(next(lengths) for _ in rows) for rows in examples])


def longest_choices(tokenizer: Any, examples: Sequence) -> np.ndarray:
    """Number of tokens in the longest row of each multiple-choice example, int (n,)."""
    return row_lengths(encode_choices(tokenizer, list(examples), UNLIMITED))


def cut_sentence(cut: int, total: int, limit: int, what: str) -> str | None:
    """Says how many are cut: "3 of 120 texts are longer than 128 tokens and are cut". None for 0."""
    verb = "is" if cut == 1 else "are"
    return f"{cut:,} of {total:,} {what} {verb} longer than {limit} tokens and {verb} cut" if cut else None


def say_cut(sentence: str | None) -> None:
    """Prints a sentence about cut texts to standard error, beside the results on standard output."""
    if sentence:
        print(sentence, file=sys.stderr)
