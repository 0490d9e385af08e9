"""Blocks of consecutive documents. Plans are built block by block, so that memory does not depend on the corpus."""

import dataclasses

import numpy as np

_PASS_BITS = 40  # the number of a pass is stored above the number of a block


@dataclasses.dataclass(frozen=True)
class Block:
    """A block of consecutive documents of a corpus.

    Attributes:
        number: number of the block in the corpus.
        sentences: int64 (sentences + 1,), start of each sentence in `corpus.tokens`, followed by the end of the block.
        documents: int64 (documents + 1,), start of each document in `sentences`, followed by the number of sentences.
    """

    number: int
    sentences: np.ndarray
    documents: np.ndarray

    @property
    def document_tokens(self) -> np.ndarray:
        """Start of each document in `corpus.tokens`, followed by the end of the block."""
        return self.sentences[self.documents]

    def stream(self, number: int = 0) -> int:
        """The step of the random numbers that the block uses in a pass; see `sampling`."""
        return (number << _PASS_BITS) + self.number


def num_blocks(documents: int, size: int) -> int:
    """Number of blocks of `size` documents. The last block also contains the remaining documents.

    7 documents, size 3 -> 2
    """
    return max(1, documents // size)


def block_range(number: int, documents: int, size: int) -> tuple[int, int]:
    """Returns the range [first, last) of the documents of a block.

    block 1 of 7 documents, size 3 -> (3, 7)
    """
    return number * size, documents if number + 1 == num_blocks(documents, size) else (number + 1) * size
