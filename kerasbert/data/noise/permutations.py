"""What permutation language modelling predicts, and in which order (Yang et al. 2019, 1906.08237, and its code).

Randomness comes in as raw 32-bit draws, a fixed number a row, as in `corruption`.
"""

from dataclasses import dataclass

import numpy as np

from .corruption import choose_tokens, sort_keys


@dataclass(frozen=True)
class SpanTargets:
    """Spans of one to `longest` pieces, those of n pieces 1 / n as often, each in a context of `partial` times n.

    A walk through the block: the context before a span is a random part of its context, the span begins at the next
    word, and the rest of the context comes behind it. A span that would reach the end of the block is dropped, and
    ends the walk. What is then missing to the goal is made up by single pieces anywhere.

    Args:
        goal: pieces to predict a block.
        partial: pieces of context for each piece of a span (K of section 2.3).
        longest: most pieces of a span.
        whole_words: count words, as the paper has it; the official code counts pieces. Only the goal cuts a word, after
            the span has its context.
    """

    goal: int
    partial: int = 6
    longest: int = 5
    whole_words: bool = False

    def num_draws(self, length: int) -> int:
        """32-bit draws a row needs: two for each span, and those of `choose_tokens`."""
        return 2 * self._turns(length) + length // 2 + 2

    def _turns(self, length: int) -> int:
        return min(self.goal, -(-length // (1 + self.partial)))

    def __call__(self, starts: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """bool (b, s), True at the pieces to predict; min(goal, s) a row.

        Args:
            starts: bool (b, s): a word begins here.
            draws: uint32 (b, at least `num_draws(s)`).
        """
        rows, length = starts.shape
        turns = self._turns(length)
        shares = np.cumsum(1 / np.arange(1, self.longest + 1))
        sizes = 1 + np.searchsorted(shares[:-1] / shares[-1] * 2.0**32, draws[:, : 2 * turns : 2].T, side="right")
        if not self.whole_words:  # what is left to the goal is known beforehand
            sizes = np.clip(self.goal - (np.cumsum(sizes, axis=0) - sizes), 0, sizes)
        context = sizes * self.partial
        before = (draws[:, 1 : 2 * turns : 2].T * context) >> 32
        begins, ends = self._walk(starts, sizes, before, context - before)

        # From the span that would reach the end on there are none, and none beyond the goal.
        inside = np.logical_and.accumulate(ends < length, axis=0)
        begins, found = begins * inside, (ends - begins) * inside
        found = np.clip(self.goal - (np.cumsum(found, axis=0) - found), 0, found)
        places = np.arange(rows) * (length + 1)
        edges = [
            np.bincount((places + edge).ravel(), minlength=rows * (length + 1)) for edge in (begins, begins + found)
        ]
        chosen = np.cumsum((edges[0] - edges[1]).reshape(rows, length + 1)[:, :length], axis=1) > 0
        left = self.goal - found.sum(axis=0)
        if left.any():
            extra = choose_tokens(~chosen, np.minimum(left, self.goal), self.goal, draws[:, 2 * turns :])
            used = extra >= 0
            chosen[np.nonzero(used)[0], extra[used]] = True
        return chosen

    def _walk(
        self, starts: np.ndarray, sizes: np.ndarray, before: np.ndarray, behind: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Where spans of these sizes begin and end, (turns, b), with so much context before and behind them."""
        rows, length = starts.shape
        # Where the next word begins, seen from any piece and from as far behind the end as a span can lead, where none
        # does: rows of `width` in one array, so that a place in it is a place in a row of the batch.
        width = length + 2 + self.longest * (1 + 2 * self.partial)
        places = np.arange(0, rows * width, width)
        here = np.zeros((rows, width), dtype=bool)
        here[:, :length] = starts
        words = np.flatnonzero(here)
        following = np.repeat(places + length, width)
        following[words] = words
        following = np.minimum.accumulate(following[::-1])[::-1].copy()  # in one piece, which `take` needs

        begins, ends = np.empty((2, *sizes.shape), dtype=np.int64)
        cursor = places
        for turn, size in enumerate(sizes):
            begin = following.take(cursor + before[turn])
            end = begin + size
            if self.whole_words:
                end = begin
                for word in range(self.longest):
                    end = np.where(word < size, following[end + 1], end)
            begins[turn], ends[turn] = begin, end
            cursor = end + behind[turn]
        return begins - places, ends - places


def random_order(length: int, size: int, draws: np.ndarray) -> np.ndarray:
    """int32 (b, length), the place of every token in a random order.

    Tokens are permuted within chunks of `size`, all chunks of a row alike, and the chunks follow each other.

    Args:
        size: divides `length`.
        draws: uint32 (b, at least size // 2 + 2).
    """
    keys, low, scramble = sort_keys(size, draws)
    keys.sort(axis=1)
    order = (keys & low) ^ scramble
    return (np.arange(0, length, size)[:, None] + order[:, None]).reshape(len(draws), length).astype(np.int32)


def order_ranks(hidden: np.ndarray, special: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranks of tokens as queries and as keys: token i sees token j where query_ranks[i] > key_ranks[j].

    Plain tokens see one another. Hidden and special ones are seen by what comes after them in the order only; a hidden
    one does not see itself, a special one does, and no plain one sees either (so the official code has it).

    tokens a b c SEP, hidden b c, order [2 0 3 1] -> query_ranks [0 0 3 2], key_ranks [-1 0 3 1]

    Args:
        hidden, special: bool (b, s).
        order: int32 (b, s), of `random_order`.

    Returns: query_ranks in [0, s], key_ranks in [-1, s), int32 (b, s).
    """
    keys = np.where(hidden | special, order, np.int32(-1))
    return np.where(hidden & ~special, keys, keys + np.int32(1)), keys


def positions_of(chosen: np.ndarray, slots: int) -> np.ndarray:
    """int32 (b, slots): where a row is True, ascending, -1 in unused slots.

    [0 1 0 1], slots 3 -> [1 3 -1]
    """
    rows, columns = np.nonzero(chosen)
    counts = np.count_nonzero(chosen, axis=1)
    positions = np.full((len(chosen), slots), -1, dtype=np.int32)
    positions[rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)] = columns
    return positions
