"""Targets and factorization orders for permutation language modeling (arXiv 1906.08237 and its code).

Random numbers are passed in as 32-bit integers, a fixed number per row, as in `corruption`.
"""

from dataclasses import dataclass

import numpy as np

from .corruption import choose_tokens, sort_keys


@dataclass(frozen=True)
class SpanTargets:
    """Selects the tokens to predict in spans of 1 to `longest` tokens, as XLNet does.

    The probability of a span of n tokens is proportional to 1 / n. A span of n tokens has `partial` * n tokens of
    context. Spans are placed from left to right: first a random part of the context, then the span, which begins at the
    next word, and then the rest of the context. A span that would reach the end of the row is dropped, and no more
    spans are placed. If too few tokens are selected, random single tokens are added.

    Args:
        partial: number of context tokens per token of a span (K in section 2.3). One in K tokens is predicted.
        longest: maximum number of tokens in a span.
        whole_words: whether the length of spans is measured in words, as in the paper, or in tokens, as in the official
            code. A word is truncated only if the maximum number of predictions is reached.
        max_predictions: maximum number of tokens to predict per row. Default: length // partial.

    Raises:
        ValueError: if `partial`, `longest` or `max_predictions` is below 1.
    """

    partial: int = 6
    longest: int = 5
    whole_words: bool = False
    max_predictions: int | None = None

    def __post_init__(self):
        if self.partial < 1 or self.longest < 1 or (self.max_predictions or 1) < 1:
            raise ValueError(
                "`partial`, `longest` and `max_predictions` must be at least 1. Received: "
                f"{self.partial}, {self.longest}, {self.max_predictions}."
            )

    def num_slots(self, length: int) -> int:
        """Number of tokens to predict in a row of `length` tokens."""
        return self.max_predictions or max(1, length // self.partial)

    def num_draws(self, length: int, goal: int) -> int:
        """Number of 32-bit random integers needed per row: two for each span, plus those of `choose_tokens`."""
        return 2 * self._turns(length, goal) + length // 2 + 2

    def _turns(self, length: int, goal: int) -> int:
        return min(goal, -(-length // (1 + self.partial)))

    def __call__(self, starts: np.ndarray, goal: int, draws: np.ndarray) -> np.ndarray:
        """Selects the tokens to predict.

        Args:
            starts: bool (b, s), True at tokens that begin a word.
            goal: number of tokens to predict per row.
            draws: random integers, uint32 (b, n), where n is at least `num_draws(s, goal)`.

        Returns: bool (b, s), True at the tokens to predict, min(goal, s) per row.
        """
        rows, length = starts.shape
        turns = self._turns(length, goal)
        shares = np.cumsum(1 / np.arange(1, self.longest + 1))
        sizes = 1 + np.searchsorted(shares[:-1] / shares[-1] * 2.0**32, draws[:, : 2 * turns : 2].T, side="right")
        if not self.whole_words:  # the number of tokens still to be selected is known in advance
            sizes = np.clip(goal - (np.cumsum(sizes, axis=0) - sizes), 0, sizes)
        context = sizes * self.partial
        before = (draws[:, 1 : 2 * turns : 2].T * context) >> 32
        begins, ends = self._walk(starts, sizes, before, context - before)

        # Drop the first span that would reach the end, and all later ones. Truncate the spans at the goal.
        inside = np.logical_and.accumulate(ends < length, axis=0)
        begins, found = begins * inside, (ends - begins) * inside
        found = np.clip(goal - (np.cumsum(found, axis=0) - found), 0, found)
        places = np.arange(rows) * (length + 1)
        edges = [
            np.bincount((places + edge).ravel(), minlength=rows * (length + 1)) for edge in (begins, begins + found)
        ]
        chosen = np.cumsum((edges[0] - edges[1]).reshape(rows, length + 1)[:, :length], axis=1) > 0
        left = goal - found.sum(axis=0)
        if left.any():
            extra = choose_tokens(~chosen, np.minimum(left, goal), goal, draws[:, 2 * turns :])
            used = extra >= 0
            chosen[np.nonzero(used)[0], extra[used]] = True
        return chosen

    def _walk(
        self, starts: np.ndarray, sizes: np.ndarray, before: np.ndarray, after: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Computes the start and end of each span, int64 (spans, b), from its size and its context before and after."""
        rows, length = starts.shape
        # The start of the next word for each position, including as many positions after the end as a span can reach.
        # All rows are in one flat array, so that one index gives the row and the position.
        width = length + 2 + self.longest * (1 + 2 * self.partial)
        places = np.arange(0, rows * width, width)
        here = np.zeros((rows, width), dtype=bool)
        here[:, :length] = starts
        words = np.flatnonzero(here)
        following = np.repeat(places + length, width)
        following[words] = words
        following = np.minimum.accumulate(following[::-1])[::-1].copy()  # contiguous, which makes `take` fast

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
            cursor = end + after[turn]
        return begins - places, ends - places


def random_order(length: int, size: int, draws: np.ndarray) -> np.ndarray:
    """Draws a random factorization order for each row: the rank of every token, int32 (b, length).

    Tokens are permuted within chunks. All chunks of a row have the same permutation, and the chunks stay in order.

    Args:
        length: number of tokens per row.
        size: number of tokens per chunk, which divides `length`.
        draws: uint32 (b, at least size // 2 + 2).
    """
    keys, low, scramble = sort_keys(size, draws)
    keys.sort(axis=1)
    order = (keys & low) ^ scramble
    return (np.arange(0, length, size)[:, None] + order[:, None]).reshape(len(draws), length).astype(np.int32)


def order_ranks(hidden: np.ndarray, special: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Computes ranks of tokens as queries and as keys: token i attends to token j if query_ranks[i] > key_ranks[j].

    Hidden tokens are the tokens to predict. Plain tokens are neither hidden nor special. As in the official code, all
    tokens attend to plain tokens. Hidden and special tokens attend to the hidden and special tokens before them in the
    order, and a special token attends to itself, too. Plain tokens attend to plain tokens only.

    tokens a b c SEP, of which b and c are hidden, order [2 0 3 1] -> query_ranks [0 0 3 2], key_ranks [-1 0 3 1]

    Args:
        hidden: bool (b, s), True at the tokens to predict.
        special: bool (b, s), True at special tokens.
        order: int32 (b, s), the result of `random_order`.

    Returns: query_ranks in [0, s] and key_ranks in [-1, s), int32 (b, s).
    """
    keys = np.where(hidden | special, order, np.int32(-1))
    return np.where(hidden & ~special, keys, keys + np.int32(1)), keys
