"""Blocks: the consecutive documents for which a plan is built at once, in memory that does not depend on the corpus."""

import dataclasses

import numpy as np

_PASS_BITS = 40  # the number of a pass is stored above the number of a block


@dataclasses.dataclass(frozen=True)
class Block:
    """Consecutive documents of a corpus.

    Attributes:
        number: number of the block in the corpus.
        sentences: int64 (sentences + 1,): where each begins in `corpus.tokens`, followed by the end of the block.
        documents: int64 (documents + 1,): where each begins in `sentences`, followed by the end.
    """

    number: int
    sentences: np.ndarray
    documents: np.ndarray

    @property
    def document_tokens(self) -> np.ndarray:
        """Where each document begins in `corpus.tokens`, followed by the end of the block."""
        return self.sentences[self.documents]

    def stream(self, number: int = 0) -> int:
        """Which random numbers the block uses in a pass: those of step `stream` of a seed; see `sampling`."""
        return (number << _PASS_BITS) + self.number


def num_blocks(documents: int, size: int) -> int:
    """Number of blocks of `size` documents; the last one takes the documents that remain.

    7 documents, size 3 -> 2
    """
    return max(1, documents // size)


def block_range(number: int, documents: int, size: int) -> tuple[int, int]:
    """First and last (exclusive) document of a block of a corpus.

    block 1 of 7 documents, size 3 -> (3, 7)
    """
    return number * size, documents if number + 1 == num_blocks(documents, size) else (number + 1) * size
