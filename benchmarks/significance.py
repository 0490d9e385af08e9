"""Statistics of repeated measurements: standard errors, paired t-tests, their power, and Holm's correction."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Difference:
    """The mean difference of paired measurements, its standard error, and the p-value of a two-sided t-test.

    With fewer than two pairs, there is no test: the standard error is NaN, and p is 1.
    """

    mean: float
    error: float
    p: float


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Computes the mean and its standard error, which is NaN for a single value.

    [1, 2, 3, 4] -> (2.5, 0.6455)
    """
    values = np.asarray(values, "float64")
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(values.mean()), float(error)


def paired_t_test(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Tests whether the mean of first - second is 0, for paired measurements (Student 1908).

    Raises:
        ValueError: the two do not have the same number of measurements.
    """
    if len(first) != len(second) or not len(first):
        raise ValueError(
            "A paired test needs equally many measurements on both sides, one or more. Received: "
            f"{len(first)} and {len(second)}. Use the same seeds on both sides."
        )
    from scipy.special import stdtr

    differences = np.asarray(first, "float64") - np.asarray(second, "float64")
    mean, error = mean_and_error(differences)
    if len(differences) == 1 or not differences.any():
        return Difference(mean, error, 1.0)
    t = abs(mean) / error if error else math.inf
    return Difference(mean, error, float(2 * stdtr(len(differences) - 1, -t)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrects the p-values of several tests, so that the probability of any false positive is at most the level.

    This is the method of Holm 1979. The k-th smallest of m p-values is multiplied by m + 1 - k, and the order of the
    p-values is kept: each result is at least the result of every smaller p-value.

    [0.01, 0.04, 0.03] -> [0.03, 0.06, 0.06]
    """
    p_values = np.asarray(p_values, "float64")
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    corrected = np.empty_like(p_values)
    corrected[order] = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1.0)
    return corrected.tolist()


def power(effect: float, pairs: int, level: float = 0.05) -> float:
    """Computes how likely a paired two-sided t-test is to find a true effect (Cohen 1988).

    Args:
        effect: the true mean of the differences, divided by their standard deviation.
        pairs: number of pairs, 2 or more.
        level: the largest p-value that counts as a finding.
    """
    from scipy.special import nctdtr, stdtrit

    threshold, shift = float(stdtrit(pairs - 1, 1 - level / 2)), abs(effect) * math.sqrt(pairs)
    return float(1 - nctdtr(pairs - 1, shift, threshold) + nctdtr(pairs - 1, shift, -threshold))


def pairs_needed(effect: float, level: float = 0.05, wanted: float = 0.8, most: int = 10_000) -> int | None:
    """Computes the smallest number of pairs with which `power` reaches `wanted`, or None if that takes over `most`."""
    low, high = 1, 2
    while power(effect, high, level) < wanted:
        if high > most:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(effect, middle, level) >= wanted else (middle, high)
    return high


def verdict(difference: float, p: float, level: float = 0.05) -> str:
    """Returns "better" or "worse" if the p-value is below the level, otherwise "undecided"."""
    return "undecided" if not p < level else "better" if difference > 0 else "worse"


def share_error(share: float, count: int) -> float:
    """Computes the standard error of a share of `count` independent examples, such as an accuracy."""
    return math.sqrt(share * (1 - share) / count)


def spearman_error(correlation: float, count: int) -> float:
    """Approximates the standard error of a rank correlation over `count` examples (Bonett, Wright 2000)."""
    return (1 - correlation**2) * math.sqrt((1 + correlation**2 / 2) / (count - 3)) if count > 3 else math.nan
