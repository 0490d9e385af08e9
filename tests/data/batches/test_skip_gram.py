"""Skip-gram's batches: the worked numbers, every pair once a pass, windows over what was dropped, noise by its law."""

from collections import Counter

import numpy as np
import pytest

from kerasbert.data import Corpus, SkipGramBatches, Tokenizer
from kerasbert.data.batches.skip_gram import keep_probabilities, noise_probabilities

pytestmark = pytest.mark.one_backend


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    words = [chr(97 + i) * 2 for i in range(20)]
    rng = np.random.default_rng(0)
    shares = 1 / np.arange(1, 21)
    lines = [" ".join(rng.choice(words, rng.integers(1, 30), p=shares / shares.sum())) for _ in range(300)]
    tokenizer = Tokenizer.train("wordpiece", ["\n".join([" ".join(words)] * 9)], 65, lowercase=True)
    return Corpus.write(tmp_path_factory.mktemp("skip_gram"), ["\n".join(lines)], tokenizer)


def test_the_worked_examples():
    counts = np.array([1_000, 10, 998_990])
    np.testing.assert_allclose(keep_probabilities(counts, 1e-5)[:2], [0.1, 1.0], rtol=1e-6)
    tool = keep_probabilities(np.array([100, 1_000, 8_900]), 1e-3, "code")
    np.testing.assert_allclose(tool[:2], [0.4162, 0.11], atol=5e-5)
    np.testing.assert_allclose(noise_probabilities(np.array([16, 1])), [0.8889, 0.1111], atol=5e-5)
    assert noise_probabilities(np.array([3, 0, 3])).tolist() == [0.5, 0, 0.5]
    assert keep_probabilities(counts, None).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match='"paper" or "code"'):
        keep_probabilities(counts, 1e-5, "tool")


def pairs_of(batches):
    found = Counter()
    for x, y, weights in batches:
        assert (y == np.eye(y.shape[1], dtype=int)[0]).all()
        for word, near in zip(x["token_ids"][:, 0], x["context_ids"][:, 0], strict=True):
            found[int(word), int(near)] += 1
        real = weights[:, 0] > 0
        drawn = x["context_ids"][real, 1:]
        np.testing.assert_array_equal(weights[real, 1:] == 0, drawn == x["context_ids"][real, :1])
        found[0, 0] -= int((~real).sum())
    return +found


def test_every_pair_of_neighbors_once_a_pass(corpus):
    expected = Counter()
    for start, length in zip(corpus.sequence_starts, corpus.lengths, strict=True):
        line = [int(token) for token in corpus.tokens[start : start + length]]
        for one, other in zip(line, line[1:], strict=False):
            expected[one, other] += 1
            expected[other, one] += 1
    batches = SkipGramBatches(corpus, 64, window=1, threshold=None)
    assert pairs_of(batches) == expected


def test_an_update_is_one_step(corpus):
    with pytest.raises(ValueError, match="SkipGramBatches must be one step: its loss is a mean over the pairs"):
        SkipGramBatches(corpus, 64).accumulated(2)


def test_windows_reach_over_dropped_words_and_are_uniform(corpus):
    batches = SkipGramBatches(corpus, 64, window=3, threshold=2e-2, rule="paper", seed=4)
    tokens, left, before = batches._pass(0)
    share = len(tokens) / corpus.num_tokens
    counts = np.bincount(corpus.tokens)
    assert share == pytest.approx((keep_probabilities(counts, 2e-2) * counts).sum() / counts.sum(), abs=0.03)
    assert np.bincount(tokens).max() < 0.5 * counts.max()
    inside = left[left > 0]
    assert set(inside) == {1, 2, 3}
    # The pairs of the pass are those of the text that is left, line by line.
    draws = batches._pass(0)
    assert draws[0] is tokens and len(before) == len(tokens) + 1
    assert sum(pairs_of(batches).values()) == before[-1]


def test_noise_follows_its_law(corpus):
    batches = SkipGramBatches(corpus, 500, negatives=9, steps=60)
    drawn = np.concatenate([x["context_ids"][:, 1:].ravel() for x, _, _ in batches])
    counts = np.bincount(corpus.tokens)
    found = np.bincount(drawn, minlength=len(counts)) / len(drawn)
    np.testing.assert_allclose(found, noise_probabilities(counts), atol=0.004)


def test_a_step_depends_on_the_seed_and_its_number(corpus):
    batches = SkipGramBatches(corpus, 256, steps=200, seed=3)
    step = 150  # beyond the first pass
    assert batches._passes(np.array([step * 256]))[0] > 0
    other = SkipGramBatches(corpus, 256, steps=200, seed=3)
    for one, two in zip(batches[step][0].values(), other[step][0].values(), strict=True):
        np.testing.assert_array_equal(one, two)
    halves = [other.shard(i, 2)[step][0]["context_ids"] for i in range(2)]
    np.testing.assert_array_equal(np.concatenate(halves), batches[step][0]["context_ids"])
    again = SkipGramBatches(corpus, 256, steps=200, seed=5)[step][0]
    assert not np.array_equal(again["token_ids"], batches[step][0]["token_ids"])
    with pytest.raises(ValueError, match="`window` and `negatives`"):
        SkipGramBatches(corpus, 4, window=0)
