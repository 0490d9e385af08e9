"""Keeps generated texts from repeating themselves: a penalty on earlier tokens, and no n-gram twice."""

import dataclasses
from typing import Any

import numpy as np
from keras import ops


@dataclasses.dataclass(frozen=True)
class History:
    """All tokens so far of r sequences: the prompt, which is padded on the left, and the new tokens.

    Args:
        tokens: int32 (r, p + n), the prompt in the first p columns.
        real: bool (r, p + n), False at padding and at tokens that are yet to come.
        end: int32 (), p and the number of new tokens.
    """

    tokens: Any
    real: Any
    end: Any

    @classmethod
    def of(cls, prompts, tokens, step):
        """The history of each row of `tokens`, int32 (r, n), of which `step` are there; r is a multiple of the prompts.

        Args:
            prompts: (token ids int32 (b, p), bool (b, p)).
        """
        branches = tokens.shape[0] // prompts[0].shape[0]
        before: Any = ops.repeat(prompts[0], branches, axis=0)
        real: Any = ops.repeat(prompts[1], branches, axis=0)
        there = ops.broadcast_to(ops.arange(tokens.shape[1]) < step, tokens.shape)
        return cls(
            ops.concatenate([before, tokens], axis=1),
            ops.concatenate([real, there], axis=1),
            before.shape[1] + step,
        )


def without_repetition(scores, history, options):
    """Applies `repetition_penalty` and `no_repeat_ngram_size` of the options to the scores (r, v) of the next tokens.

    The penalty divides positive scores of tokens that have occurred, and multiplies negative ones (Keskar et al. 2019,
    "CTRL", section 4.1, as transformers applies it). A token that would complete an n-gram that has occurred gets -inf
    (Paulus et al. 2017, section 2.5).
    """
    size, penalty, width = options.no_repeat_ngram_size, options.repetition_penalty, scores.shape[-1]
    if penalty is not None:
        lowered = ops.where(scores < 0, scores * penalty, scores / penalty)
        scores = ops.where(_marked(history.tokens, history.real, width), lowered, scores)
    if not 0 < size <= history.tokens.shape[1]:
        return scores
    count = history.tokens.shape[1] - size + 1  # of places at which an n-gram may begin
    found = history.real[:, :count] & history.real[:, size - 1 :]
    for offset in range(size - 1):
        latest: Any = ops.take(history.tokens, ops.maximum(history.end - size + 1 + offset, 0), axis=1)
        found = found & (history.tokens[:, offset : offset + count] == latest[:, None])
    return ops.where(_marked(history.tokens[:, size - 1 :], found, width), -np.inf, scores)


def _marked(tokens, flags, width):
    """bool (r, width), True at the tokens of a row of `tokens` (r, n) whose `flags` (r, n) are True."""
    rows = tokens.shape[0]
    first = ops.reshape(width * ops.arange(rows, dtype="int32"), (-1, 1))
    flat = ops.reshape(tokens + first, (-1,))
    counts = ops.segment_sum(ops.reshape(ops.cast(flags, "int32"), (-1,)), flat, rows * width)
    return ops.cast(ops.reshape(counts, (rows, width)), "bool")
