"""Batches of whole texts: deleted words for TSDAE, and texts as they are for SimCSE."""

import numpy as np
import pytest

from kerasbert.data import Corpus, TSDAEBatches, WholeTextBatches
from kerasbert.data.noise.deletion import kept_tokens, without_others
from tests.data.batches.test_batches import same

pytestmark = pytest.mark.one_backend


def test_worked_examples():
    text, starts = np.ones((1, 5), bool), np.ones((1, 5), bool)
    kept = kept_tokens(text, starts, np.array([[0.7, 0.2, 0.61, 0.6, 0.1, 0.0]]), 0.6)
    assert kept.tolist() == [[True, False, True, False, False]]  # A B C D E -> A C; .6 is not above .6
    last = [kept_tokens(text, starts, np.array([[0.1] * 5 + [u]]), 0.6)[0].tolist().index(True) for u in (0, 0.5, 0.99)]
    assert last == [0, 2, 4]
    # [CLS] a ##b c [SEP] [PAD]: a word is kept or deleted as a whole; special tokens are kept.
    text, starts = np.array([[0, 1, 1, 1, 0, 0]], bool), np.array([[1, 0, 0, 1, 1, 1]], bool)
    kept = kept_tokens(text, starts, np.array([[0, 0.9, 0, 0.3, 0, 0, 0]]), 0.6)
    assert kept.tolist() == [[True, True, True, False, True, True]]
    moved, lengths = without_others(np.array([[5, 6, 7, 8]], "int32"), np.array([[1, 0, 0, 1]], bool), 0)
    assert (moved.tolist(), lengths.tolist()) == ([[5, 8, 0, 0]], [2])


def test_words_are_deleted_at_random(corpus):
    shares = []
    for x, y, weights in TSDAEBatches(corpus, 8, 32, steps=40):
        whole = np.concatenate([x["decoder_token_ids"][:, :1], y], 1)
        same(x["decoder_token_ids"], whole[:, :-1])
        for row, length in enumerate(weights.sum(1).astype(int) + 1):
            ids, left = whole[row, :length], x["token_ids"][row, : x["lengths"][row]]
            assert left[0] == ids[0] and left[-1] == ids[-1] and not x["token_ids"][row, len(left) :].any()
            rest = iter(ids)
            assert all(token in rest for token in left) and len(left) > 2  # in their order
            shares.append((len(left) - 2) / (length - 2))
    assert abs(np.mean(shares) - 0.4) < 0.04


def test_whole_texts(corpus):
    x, y, weights = WholeTextBatches(corpus, 5, 32, seed=2)[0]
    assert x.keys() == {"token_ids", "lengths"} and y.tolist() == [0, 1, 2, 3, 4] and weights.tolist() == [1] * 5
    last = WholeTextBatches(corpus, 7, 32)
    assert last[-1][2].sum() == (last.num_rows - 1) % 7 + 1
    hosts = [WholeTextBatches(corpus, 4, 32).shard(index, 2)[0] for index in range(2)]
    assert np.concatenate([host[1] for host in hosts]).tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="each text is compared with all texts of the update"):
        WholeTextBatches(corpus, 4, 32).accumulated(2)


def test_rows_do_not_depend_on_how_they_are_split(corpus):
    whole, parts = TSDAEBatches(corpus, 4, 24, steps=3), TSDAEBatches(corpus, 4, 24, steps=3).accumulated(2)
    for step in range(3):
        same(whole[step], TSDAEBatches(corpus, 4, 24, steps=3).starting_at(step)[0])
        for key in whole[step][0]:
            halves = np.concatenate([parts[2 * step + half][0][key] for half in (0, 1)])
            np.testing.assert_array_equal(halves, whole[step][0][key])


def test_texts_of_one_token_and_bad_input(corpus, wordpiece):
    x, y, weights = TSDAEBatches(Corpus.in_memory(["e"], wordpiece), 1, 8)[0]
    assert x["lengths"].tolist() == [3] and weights.sum() == 2  # the only word is kept
    with pytest.raises(ValueError, match="above 0 and below 1. Received: 1"):
        TSDAEBatches(corpus, 4, 24, deletion=1.0)
    for cls in (TSDAEBatches, WholeTextBatches):
        with pytest.raises(ValueError, match=f"{cls.__name__} needs rows of one text"):
            cls(corpus, 4, 24, rows="packed")
