"""One or two segments a row without a label: the plan of ELECTRA's builder (Clark et al. 2020, arXiv 2003.10555)."""

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
) -> tuple[np.ndarray, np.ndarray]:
    """Examples of whole sentences of a document, each split into a first and perhaps a second segment.

    An example takes sentences until it has `length` tokens, at times fewer, or its document ends. A sentence joins the
    first segment if that is empty, stays below half of the example with it, or, while the second one is empty, is
    below half and a coin says so; otherwise the second. What is too long is cut off and does not come again.

    Args:
        sentences: int64 (sentences + 1,): where each begins, in tokens; the end last. No sentence is empty.
        documents: int64 (documents + 1,): where each begins, in sentences; the end last.
        length: tokens of a row.
        special: how many of them are special tokens, of a single segment and of a pair.
        seed: of the draws.
        short_rate: share of examples with a random length from 5 on.
        single_rate: share of examples that are to be one segment.

    Returns: runs, int64 (n, 2), start and length of contiguous tokens; and rows, int64 (m, 3), the first run of each
        row, and how many make up its first and its second segment.
    """
    draw = Uniform(seed, PLAN)
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

    room = length - special[0] + np.zeros(len(first), dtype=np.int64)
    rooms = np.stack([room, np.maximum(0, length - special[1] - np.minimum(filled[0], room))])
    kept = np.clip(rooms[in_second.astype(np.int64), numbers] - before, 0, sizes)
    group = 2 * numbers + in_second
    order = np.argsort(group, kind="stable")
    order = order[kept[order] > 0]
    group, starts, kept = group[order], sentences[:-1][order], kept[order]
    # Sentences that follow each other in the text and in a segment are one run.
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (group[1:] != group[:-1]) | (starts[1:] != starts[:-1] + kept[:-1])
    runs = np.stack([starts[begins], np.add.reduceat(kept, np.flatnonzero(begins))], axis=1)
    counts = np.bincount(group[begins], minlength=2 * len(first)).reshape(-1, 2)
    totals = counts.sum(axis=1)
    return runs, np.column_stack([np.cumsum(totals) - totals, counts])


def _examples(sentences: np.ndarray, documents: np.ndarray, length: int, short_rate: float, draw: Uniform) -> tuple:
    """First sentence, the one behind the last, and wanted tokens of every example, in the order of the text."""
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
