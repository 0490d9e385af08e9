"""Plans: which tokens of a corpus make up which row. Tables of integers, built once and memory-mapped.

A plan has one line an instance. Both kinds keep tokens where they are: a line holds starts and lengths only.
"""

from collections.abc import Iterator

import numpy as np

from .sampling import PLAN, Uniform

LANES = 1 << 16  # documents that are cut up side by side; decides memory, and the order of the draws


def document_chunks(document_starts: np.ndarray, max_tokens: int) -> np.ndarray:
    """Contiguous chunks of `max_tokens` inside documents, the last of a document shorter: (n, 2) start, length.

    documents [0, 5, 7], max_tokens 3 -> [[0, 3], [3, 2], [5, 2]]

    Args:
        document_starts: int64 (documents + 1,): where each begins, in tokens; the end last.
    """
    lengths = np.diff(document_starts)
    chunks = -(-lengths // max_tokens)
    first = np.cumsum(chunks) - chunks
    within = (np.arange(chunks.sum()) - np.repeat(first, chunks)) * max_tokens
    starts = np.repeat(document_starts[:-1], chunks) + within
    return np.stack([starts, np.minimum(max_tokens, np.repeat(lengths, chunks) - within)], axis=1)


def segment_pairs(
    sentence_starts: np.ndarray,
    document_starts: np.ndarray,
    max_tokens: int,
    passes: int,
    seed: int,
    short_rate: float = 0.1,
) -> Iterator[np.ndarray]:
    """BERT's pairs of segments, for next-sentence prediction, in blocks of lines ordered by pass and document.

    All documents of a block are cut up side by side, one chunk each at a time (Devlin et al. 2018, appendix A.2, and
    the reference code, whose rules are followed to the letter).

    Args:
        sentence_starts: int64 (sentences + 1,): where each begins, in tokens; the end last. No sentence is empty.
        document_starts: int64 (documents + 1,): where each begins, in sentences; the end last. None is empty.
        max_tokens: tokens of both segments, without special tokens.
        passes: how often all documents are cut up, each time with other draws.
        short_rate: share of documents of a pass that are cut to a random shorter length.

    Yields:
        int64 (n, 6): start and length of A, start and length of B, label (0: B follows A, 1: B is random), pass.
    """
    draw = Uniform(seed, PLAN)
    documents = len(document_starts) - 1
    for first in range(0, passes * documents, LANES):
        lanes = np.arange(first, min(first + LANES, passes * documents))
        plan = _cut_up(sentence_starts, document_starts, lanes, max_tokens, short_rate, draw)
        yield _truncated(plan, max_tokens, draw)


def _cut_up(
    sentences: np.ndarray, documents: np.ndarray, lanes: np.ndarray, max_tokens: int, short_rate: float, draw: Uniform
) -> np.ndarray:
    """Lines of a block before truncation; one round of the loop makes one chunk of every unfinished document."""
    num_documents = len(documents) - 1
    document = lanes % num_documents
    here, end = documents[document], documents[document + 1]
    # The short length holds for a whole document in a pass, not for a chunk.
    short = draw(len(lanes)) < short_rate
    target = np.where(short, 2 + draw.below(np.full(len(lanes), max_tokens - 1)), max_tokens)
    found = []
    while len(lanes):
        stop = np.minimum(np.searchsorted(sentences, sentences[here] + target), end)
        size = stop - here
        size_a = np.where(size == 1, 1, 1 + draw.below(size - 1))
        middle = here + size_a
        random = (size == 1) | (draw(len(lanes)) < 0.5)

        other = draw.below(np.full(len(lanes), num_documents))
        for _ in range(9):  # ten attempts at another document
            same = np.flatnonzero(random & (other == document))
            if not len(same):
                break
            other[same] = draw.below(np.full(len(same), num_documents))
        start_b = documents[other] + draw.below(documents[other + 1] - documents[other])
        missing = np.maximum(1, target - (sentences[middle] - sentences[here]))
        stop_b = np.minimum(np.searchsorted(sentences, sentences[start_b] + missing), documents[other + 1])
        start_b, stop_b = np.where(random, start_b, middle), np.where(random, stop_b, stop)

        starts = sentences[here], sentences[start_b]
        ends = sentences[middle], sentences[stop_b]
        found.append(np.stack([starts[0], ends[0] - starts[0], starts[1], ends[1] - starts[1], random, lanes], axis=1))
        here = np.where(random, middle, stop)  # sentences that a random B left over come again
        going = here < end
        if not going.all():
            lanes, document, here, end, target = (v[going] for v in (lanes, document, here, end, target))
    plan = np.concatenate(found)
    plan = plan[np.argsort(plan[:, 5], kind="stable")]
    plan[:, 5] //= num_documents
    return plan


def _truncated(plan: np.ndarray, max_tokens: int, draw: Uniform) -> np.ndarray:
    """Drops single tokens from the longer segment (B on a tie), front or back by a coin each, until the pair fits."""
    drops_a, drops_b = truncation(plan[:, 1], plan[:, 3], max_tokens)
    drops = np.concatenate([drops_a, drops_b])
    ends = np.cumsum(drops)
    fronts = np.concatenate([[0], np.cumsum(draw.bits(int(ends[-1])), dtype=np.int64)])
    front = fronts[ends] - fronts[ends - drops]
    plan[:, 0] += front[: len(plan)]
    plan[:, 1] -= drops_a
    plan[:, 2] += front[len(plan) :]
    plan[:, 3] -= drops_b
    return plan


def truncation(length_a: np.ndarray, length_b: np.ndarray, max_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """How many tokens each segment loses when the longer one (B on a tie) loses one at a time until both fit.

    lengths 5 and 9, max_tokens 8 -> 1 and 5
    """
    excess = np.maximum(0, length_a + length_b - max_tokens)
    lead = np.minimum(excess, np.abs(length_a - length_b))  # until they are even
    rest = excess - lead  # then in turn, B first
    drops_a = np.where(length_a > length_b, lead, 0) + rest // 2
    return drops_a, excess - drops_a
