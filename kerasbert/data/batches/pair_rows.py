"""Row layouts of labeled pairs of segments, for next-sentence prediction and sentence-order prediction."""

import dataclasses
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np

from ..corpus.corpus import Corpus
from ..corpus.packing import segment_pairs
from .rows import ChunkRows


class PairRows(ChunkRows):
    """Rows of labeled pairs of segments, in the tokenizer's template for two texts (see `SegmentPairs`)."""

    labeled = True
    texts = ("pair", 2)
    kind = "next"

    def __init__(
        self, corpus: Corpus, length: int, seed: int = 0, passes: int = 10, short_rate: float = 0.1, lone: str = "skip"
    ):
        super().__init__(corpus, length)
        if not any(np.diff(block.documents).max() >= 2 for block in corpus.blocks()):
            raise ValueError(
                "Pairs need documents of at least two sentences, one per line. Received: a corpus with one sentence in "
                "each document. Put a line break after each sentence, and write the corpus again."
            )
        # Corpora from other writers may have documents without sentences.
        if self.kind != "order" and len(np.unique(next(corpus.blocks()).documents)) < 3:
            raise ValueError(
                "A random second segment must come from another document, so a corpus needs at least two. Received: "
                "one "
                f"document in {corpus.folder}. Separate documents by a blank line, or use sentence order or rows "
                "without pairs."
            )

        def build() -> Iterator[np.ndarray]:
            # A corpus of one block is split in all passes at once.
            turns = [(0, passes)] if corpus.block_documents is None else [(number, 1) for number in range(passes)]
            for first, count in turns:
                for block in corpus.blocks():
                    rules = (self.max_tokens, count, seed, short_rate, self.kind, lone, block.stream(first))
                    for pairs in segment_pairs(block.sentences, np.unique(block.documents), *rules):
                        pairs[:, 5] += first
                        yield pairs

        settings = {"passes": passes, "seed": seed, "short_rate": short_rate}
        if self.kind != "next":
            settings |= {"kind": self.kind, "lone": lone}
        self.make_plan("segment_pairs", settings, build)
        plan = self.plan
        bounds = [bisect_left(range(len(plan)), number, key=lambda line: plan[line, 5]) for number in range(passes)]
        self.bounds = (*bounds, len(plan))

    def labels(self, lines: np.ndarray) -> np.ndarray:
        return np.where(lines >= 0, self.plan[np.maximum(lines, 0), 4], 0).astype(np.int32)


class SentencePairRows(PairRows):
    """Rows of labeled pairs of single sentences (see `SentencePairs`)."""

    kind = "sentences"


class SentenceOrderRows(PairRows):
    """Rows of consecutive segments, half of them in reverse order (see `SentenceOrder`)."""

    kind = "order"


@dataclasses.dataclass(frozen=True)
class SegmentPairs:
    """BERT's pairs of segments with a label: 0 if B follows A, 1 if B is from another document.

    Args:
        passes: number of passes with different pairs. Later passes use the same pairs again.
        short_sequence_rate: share of documents in each pass that are split into shorter pairs.

    Raises:
        ValueError: if `passes` is below 1, or `short_sequence_rate` is not from 0 to 1. For a corpus, if no document
            has two sentences, or there is one document only.
    """

    passes: int = 10
    short_sequence_rate: float = 0.1
    layout: ClassVar[type[PairRows]] = PairRows

    def __post_init__(self):
        if self.passes < 1 or not 0 <= self.short_sequence_rate <= 1:
            raise ValueError(
                "`passes` must be at least 1, and `short_sequence_rate` must be between 0 and 1. Received: "
                f"{self.passes}, {self.short_sequence_rate}."
            )

    def __call__(self, corpus: Corpus, length: int, seed: int, **options: Any) -> PairRows:
        return self.layout(corpus, length, seed, self.passes, self.short_sequence_rate, **options)


class SentencePairs(SegmentPairs):
    """RoBERTa's pairs of single sentences. The arguments and labels are the same as in `SegmentPairs`.

    Raises:
        ValueError: as in `SegmentPairs`.
    """

    layout = SentencePairRows


@dataclasses.dataclass(frozen=True)
class SentenceOrder(SegmentPairs):
    """ALBERT's pairs of consecutive segments with a label: 0 for the original order, 1 if A and B are swapped.

    Args:
        passes, short_sequence_rate: as in `SegmentPairs`.
        lone_sentences: treatment of a chunk that has only one sentence. "skip" leaves it out. "random" pairs it with a
            random B and label 1, as in ALBERT's code.

    Raises:
        ValueError: if `lone_sentences` is unknown. For a corpus, if no document has two sentences.
    """

    lone_sentences: Literal["skip", "random"] = "skip"
    layout: ClassVar[type[PairRows]] = SentenceOrderRows

    def __post_init__(self):
        super().__post_init__()
        if self.lone_sentences not in ("skip", "random"):
            raise ValueError(f'`lone_sentences` must be "skip" or "random". Received: {self.lone_sentences!r}.')

    def __call__(self, corpus: Corpus, length: int, seed: int) -> PairRows:
        return super().__call__(corpus, length, seed, lone=self.lone_sentences)
