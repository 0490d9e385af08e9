"""What the positions of RetroMAE's decoder see: the worked example of the rule, and the share that is hidden."""

import numpy as np
import pytest

from kerasbert.data.noise.visibility import hidden_positions, num_visibility_draws, visible_positions
from kerasbert.data.sampling import SLOTS, row_draws

pytestmark = pytest.mark.one_backend


def test_the_worked_example():
    """[CLS] a b c d [SEP] with the masks of three tokens that each position draws."""
    masks = [{1, 2, 3}, {1, 2, 4}, {2, 3, 4}, {1, 3, 4}]
    hidden = np.zeros((1, 6, 6), bool)
    for row, mask in enumerate((2, 1, 3, 0, 2, 0)):
        hidden[0, row, list(masks[mask])] = True
    found = visible_positions(hidden, np.ones((1, 6), bool))[0]
    assert [np.flatnonzero(row).tolist() for row in found] == [[1, 5], [0, 3, 5], [0, 5], [0, 4, 5], [0, 1, 5], [0, 4]]


def test_the_docstring():
    hidden = np.array([[[0, 1, 1, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 0]]], bool)
    found = visible_positions(hidden, np.array([[1, 1, 1, 0]], bool))
    assert found[0].astype(int).tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]]


def drawn(rate=0.5, most=256, words=1, length=22, rows=40):
    """Masks of rows of two lengths, with a special token at both ends of each."""
    lengths = np.where(np.arange(rows) % 2, length, length - 6)
    columns = np.arange(length)
    candidates = (columns > 0) & (columns < lengths[:, None] - 1)
    starts = np.broadcast_to(columns % words == 1 % words, candidates.shape)
    draws = row_draws(0, 0, SLOTS, 0, rows, num_visibility_draws(length, most))
    return hidden_positions(candidates, starts, lengths, rate, draws, most), candidates, lengths


def test_every_position_draws_a_mask_of_the_right_size():
    for rate in (0.5, 0.7):
        hidden, candidates, lengths = drawn(rate, rows=400)
        wanted = np.minimum(np.rint(rate * lengths), candidates.sum(1))
        np.testing.assert_array_equal(hidden.sum(2), np.broadcast_to(wanted[:, None], hidden.shape[:2]))
        assert not (hidden & ~candidates[:, None, :]).any()
        shares = hidden[1::2].mean((0, 1))[1:-1]  # of rows of one length; every token is hidden equally often
        np.testing.assert_allclose(shares, wanted[1] / (lengths[1] - 2), atol=0.05)


def test_there_are_as_many_masks_as_tokens_or_as_allowed():
    counts = [len(np.unique(row, axis=0)) for row in drawn()[0]]
    assert 10 < np.mean(counts[1::2]) < 22 * 0.75  # drawn with replacement: 1 - 1 / e of the masks
    assert max(len(np.unique(row, axis=0)) for row in drawn(most=3)[0]) <= 3


def test_whole_words_are_hidden():
    hidden, _, _ = drawn(words=2)
    pairs = hidden[1::2, :, 1:-1].reshape(20, 22, 10, 2)
    assert (pairs[..., 0] == pairs[..., 1]).all() and pairs.any()
