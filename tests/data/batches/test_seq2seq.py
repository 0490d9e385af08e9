"""Pairs of sequences: the documented rows, shapes, orders, weights, and bad input."""

import numpy as np
import pytest

from kerasbert.data import Seq2SeqBatches, Seq2SeqLayout, Tokenizer

pytestmark = pytest.mark.one_backend


def pairs(count=23, seed=0):
    rng = np.random.default_rng(seed)
    sources = [rng.integers(2, 50, rng.integers(1, 30)) for _ in range(count)]
    return sources, [rng.integers(2, 50, rng.integers(1, 9)) for _ in range(count)]


def test_the_documented_rows():
    batches = Seq2SeqBatches(
        [[5, 6, 1], [9]], [[7, 8], [3, 1]], batch_size=2, layout=Seq2SeqLayout(end_id=1), seed=None
    )
    x, y, weights = batches[0]
    assert x["token_ids"].tolist() == [[5, 6, 1], [9, 0, 0]] and x["lengths"].tolist() == [3, 1]
    assert x["decoder_token_ids"].tolist() == [[0, 7, 8], [0, 3, 0]] and x["decoder_lengths"].tolist() == [3, 2]
    assert y.tolist() == [[7, 8, 1], [3, 1, 0]]
    assert weights.tolist() == [[1, 1, 1], [1, 1, 0]] and weights.dtype == np.float32
    assert {array.dtype for array in (*x.values(), y)} == {np.dtype("int32")}
    # No end token, and a row of padding.
    plain = Seq2SeqBatches([[5, 6, 1]], [[7, 8]], batch_size=2, layout=Seq2SeqLayout(start_id=4))
    x, y, weights = plain[0]
    assert x["decoder_token_ids"].tolist() == [[4, 7], [0, 0]] and y.tolist() == [[7, 8], [0, 0]]
    assert x["lengths"].tolist() == [3, 0] and weights.tolist() == [[1, 1], [0, 0]]


def test_nothing_to_say_is_the_end_alone():
    batches = Seq2SeqBatches([[5], [6]], [[], [7]], batch_size=2, layout=Seq2SeqLayout(end_id=1), seed=None)
    x, y, weights = batches[0]
    assert y.tolist() == [[1, 0], [7, 1]] and weights.tolist() == [[1, 0], [1, 1]]
    assert x["decoder_token_ids"].tolist() == [[0, 0], [0, 7]]


def test_a_cut_keeps_the_end():
    batches = Seq2SeqBatches(
        [[5, 6, 7, 1], [5, 6, 7, 8]], [[7, 8, 9]] * 2, batch_size=2, layout=Seq2SeqLayout(3, 2, end_id=1)
    )
    x, y, _ = batches[0]
    assert sorted(x["token_ids"].tolist()) == [[5, 6, 1], [5, 6, 7]] and y.tolist() == [[7, 1]] * 2


@pytest.mark.parametrize("num_buckets", [1, 3])
def test_every_pass_has_every_pair_once_in_a_few_shapes(num_buckets):
    sources, targets = pairs()
    layout = Seq2SeqLayout(num_buckets=num_buckets, end_id=1)
    batches = Seq2SeqBatches(sources, targets, batch_size=4, layout=layout, epochs=2)
    assert len(batches.shapes) == num_buckets and len(batches) == 2 * batches.steps_per_epoch
    passes = []
    for number in range(2):
        found = []
        for step in range(batches.steps_per_epoch):
            x, y, weights = batches[number * batches.steps_per_epoch + step]
            assert (x["token_ids"].shape[1], y.shape[1]) in batches.shapes and len(y) == 4
            rows = zip(x["token_ids"], x["lengths"], y, x["decoder_lengths"], strict=True)
            for ids, length, labels, count in rows:
                if length:
                    found.append((tuple(ids[:length]), tuple(labels[:count])))
            np.testing.assert_array_equal(weights.sum(axis=1), x["decoder_lengths"])
        passes.append(found)
    expected = [(tuple(s), (*t, 1)) for s, t in zip(sources, targets, strict=True)]
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(expected) and passes[0] != passes[1]
    padding = sum((b[0]["token_ids"] == 0).sum() for b in batches)
    if num_buckets > 1:
        assert [batches[step][0]["token_ids"].shape[1] for step in (0, 1)] == [batches.shapes[i][0] for i in (-1, 0)]
        assert batches.shapes == sorted(batches.shapes)
        assert padding < sum((b[0]["token_ids"] == 0).sum() for b in Seq2SeqBatches(sources, targets, batch_size=4)) * 2


def test_steps_do_not_depend_on_what_ran_before_or_on_hosts():
    sources, targets = pairs()
    batches = Seq2SeqBatches(sources, targets, batch_size=4, layout=Seq2SeqLayout(num_buckets=2), steps=30, seed=3)
    later = batches.starting_at(17)
    assert len(batches) == 30 and len(later) == 13
    for one, other in zip(later[2], batches[19], strict=True):
        for key in one if isinstance(one, dict) else [...]:
            np.testing.assert_array_equal(one[key], other[key])
    halves = [batches.shard(i, 2)[5] for i in range(2)]
    np.testing.assert_array_equal(np.concatenate([half[1] for half in halves]), batches[5][1])
    other = Seq2SeqBatches(sources, targets, batch_size=4, layout=Seq2SeqLayout(num_buckets=2), steps=30, seed=4)
    assert any(not np.array_equal(other[i][1], batches[i][1]) for i in range(5))
    assert batches.recipe() != other.recipe() and batches.recipe()["shapes"] == [
        list(shape) for shape in batches.shapes
    ]


def test_accumulation_gives_the_same_rows_and_one_normalizer():
    sources, targets = pairs()
    options = dict(batch_size=4, layout=Seq2SeqLayout(num_buckets=2))
    whole = Seq2SeqBatches(sources, targets, **options)
    parts = Seq2SeqBatches(sources, targets, **options).accumulated(2)
    assert len(parts) == 2 * len(whole)
    x, y, weights = parts[5]
    np.testing.assert_array_equal(y, whole[2][1][2:])
    np.testing.assert_allclose(x["loss_normalizer"], whole[2][2].sum() / 4)


def test_texts_and_weights():
    tokenizer = Tokenizer.train("unigram", ["one two three four five"] * 9, 18)
    batches = Seq2SeqBatches(["one two", "three"], ["two", "four five"], tokenizer, 2, seed=None, sample_weight=[1, 3])
    x, y, weights = batches[0]
    end = tokenizer.eos_id if tokenizer.eos_id is not None else tokenizer.sep_id
    assert tokenizer.decode(x["token_ids"][0]) == "one two" and tokenizer.decode(y[1]) == "four five"
    assert all(row[count - 1] == end for row, count in zip(y, x["decoder_lengths"], strict=True))
    assert (x["decoder_token_ids"][:, 0] == tokenizer.pad_id).all()
    np.testing.assert_array_equal(weights.max(axis=1), [1, 3])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(sources=[[1]], targets=[]), "1 sources, 0 targets"),
        (dict(sources=[], targets=[]), "0 sources"),
        (dict(sources=[[1], []], targets=[[1], [1]]), "an empty sequence, number 1"),
        (dict(sources=[[1]], targets=[[]]), "an empty sequence, number 0"),
        (dict(sources=["a"], targets=["b"]), "Texts need a tokenizer"),
        (dict(sources=[[1]], targets=[[1]], layout=Seq2SeqLayout(length=0)), "at least 1. Received: 0"),
        (dict(sources=[[1]], targets=[[1]], sample_weight=[1, 2]), r"shape \(2,\)"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        Seq2SeqBatches(**arguments)
    with pytest.raises(ValueError, match="`num_buckets` must be at least 1. Received: 0"):
        Seq2SeqLayout(num_buckets=0)
