"""The bars of the tiny recipes, on arrays whose values follow from a few fractions."""

import math

import numpy as np
import pytest

from benchmarks.studies.suite.ngram_model import NgramModel
from benchmarks.studies.tiny_recipes.bars import (
    Origins,
    auc,
    bag_losses,
    bigram_losses,
    bigram_scores,
    compared,
    entropy,
    frequency_pair_losses,
    frequency_scores,
    majority,
    mean,
    standard_error,
    unigram_losses,
)

pytestmark = pytest.mark.one_backend


def surprise(*shares: float) -> list:
    return pytest.approx([-math.log(share) for share in shares], rel=1e-12)


def test_unigrams_count_one_more_of_every_token():
    found = unigram_losses(np.array([0, 0, 0, 1]), np.array([5, 1]))
    assert found.tolist() == surprise(*[6 / 8] * 3, 2 / 8)


def test_unigrams_use_the_power_that_fits_the_targets():
    """Counts 15 and 0 are 16 to 1, and the square root of that is 4 to 1, which is how the targets are."""
    found = unigram_losses(np.array([0, 0, 0, 0, 1]), np.array([15, 0]))
    assert found.tolist() == surprise(*[4 / 5] * 4, 1 / 5)


def test_bigrams_read_the_token_before():
    """0 is always followed by 1. Kneser-Ney keeps a share of the counts for what has not been seen."""
    model = NgramModel(np.array([0, 1, 2] * 20), 3, order=2)
    found = bigram_losses(model, np.array([0, 0, 1]), np.array([1, 2, 2]))
    assert found[0] < -math.log(0.9) < -math.log(0.1) < found[1]
    for context in range(3):
        each = bigram_losses(model, np.full(3, context), np.arange(3))
        assert np.exp(-each).sum() == pytest.approx(1, rel=1e-12)
        one = model.log_probabilities(np.array([context, 2]))[1]
        assert each[2] == pytest.approx(-one, rel=1e-12)


def test_bags_with_and_without_what_was_said():
    shown, targets = np.array([[7, 7, 8, -1]]), np.array([[7, 8, 7, -1, -1]])
    whole, rest = bag_losses(shown, targets)
    assert whole.tolist() == surprise(2 / 3, 1 / 3, 2 / 3)
    assert rest.tolist() == surprise(2 / 3, 1 / 2, 1)


def test_the_rest_of_a_bag_costs_the_number_of_orders():
    """Of 2, 1 and 1 tokens there are 4! / 2! orders."""
    shown, targets = np.array([[5, 3, 5, 4], [1, 1, 1, 2]]), np.array([[5, 5, 3, 4], [2, 1, 1, 1]])
    _, rest = bag_losses(shown, targets)
    assert rest.reshape(2, 4).sum(axis=1).tolist() == pytest.approx([math.log(12), math.log(4)])


def test_a_target_that_is_not_shown_costs_as_much_as_one_token():
    whole, rest = bag_losses(np.array([[7, 7, 8, 8]]), np.array([[9, 9]]))
    assert whole.tolist() == surprise(1 / 4, 1 / 4)
    assert rest.tolist() == surprise(1 / 4, 1 / 3)


def test_pairs_of_words_by_frequency():
    """Word 0 is near with 0.6 and noise with 0.1: with two negatives, odds 3. Word 1: 0.4 against 2 x 0.4, odds 1/2."""
    near, noise = np.array([0.6, 0.4]), np.array([0.1, 0.4])
    candidates, labels = np.array([[0, 1, 1]]), np.array([[1, 0, 0]])
    found = frequency_pair_losses(candidates, labels, np.array([[1.0, 1.0, 0.0]]), near, noise)
    assert found.tolist() == surprise(3 / 4 * 2 / 3)


def test_replaced_tokens_are_what_the_generator_writes_where_it_does_not_fit():
    generated, original = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    scores = frequency_scores(np.array([0, 1, 2]), generated, original)
    assert scores.tolist() == pytest.approx([math.log(2), 0, -math.log(2)])
    lifts = np.log([[2.0, 1.0, 0.5], [1.0, 4.0, 1.0]])
    assert bigram_scores(scores, lifts).tolist() == pytest.approx([0, -math.log(4), 0])


def test_area_under_the_curve():
    assert auc(np.array([1, 2, 2, 3]), np.array([0, 0, 1, 1])) == 3.5 / 4
    assert auc(np.array([1, 2, 3]), np.array([1, 0, 0])) == 0
    assert auc(np.zeros(5), np.array([1, 0, 0, 1, 1])) == 0.5
    assert auc(np.arange(3), np.zeros(3)) == 0.5


def test_labels():
    labels = np.array([1, 1, 1, 0])
    assert majority(labels) == 0.75
    assert entropy(labels) == pytest.approx(0.75 * math.log(4 / 3) + 0.25 * math.log(4))
    assert entropy(np.ones(3)) == 0


def test_origins_are_where_most_ngrams_occur_alone():
    text = np.array([1, 2, 3, 4, 9, 9, 9, 5, 6, 7, 9, 9, 9])
    origins = Origins(text, np.array([0, 7]), size=3)
    rows = np.array([[1, 2, 3, 4, 0], [0, 5, 6, 7, 9], [0, 9, 9, 9, 0], [1, 2, 3, 0, 0]])
    assert origins(rows).tolist() == [0, 1, -1, 0]
    assert origins(np.array([[1, 2]])).tolist() == [-1]  # shorter than an n-gram


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = np.array([1.0, 2.0, 4.0, 7.0])
    expected = values.std(ddof=1) / 2
    assert standard_error(mean(values), np.arange(4)) == pytest.approx(expected)
    twice = np.repeat(values, 3)  # three observations of each unit are no more information than one
    assert standard_error(mean(twice), np.repeat(np.arange(4), 3)) == pytest.approx(expected)
    assert math.isnan(standard_error(mean(values), np.zeros(4)))


def test_units_of_different_size():
    """Without unit 0 the mean is 4, without unit 1 it is 1: the jackknife's error is sqrt(1/2 (1.5^2 + 1.5^2))."""
    values, units = np.array([0.0, 2.0, 4.0]), np.array([0, 0, 1])
    assert standard_error(mean(values), units) == pytest.approx(1.5)


def test_a_comparison_is_with_the_best_bar():
    losses = np.array([1.0, 2.0, 3.0])
    bars = {"unigrams": mean(np.array([4.0, 4.0, 4.0])), "bigrams": mean(np.array([3.0, 3.0, 3.0]))}
    found = compared(mean(losses), bars, np.arange(3))
    assert found == {
        "value": 2.0,
        "bars": {"unigrams": 4.0, "bigrams": 3.0},
        "bar": "bigrams",
        "gain": 1.0,
        "error": pytest.approx(1 / math.sqrt(3)),
        "units": 3,
    }
    found = compared(mean(losses), bars, np.arange(3), higher=True)
    assert (found["bar"], found["gain"]) == ("unigrams", -2.0)


def test_an_accuracy_is_compared_with_the_majority_of_the_same_labels():
    labels, answers = np.array([1, 1, 0, 1]), np.array([1, 1, 0, 0])
    right = (labels == answers).astype(float)
    found = compared(mean(right), {"majority": lambda chosen: majority(labels[chosen])}, np.arange(4), higher=True)
    assert (found["value"], found["bars"], found["gain"]) == (0.75, {"majority": 0.75}, 0.0)
    # Without one of them: 2/3 - 2/3 twice, 2/3 - 1, 1 - 2/3.
    assert found["error"] == pytest.approx(math.sqrt(3 / 4 * 2 / 9))
