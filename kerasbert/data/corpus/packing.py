"""Computes plans: tables that say which tokens of a corpus make up each row.

A plan has one entry per row. An entry consists of a few integers, the starts and lengths of text in the corpus.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from ..sampling import PLAN, Uniform

LANES = 1 << 16  # number of documents that are split in parallel; affects memory use and random draws


def document_chunks(document_starts: np.ndarray, max_tokens: int) -> np.ndarray:
    """Splits every document into contiguous chunks of `max_tokens` tokens. The last chunk may be shorter.

    document_starts [0, 5, 7], max_tokens 3 -> [[0, 3], [3, 2], [5, 2]]

    Args:
        document_starts: int64 (documents + 1,), start of each document in tokens, followed by the number of tokens.
        max_tokens: maximum number of tokens per chunk.

    Returns: int64 (chunks, 2), start and length of each chunk in tokens.
    """
    lengths = np.diff(document_starts)
    chunks = -(-lengths // max_tokens)
    first = np.cumsum(chunks) - chunks
    within = (np.arange(chunks.sum()) - np.repeat(first, chunks)) * max_tokens
    starts = np.repeat(document_starts[:-1], chunks) + within
    return np.stack([starts, np.minimum(max_tokens, np.repeat(lengths, chunks) - within)], axis=1)


def sentence_blocks(sizes: np.ndarray, limit: int, document_ends: np.ndarray | None = None) -> np.ndarray:
    """Groups consecutive lines of text into blocks, each of as many whole lines as fit.

    sizes 5 4 1 6 3, limit 10 -> [[0, 3], [3, 2]]

    Args:
        sizes: int (lines,): the size of each line.
        limit: maximum sum of the sizes in a block. A larger line becomes a block by itself.
        document_ends: bool (lines,): True for lines that only mark the end of a document. Such a line ends a block and
            is not part of it.

    Returns: int64 (blocks, 2), the index of the first line and the number of lines of each block.
    """
    ends = np.append(0, np.cumsum(sizes))
    lines = np.arange(len(sizes))
    following = np.maximum(np.searchsorted(ends, ends[:-1] + limit, side="right") - 1, lines + 1)
    begin = 0
    if document_ends is not None:
        closes = np.flatnonzero(np.append(document_ends, True))
        close = closes[np.searchsorted(closes, lines)]
        following = np.minimum(following, np.maximum(close, lines))
        # After the line that marks the end of a document, continue with the first line of the next document.
        jumps = np.append(np.where(document_ends, lines + 1, following), len(sizes)).tolist()
    else:
        jumps = following.tolist()
    starts = []
    while begin < len(sizes):
        starts.append(begin)
        begin = jumps[begin]
    starts = np.array(starts, dtype=np.int64)
    blocks = np.stack([starts, following[starts] - starts], axis=1)
    return blocks[blocks[:, 1] > 0]


def whole_sentences(sentence_starts: np.ndarray, document_starts: np.ndarray, max_tokens: int) -> np.ndarray:
    """Splits every document into rows of as many whole sentences as fit.

    A sentence longer than `max_tokens` is left out. The next sentence begins a new row, as in SpanBERT's code.

    sentence_starts [0, 4, 7, 20, 25], one document, max_tokens 8 -> [[0, 7], [20, 5]]

    Args:
        sentence_starts: int64 (sentences + 1,), start of each sentence in tokens, followed by the number of tokens.
        document_starts: int64 (documents + 1,), start of each document in sentences, followed by the number of
            sentences.
        max_tokens: maximum number of tokens per row.

    Returns: int64 (rows, 2), start and length of each row in tokens.
    """
    here, end = document_starts[:-1], document_starts[1:]
    found = [np.zeros((0, 2), dtype=np.int64)]
    while len(here):  # the next row of every unfinished document
        stop = np.searchsorted(sentence_starts, sentence_starts[here] + max_tokens, side="right") - 1
        stop = np.minimum(stop, end)
        fits = stop > here
        starts = sentence_starts[here]
        found.append(np.stack([starts, sentence_starts[stop] - starts], axis=1)[fits])
        here = np.where(fits, stop, here + 1)
        going = here < end
        here, end = here[going], end[going]
    rows = np.concatenate(found)
    return rows[np.argsort(rows[:, 0], kind="stable")]


def segment_pairs(
    sentence_starts: np.ndarray,
    document_starts: np.ndarray,
    max_tokens: int,
    passes: int,
    seed: int,
    short_rate: float = 0.1,
    kind: Literal["next", "sentences", "order"] = "next",
    lone: Literal["random", "skip"] = "random",
    stream: int = 0,
) -> Iterator[np.ndarray]:
    """Plans labeled pairs of segments A and B, ordered by pass and document.

    The rules are those of Devlin et al. 2018, appendix A.2, and of the reference code. Many documents are split in
    parallel, one chunk of each at a time.

    Args:
        sentence_starts: int64 (sentences + 1,), start of each sentence in tokens, followed by the number of tokens. No
            sentence may be empty.
        document_starts: int64 (documents + 1,), start of each document in sentences, followed by the number of
            sentences. No document may be empty.
        max_tokens: maximum number of tokens in both segments together, without special tokens.
        passes: how many times all documents are split, each time with different random draws.
        seed: seed of the random draws.
        short_rate: share of documents in each pass that are split into chunks of a random shorter length.
        kind: "next" (label 1: B is from another document), "sentences" (the same with single sentences, as in RoBERTa's
            SENTENCE-PAIR), or "order" (label 1: A and B are swapped; Lan et al. 2019, section 3.1). Label 0 always
            means that B follows A.
        lone: treatment of a chunk that has only one sentence, with kind="order". "random" pairs it with a random B and
            label 1, as in ALBERT's code. "skip" leaves it out.
        stream: which random numbers of the seed to use; see `Block.stream`.

    Yields:
        int64 (n, 6): start and length of A, start and length of B (all in tokens), label, and number of the pass.
    """
    draw = Uniform(seed, PLAN, stream)
    documents = len(document_starts) - 1
    for first in range(0, passes * documents, LANES):
        lanes = np.arange(first, min(first + LANES, passes * documents))
        plan = _untruncated_pairs(sentence_starts, document_starts, lanes, max_tokens, short_rate, draw, kind, lone)
        yield _truncated(plan, max_tokens, draw)


def _untruncated_pairs(
    sentences: np.ndarray,
    documents: np.ndarray,
    lanes: np.ndarray,
    max_tokens: int,
    short_rate: float,
    draw: Uniform,
    kind: str = "next",
    lone: str = "random",
) -> np.ndarray:
    """Yields the entries of one block of the plan, before truncation.

    Every iteration of the loop makes one pair from each unfinished document.
    """
    num_documents = len(documents) - 1
    document = lanes % num_documents
    here, end = documents[document], documents[document + 1]
    # A short length is drawn once for a document and pass, and applies to all its chunks.
    short = draw(len(lanes)) < (0 if kind == "sentences" else short_rate)
    target = np.where(short, 2 + draw.below(np.full(len(lanes), max_tokens - 1)), max_tokens)
    found = []
    while len(lanes):
        stop = here + 2 if kind == "sentences" else np.searchsorted(sentences, sentences[here] + target)
        stop = np.minimum(stop, end)
        size = stop - here
        size_a = np.where(size == 1, 1, 1 + draw.below(size - 1))
        middle = here + size_a
        coin = draw(len(lanes)) < 0.5
        random = (size == 1) if kind == "order" else (size == 1) | coin

        other = _other_documents(document, random, num_documents, draw)
        start_b = documents[other] + draw.below(documents[other + 1] - documents[other])
        missing = np.maximum(1, target - (sentences[middle] - sentences[here]))
        stop_b = start_b + 1 if kind == "sentences" else np.searchsorted(sentences, sentences[start_b] + missing)
        stop_b = np.minimum(stop_b, documents[other + 1])
        start_b, stop_b = np.where(random, start_b, middle), np.where(random, stop_b, stop)

        starts = sentences[here], sentences[start_b]
        ends = sentences[middle], sentences[stop_b]
        lines = np.stack([starts[0], ends[0] - starts[0], starts[1], ends[1] - starts[1], random, lanes], axis=1)
        if kind == "order":
            swapped = coin & ~random
            lines[swapped] = lines[swapped][:, [2, 3, 0, 1, 4, 5]]
            lines[:, 4] |= swapped
            lines = lines[~random] if lone == "skip" else lines
        found.append(lines)
        here = np.where(random, middle, stop)  # a random B leaves the sentences in its place to the next chunk
        going = here < end
        if not going.all():
            lanes, document, here, end, target = (v[going] for v in (lanes, document, here, end, target))
    plan = np.concatenate(found)
    plan = plan[np.argsort(plan[:, 5], kind="stable")]
    plan[:, 5] //= num_documents
    return plan


def _other_documents(document: np.ndarray, random: np.ndarray, num_documents: int, draw: Uniform) -> np.ndarray:
    """Draws a document for each pair. Where `random`, it is drawn up to ten times, until it is not `document`."""
    other = draw.below(np.full(len(document), num_documents))
    for _ in range(9):
        same = np.flatnonzero(random & (other == document))
        if not len(same):
            break
        other[same] = draw.below(np.full(len(same), num_documents))
    return other


def _truncated(plan: np.ndarray, max_tokens: int, draw: Uniform) -> np.ndarray:
    """Truncates pairs to `max_tokens` tokens.

    Tokens are dropped one by one from the longer segment (B on a tie), each at a random end.
    """
    drops_a, drops_b = truncation(plan[:, 1], plan[:, 3], max_tokens)
    drops = np.concatenate([drops_a, drops_b])
    ends = np.cumsum(drops)
    fronts = np.concatenate([[0], np.cumsum(draw.bits(int(drops.sum())), dtype=np.int64)])
    front = fronts[ends] - fronts[ends - drops]
    plan[:, 0] += front[: len(plan)]
    plan[:, 1] -= drops_a
    plan[:, 2] += front[len(plan) :]
    plan[:, 3] -= drops_b
    return plan


def truncation(length_a: np.ndarray, length_b: np.ndarray, max_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Number of tokens to drop from A and from B, if they are dropped one by one from the longer segment (B on a tie).

    lengths 5 and 9, max_tokens 8 -> 1 and 5
    """
    excess = np.maximum(0, length_a + length_b - max_tokens)
    lead = np.minimum(excess, np.abs(length_a - length_b))  # dropped before both have the same length
    rest = excess - lead  # dropped alternately after that, from B first
    drops_a = np.where(length_a > length_b, lead, 0) + rest // 2
    return drops_a, excess - drops_a
