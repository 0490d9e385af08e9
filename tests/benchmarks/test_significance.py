"""Standard errors, the paired t-test and Holm's correction, against closed forms, SciPy and published examples."""

import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.significance import (
    holm,
    mean_and_error,
    paired_t_test,
    pairs_needed,
    power,
    share_error,
    spearman_error,
    verdict,
)

pytestmark = pytest.mark.one_backend


def test_mean_and_standard_error():
    assert mean_and_error([1, 2, 3, 4]) == (2.5, pytest.approx(math.sqrt(5 / 3) / 2))
    mean, error = mean_and_error([7.0])
    assert mean == 7.0 and math.isnan(error)


def test_paired_t_test_by_hand():
    """Two pairs have one degree of freedom, the Cauchy distribution; three have two, which also has a closed form."""
    found = paired_t_test([3.0, 5.0], [2.0, 2.0])  # differences 1 and 3: mean 2, standard error 1, t = 2
    assert (found.mean, found.error) == (2.0, pytest.approx(1.0))
    assert found.p == pytest.approx(1 - 2 * math.atan(2) / math.pi, abs=1e-12)
    found = paired_t_test([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])  # mean 2, standard error 1 / sqrt(3)
    t = 2 * math.sqrt(3)
    assert found.p == pytest.approx(1 - t / math.sqrt(2 + t * t), abs=1e-12)


def test_paired_t_test_of_student_1908():
    """Hours of sleep gained with two drugs, the example of Student 1908: t = 4.0621 with 9 degrees of freedom."""
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = paired_t_test(second, first)
    assert found.mean == pytest.approx(1.58)
    assert found.mean / found.error == pytest.approx(4.0621, abs=5e-5)
    assert found.p == pytest.approx(0.002833, abs=5e-7)


def test_paired_t_test_agrees_with_scipy():
    draw = np.random.default_rng(0)
    for count in range(2, 8):
        first, second = draw.normal(size=(2, count))
        assert paired_t_test(first, second).p == pytest.approx(stats.ttest_rel(first, second).pvalue, rel=1e-10)


def test_differences_that_do_not_vary():
    assert paired_t_test([1.0, 2.0], [1.0, 2.0]).p == 1.0
    assert paired_t_test([2.0, 3.0], [1.0, 2.0]).p == 0.0
    single = paired_t_test([2.0], [1.0])
    assert single.mean == 1.0 and math.isnan(single.error) and single.p == 1.0


def test_pairs_must_be_complete():
    with pytest.raises(ValueError, match="Received: 2 and 1. Use the same seeds on both sides"):
        paired_t_test([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="Received: 0 and 0"):
        paired_t_test([], [])


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])  # 3 * 0.01, 1 * 0.04 raised to 2 * 0.03
    assert holm([0.4, 0.6]) == pytest.approx([0.8, 0.8])
    assert holm([0.7, 0.7]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


def test_holm_keeps_the_rate_of_false_claims():
    """With six true null hypotheses, 5% of the families have a corrected p-value below 5%; uncorrected, 26%."""
    families = np.random.default_rng(0).random((4000, 6))
    false = np.mean([min(holm(family)) < 0.05 for family in families])
    assert false == pytest.approx(1 - (1 - 0.05 / 6) ** 6, abs=0.01)
    assert np.mean(families.min(axis=1) < 0.05) > 0.2


def test_verdict():
    assert [verdict(1.0, 0.01), verdict(-1.0, 0.01), verdict(1.0, 0.05)] == ["better", "worse", "undecided"]


def test_errors_of_shares_and_correlations():
    assert share_error(0.8, 400) == pytest.approx(0.02)
    assert spearman_error(0.0, 103) == pytest.approx(0.1)
    draw = np.random.default_rng(0)
    pairs = draw.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=(500, 100))
    found = [stats.spearmanr(x).statistic for x in pairs]
    assert spearman_error(float(np.mean(found)), 100) == pytest.approx(np.std(found), rel=0.15)
    assert math.isnan(spearman_error(0.5, 3))


def test_power_of_the_paired_t_test():
    """Against the noncentral t distribution of SciPy."""
    for effect, pairs, level in ((0.5, 34, 0.05), (1.4, 7, 0.0167), (-0.8, 15, 0.05)):
        threshold, shift = stats.t.ppf(1 - level / 2, pairs - 1), effect * math.sqrt(pairs)
        expected = stats.nct.sf(threshold, pairs - 1, shift) + stats.nct.cdf(-threshold, pairs - 1, shift)
        assert power(effect, pairs, level) == pytest.approx(expected, rel=1e-6)
    assert power(0.0, 10) == pytest.approx(0.05)


def test_pairs_needed():
    """Effects that Cohen 1988 calls small, medium and large."""
    assert [pairs_needed(effect) for effect in (0.2, 0.5, 0.8, -0.8)] == [199, 34, 15, 15]
    assert power(0.5, 33) < 0.8 <= power(0.5, 34)
    assert pairs_needed(0.0) is None
