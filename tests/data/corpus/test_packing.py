"""BERT's pairs of segments, by scripted draws and beside a slow implementation of the sheet's rules."""

import random

import numpy as np
import pytest

from kerasbert.data.corpus import packing
from kerasbert.data.corpus.packing import document_chunks, segment_pairs, truncation

pytestmark = pytest.mark.one_backend


def test_document_chunks():
    assert document_chunks(np.array([0, 5, 7]), 3).tolist() == [[0, 3], [3, 2], [5, 2]]
    assert document_chunks(np.array([0, 6, 6, 7]), 3).tolist() == [[0, 3], [3, 3], [6, 1]]


def test_truncation_drops_from_the_longer_and_from_b_on_a_tie():
    for length_a in range(1, 14):
        for length_b in range(1, 14):
            a, b = length_a, length_b
            while a + b > 8:
                if a > b:
                    a -= 1
                else:
                    b -= 1
            drops = truncation(np.array(length_a), np.array(length_b), 8)
            assert (length_a - drops[0], length_b - drops[1]) == (a, b)


class Script:
    """Stands in for the random draws: the given integers and coins, in the order in which they are asked for."""

    def __init__(self, coins, integers, bits=()):
        self.coins, self.integers, self.given_bits = list(coins), list(integers), list(bits)

    def __call__(self, size):
        return np.array([self.coins.pop(0) for _ in range(size)])

    def below(self, limit):
        values = np.array([self.integers.pop(0) for _ in limit])
        assert (values < np.maximum(limit, 1)).all()
        return values

    def bits(self, size):
        return np.array([self.given_bits.pop(0) for _ in range(size)], dtype=np.uint8)


def cut_up(script, sentences, documents, max_tokens, lanes=(0,)):
    starts = np.concatenate([[0], np.cumsum(sentences)])
    return packing._untruncated_pairs(starts, np.array(documents), np.array(lanes), max_tokens, 0.1, script)


FULL = 0.5  # no short target: at least the rate of 0.1


def test_a_random_b_returns_the_rest_of_the_chunk():
    # Sentences of 2 tokens, target 6: a chunk is s0 s1 s2. A is s0, B is random: the next chunk starts at s1.
    sentences, documents = [2] * 4 + [3, 3], [0, 4, 6]
    draws = Script(
        # short?, then a coin a chunk
        coins=[FULL, 0.4, 0.4, 0.4, 0.4],
        # target, then a chunk: size of A - 1, document, sentence
        integers=[0, *(0, 1, 0), *(0, 1, 1), *(0, 1, 0), *(0, 1, 1)],
    )
    plan = cut_up(draws, sentences, documents, 6)
    assert plan[:, [0, 1]].tolist() == [[0, 2], [2, 2], [4, 2], [6, 2]]
    # B: whole sentences until target - |A| = 4 tokens, or the end of the document.
    assert plan[:, [2, 3]].tolist() == [[8, 6], [11, 3], [8, 6], [11, 3]]
    assert plan[:, 4].tolist() == [1, 1, 1, 1]


def test_a_true_b_takes_the_whole_chunk():
    draws = Script(coins=[FULL, 0.6, 0.6], integers=[0, *(0, 1, 0), *(0, 1, 0)])
    plan = cut_up(draws, [2] * 4 + [3, 3], [0, 4, 6], 6)
    # s0 | s1 s2, then s3 alone: one sentence, so B is random although the coin says otherwise.
    assert plan.tolist() == [[0, 2, 2, 4, 0, 0], [6, 2, 8, 6, 1, 0]]
    assert not draws.integers and not draws.coins


def test_ten_attempts_at_another_document():
    draws = Script(coins=[FULL, 0.4, 0.4], integers=[0, *(0, 0), *[0] * 8, 1, 0, *(0, 0), *[0] * 9, 1])
    plan = cut_up(draws, [6, 6, 1], [0, 2, 3], 6)
    # The tenth attempt finds document 1; the second chunk ends its attempts in its own document and keeps the label.
    assert plan.tolist() == [[0, 6, 12, 1, 1, 0], [6, 6, 6, 6, 1, 0]]
    assert not draws.integers


def test_a_short_target_holds_for_the_whole_document():
    draws = Script(coins=[0.05, 0.6, 0.6], integers=[2, *(0, 0, 0), *(0, 0, 0)])
    plan = cut_up(draws, [2, 2, 2, 2], [0, 4], 10)
    assert plan[:, :5].tolist() == [[0, 2, 2, 2, 0], [4, 2, 6, 2, 0]]


def test_truncation_by_a_coin_a_token():
    plan = np.array([[100, 6, 200, 5, 0, 0], [10, 1, 20, 9, 1, 0], [1, 2, 5, 2, 1, 0]])
    # Drops: A 2, B 1 / B 2 / none; 1 = front.
    draws = Script([], [], bits=[1, 0, 1, 1, 1])
    out = packing._truncated(plan, 8, draws)
    assert out[:, :4].tolist() == [[101, 4, 201, 4], [10, 1, 22, 7], [1, 2, 5, 2]]


def slow_pairs(documents, max_tokens, random):
    """The sheet's rules for one pass, with Python's own random numbers: (length A, length B, label) of every pair."""
    pairs = []
    for number, document in enumerate(documents):
        target = random.randint(2, max_tokens) if random.random() < 0.1 else max_tokens
        chunk, i = [], 0
        while i < len(document):
            chunk.append(document[i])
            if i == len(document) - 1 or sum(chunk) >= target:
                size_a = random.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
                a = sum(chunk[:size_a])
                is_random = len(chunk) == 1 or random.random() < 0.5
                if is_random:
                    for _ in range(10):
                        other = random.randrange(len(documents))
                        if other != number:
                            break
                    b = 0
                    for sentence in documents[other][random.randrange(len(documents[other])) :]:
                        b += sentence
                        if b >= target - a:
                            break
                    i -= len(chunk) - size_a
                else:
                    b = sum(chunk[size_a:])
                while a + b > max_tokens:
                    if a > b:
                        a -= 1
                    else:
                        b -= 1
                pairs.append((a, b, int(is_random)))
                chunk = []
            i += 1
    return np.array(pairs)


def test_pairs_are_distributed_as_in_a_slow_implementation():
    generator = random.Random(0)
    documents = [[generator.randint(1, 30) for _ in range(generator.randint(1, 40))] for _ in range(60)]
    sentences = np.concatenate([[0], np.cumsum([s for document in documents for s in document])])
    starts = np.concatenate([[0], np.cumsum([len(document) for document in documents])])
    passes = 40
    slow = [slow_pairs(documents, 61, generator) for _ in range(passes)]
    fast = np.concatenate(list(segment_pairs(sentences, starts, 61, passes, seed=0)))
    per_pass = np.bincount(fast[:, 5])
    assert len(per_pass) == passes
    assert abs(per_pass.mean() - np.mean([len(pairs) for pairs in slow])) < 0.02 * per_pass.mean()
    slow, fast = np.concatenate(slow), fast[:, [1, 3, 4]]
    for column in range(3):
        error = np.sqrt(slow[:, column].var() / len(slow) + fast[:, column].var() / len(fast))
        assert abs(slow[:, column].mean() - fast[:, column].mean()) < 5 * error
    for function in (lambda p: p[:, 0] + p[:, 1] == 61, lambda p: p[:, 0] > p[:, 1], lambda p: p[:, :2].min(1) == 1):
        shares = function(slow).mean(), function(fast).mean()
        assert abs(shares[0] - shares[1]) < 5 * np.sqrt(0.5 / len(slow)), shares


def test_invariants_of_a_plan():
    generator = np.random.default_rng(0)
    sizes = generator.integers(1, 50, 500)
    sentences = np.concatenate([[0], np.cumsum(sizes)])
    documents = np.unique(np.concatenate([[0, 500], generator.integers(1, 500, 30)]))
    plan = np.concatenate(list(segment_pairs(sentences, documents, 60, 3, seed=1)))
    assert plan.dtype == np.int64
    a, length_a, b, length_b, label, number = plan.T
    assert (length_a >= 1).all() and (length_b >= 1).all() and (length_a + length_b <= 60).all()
    assert (np.diff(number) >= 0).all() and set(number) == {0, 1, 2}
    bounds = sentences[documents]

    def document_of(start, length):
        first = np.searchsorted(bounds, start, side="right")
        assert (first == np.searchsorted(bounds, start + length - 1, side="right")).all()
        return first

    document_a, document_b = document_of(a, length_a), document_of(b, length_b)
    true = label == 0
    assert (document_a[true] == document_b[true]).all()
    assert (document_a[~true] != document_b[~true]).all()
    assert (b[true] >= (a + length_a)[true]).all()
    assert 0.4 < label.mean() < 0.8
    # Every sentence of a document is the start of some chunk or inside one: coverage is complete over passes.
    again = np.concatenate(list(segment_pairs(sentences, documents, 60, 3, seed=1)))
    np.testing.assert_array_equal(plan, again)
    other = np.concatenate(list(segment_pairs(sentences, documents, 60, 3, seed=2)))
    assert plan.shape != other.shape or (plan != other).any()


def test_blocks_change_nothing_but_the_draws(monkeypatch):
    sentences, documents = np.arange(0, 101, 1) * 5, np.arange(0, 101, 10)
    monkeypatch.setattr(packing, "LANES", 7)
    blocks = list(segment_pairs(sentences, documents, 30, 2, seed=0))
    assert len(blocks) == 3
    plan = np.concatenate(blocks)
    assert (np.diff(plan[:, 5]) >= 0).all() and set(plan[:, 5]) == {0, 1}
    starts = set((plan[:, 0] // 50).tolist())
    assert starts == set(range(10))


@pytest.mark.parametrize("sizes", [[5], [1], [400]])
def test_one_sentence_is_enough(sizes):
    sentences = np.concatenate([[0], np.cumsum(sizes)])
    plan = np.concatenate(list(segment_pairs(sentences, np.array([0, 1]), 20, 2, seed=0)))
    assert plan[:, 4].tolist() == [1, 1]
    assert (plan[:, 1] + plan[:, 3] <= 20).all()
