"""Probabilities by Kneser-Ney, calculated by hand and by a slow implementation of the formulas."""

import math
from collections import Counter

import numpy as np
import pytest

from benchmarks.studies.suite.ngram_model import NgramModel, Ngrams, Unigrams, Words, discounts, words
from kerasbert.data import Tokenizer

pytestmark = pytest.mark.one_backend


def test_discounts():
    # n1 = 4, n2 = 2, n3 = 1, n4 = 1, so that Y = n1 / (n1 + 2 n2) = 1/2.
    expected = [0, 1 - 2 * 0.5 * 2 / 4, 2 - 3 * 0.5 * 1 / 2, 3 - 4 * 0.5 * 1 / 1]
    np.testing.assert_allclose(discounts(np.array([1, 1, 1, 1, 2, 2, 3, 4, 9])), expected)
    np.testing.assert_array_equal(discounts(np.array([1, 1, 2, 9])), [0, 0.5, 1, 1.5])


def test_a_text_by_hand():
    """a b a b a c b: the bigrams are ab 2, ba 2, ac, cb; left of a: b, left of b: a and c, left of c: a."""
    a, b, c, d = range(4)
    model = NgramModel(np.array([a, b, a, b, a, c, b]), vocabulary_size=4, order=2)
    unigrams = {a: 0.5 / 4 + 0.5 / 4, b: 1 / 4 + 0.5 / 4, c: 0.5 / 4 + 0.5 / 4, d: 0.5 / 4}
    after_a = {a: 0.5 * 0.25, b: 1 / 3 + 0.5 * 0.375, c: 0.5 / 3 + 0.5 * 0.25, d: 0.5 * 0.125}
    assert sum(unigrams.values()) == pytest.approx(1) and sum(after_a.values()) == pytest.approx(1)
    for token in (a, b, c, d):
        found = np.exp(model.log_probabilities([a, token]))
        np.testing.assert_allclose(found, [unigrams[a], after_a[token]])
        # After d, which the text does not have, there are only the unigrams.
        np.testing.assert_allclose(np.exp(model.log_probabilities([d, token]))[1], unigrams[token])


def reference(ids, vocabulary_size, order):
    """The probability of a token after a context, both as tuples, straight from the formulas."""
    grams = {n: Counter(tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)) for n in range(1, order + 1)}
    counts = {n: Counter(gram[1:] for gram in grams[n + 1]) for n in range(1, order)} | {order: grams[order]}

    def discount(n, count):
        return float(discounts(np.array(list(counts[n].values())))[min(count, 3)])

    removed = {n: {count: discount(n, count) for count in (0, 1, 2, 3)} for n in counts}

    def probability(context, token):
        n = len(context) + 1
        lower = probability(context[1:], token) if context else 1 / vocabulary_size
        followers = {gram: count for gram, count in counts[n].items() if gram[:-1] == context}
        total = sum(followers.values())
        if not total:
            return lower
        count = counts[n][(*context, token)]
        backoff = sum(removed[n][min(count, 3)] for count in followers.values()) / total
        return max(count - removed[n][min(count, 3)], 0) / total + backoff * lower

    return probability


def test_a_random_text():
    """All probabilities of all contexts equal the reference, and sum to 1."""
    ids = np.random.default_rng(0).zipf(1.3, 3000) % 11
    model, expected = NgramModel(ids, vocabulary_size=12, order=3), reference(ids.tolist(), 12, 3)
    contexts = [(x, y) for x in (0, 1, 2, 7, 11) for y in (1, 3, 10, 11)]
    for context in contexts:
        found = np.exp([model.log_probabilities([*context, token])[2] for token in range(12)])
        np.testing.assert_allclose(found, [expected(context, token) for token in range(12)], rtol=1e-9)
        assert found.sum() == pytest.approx(1)
    # What lies further back than two tokens does not matter.
    np.testing.assert_array_equal(model.log_probabilities([5, 1, 3, 2])[3], model.log_probabilities([1, 3, 2])[2])
    assert len(model.log_probabilities([])) == 0


def test_the_order_pays():
    ids = np.tile([0, 1, 0, 2], 200)  # what follows 0 depends on the token before it
    losses = [-NgramModel(ids, 3, order).log_probabilities(ids).mean() for order in (1, 2, 3)]
    assert losses[0] > 1 and losses[1] == pytest.approx(math.log(2) / 2, abs=0.05) and losses[2] < 0.05


def test_words_of_a_text():
    assert words("“He’s here,” said Ann-Marie—1 day.") == ["he's", "here", ",", "said", "ann", "marie", "day", "."]
    read = Words(["The cat sat.", "the cat ran"])
    assert read.ids.tolist() == [1, 2, 3, 4, 1, 2, 5]
    assert read.counts() == {"": 0, "the": 2, "cat": 2, "sat": 1, ".": 1, "ran": 1}
    assert [row.tolist() for row in read.encode(["Cat the dog."])] == [[2, 1, 0, 4]]


def test_unigrams_have_add_one_smoothing():
    found = Unigrams({"a": 3, "b": 1}).score(["a b", "b a", "c"])  # with an unknown word, 7 counts in total
    assert found == [math.log(4 / 7) + math.log(2 / 7)] * 2 + [math.log(1 / 7)]


def test_sentences_begin_after_a_full_stop():
    texts = ["the cat sat. the dog ran. the cat ran."] * 3
    read = Words(texts)
    model = NgramModel(read.ids, len(read.vocabulary), 3)
    (found,) = Ngrams(model, read).score(["The dog sat."])
    ids = [read.vocabulary[word] for word in (".", "the", "dog", "sat", ".")]
    assert found == pytest.approx(model.log_probabilities(ids)[1:].sum())
    tokenizer = Tokenizer.train("wordpiece", texts, 30, lowercase=True)
    pieces = NgramModel(np.concatenate(tokenizer.encode(texts, add_special_tokens=False)), 30, 3)
    (found,) = Ngrams(pieces, tokenizer).score(["The dog sat."])
    (row,) = tokenizer.encode([". the dog sat."], add_special_tokens=False)
    assert found == pytest.approx(pieces.log_probabilities(row)[1:].sum())


def test_texts_that_are_too_short_or_out_of_range():
    for ids, size, order in (([0, 1], 2, 2), ([0, 1, 2], 2, 1), ([0, -1, 1], 2, 1), ([0, 1, 1], 2, 0)):
        with pytest.raises(ValueError, match="longer than its order, of ids below the vocabulary size. Received: "):
            NgramModel(np.array(ids), size, order)
