"""Plans rows of one or two segments without a label, as in ELECTRA's code (Clark et al. 2020, arXiv 2003.10555)."""

import numpy as np

from ..sampling import PLAN, Uniform


def joined_segments(
    sentences: np.ndarray,
    documents: np.ndarray,
    length: int,
    special: tuple[int, int],
    seed: int,
    short_rate: float = 0.05,
    single_rate: float = 0.1,
    block: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Plans examples of whole sentences from one document, each split into one or two segments.

    An example takes sentences until it has its target length (`length`, or sometimes a random smaller number) or until
    its document ends. A sentence joins the first segment if

    - the first segment is empty, or
    - the first segment with this sentence is shorter than half of the target length, or
    - the first segment without this sentence is shorter than half of the target length, the second segment is empty,
    and a random bit says so.

    Otherwise it joins the second segment. Tokens that do not fit are dropped and not used again.

    Args:
        sentences: int64 (sentences + 1,), start of each sentence in tokens, followed by the number of tokens. No
            sentence may be empty.
        documents: int64 (documents + 1,), start of each document in sentences, followed by the number of sentences.
        length: maximum number of tokens per row.
        special: number of special tokens in a row of a single segment and in a row of a pair.
        seed: seed of the random draws.
        short_rate: share of examples with a random target length of at least 5.
        single_rate: share of examples with only one segment.

    Returns: spans, int64 (n, 2), start and length of spans of contiguous tokens; and rows, int64 (m, 3), the index of
        each row's first span, and the number of spans in its first and second segment.
    """
    draw = Uniform(seed, PLAN, block)
    first, stop, target = _examples(sentences, documents, length, short_rate, draw)
    goal = np.where(draw(len(first)) < single_rate, np.iinfo(np.int64).max, (target - special[1]) // 2)
    sizes, numbers = np.diff(sentences), np.repeat(np.arange(len(first)), stop - first)
    in_second, before = np.zeros(len(sizes), dtype=bool), np.zeros(len(sizes), dtype=np.int64)
    filled = np.zeros((2, len(first)), dtype=np.int64)
    lanes, turn = np.arange(len(first)), 0
    while len(lanes):  # the next sentence of every example
        sentence = first[lanes] + turn
        one, two = filled[:, lanes]
        coin = draw(len(lanes)) < 0.5
        joins = (one == 0) | (one + sizes[sentence] < goal[lanes]) | ((two == 0) & (one < goal[lanes]) & coin)
        in_second[sentence], before[sentence] = ~joins, np.where(joins, one, two)
        filled[(~joins).astype(np.int64), lanes] += sizes[sentence]
        turn += 1
        lanes = lanes[first[lanes] + turn < stop[lanes]]

    max_tokens = np.full(len(first), length - special[0])
    capacities = np.stack([max_tokens, np.maximum(0, length - special[1] - np.minimum(filled[0], max_tokens))])
    kept = np.clip(capacities[in_second.astype(np.int64), numbers] - before, 0, sizes)
    return _spans(2 * numbers + in_second, sentences[:-1], kept, len(first))


def _spans(group: np.ndarray, starts: np.ndarray, kept: np.ndarray, examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Joins sentences that are adjacent both in the text and in a segment; see the results of `joined_segments`.

    Args:
        group: int64 (sentences,), twice the index of each sentence's example, plus 1 in the second segment.
        starts, kept: int64 (sentences,), the first token of each sentence, and its number of tokens.
        examples: number of examples.
    """
    order = np.argsort(group, kind="stable")
    order = order[kept[order] > 0]
    group, starts, kept = group[order], starts[order], kept[order]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (group[1:] != group[:-1]) | (starts[1:] != starts[:-1] + kept[:-1])
    spans = np.stack([starts[begins], np.add.reduceat(kept, np.flatnonzero(begins))], axis=1)
    counts = np.bincount(group[begins], minlength=2 * examples).reshape(-1, 2)
    totals = counts.sum(axis=1)
    return spans, np.column_stack([np.cumsum(totals) - totals, counts])


def _examples(sentences: np.ndarray, documents: np.ndarray, length: int, short_rate: float, draw: Uniform) -> tuple:
    """First sentence, last sentence + 1, and target length of every example, in the order of the text."""
    found = []
    here, end = documents[:-1], documents[1:]
    while len(here):  # the next example of every document
        shortest = np.full(len(here), min(5, length))
        some = shortest + draw.below(length + 1 - shortest)
        target = np.where(draw(len(here)) < short_rate, some, length)
        stop = np.minimum(np.searchsorted(sentences, sentences[here] + target), end)
        found.append(np.stack([here, stop, target]))
        going = stop < end
        here, end = stop[going], end[going]
    found = np.concatenate(found, axis=1)
    return tuple(found[:, np.argsort(found[0], kind="stable")])
