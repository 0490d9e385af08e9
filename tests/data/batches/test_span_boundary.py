"""Batches of masked spans: contract, replay, whole sentences, phrases."""

import numpy as np
import pytest

from kerasbert.data import Corpus, SpanMaskBatches
from kerasbert.data.corpus.packing import whole_sentences
from tests.data.batches.objects import batches_of

from .test_batches import same, sliced

pytestmark = pytest.mark.one_backend


def original(x, tokens):
    ids = x["token_ids"].copy()
    rows, slots = np.nonzero(x["masked_positions"] >= 0)
    ids[rows, x["masked_positions"][rows, slots]] = tokens[rows, slots]
    return ids


@pytest.mark.parametrize("scheme", ["spans", "words", "pieces"])
def test_contract(corpus, wordpiece, scheme):
    batches = batches_of(SpanMaskBatches, corpus, 6, 32, steps=20, scheme=scheme)
    for step in (0, 7, 19):
        x, y, weight = batches[step]
        keys = {"token_ids": (6, 32), "lengths": (6,)}
        keys |= dict.fromkeys(("masked_positions", "span_left", "span_right", "span_offset"), (6, 5))
        assert {name: array.shape for name, array in x.items()} == keys
        assert all(array.dtype == np.int32 for array in x.values())
        assert set(y) == set(weight) == {"tokens", "boundary"} and y["tokens"].dtype == np.int32
        np.testing.assert_array_equal(weight["tokens"], x["masked_positions"] >= 0)
        np.testing.assert_array_equal(weight["tokens"].sum(axis=1), np.ceil(0.15 * (x["lengths"] - 2)))
        np.testing.assert_array_equal(weight["boundary"], x["span_offset"] >= 0)
        ids = original(x, y["tokens"])
        for row, length in enumerate(x["lengths"]):
            assert ids[row, 0] == wordpiece.cls_id and ids[row, length - 1] == wordpiece.sep_id
            masked = set(x["masked_positions"][row].tolist())
            for slot in np.flatnonzero(weight["boundary"][row]):
                left, right, offset = (x[key][row, slot] for key in ("span_left", "span_right", "span_offset"))
                assert left not in masked and right not in masked and 1 <= left < right <= length - 2
                assert x["masked_positions"][row, slot] == left + 1 + offset
                assert masked.issuperset(range(left + 1, right))


def test_replay_resume_shards_and_accumulation(corpus):
    batches = SpanMaskBatches(corpus, 6, 32, steps=3000, seed=4)
    again = SpanMaskBatches(Corpus.open(corpus.folder), 6, 32, steps=2500, seed=4)
    for step in (2000, 3):
        same(batches[step], again[step])
        same(batches[step], again.starting_at(step)[0])
        for index in range(3):
            same(again.shard(index, 3)[step], sliced(batches[step], 2 * index, 2 * index + 2))
    parts = SpanMaskBatches(corpus, 6, 32, steps=3000, seed=4).accumulated(2)
    x, _, weight = parts[7]
    whole = batches[3][2]
    np.testing.assert_array_equal(x["token_ids"], batches[3][0]["token_ids"][3:])
    for name in ("tokens", "boundary"):
        assert x["loss_normalizer"][name][0] == pytest.approx(whole[name].sum() / 6)
    assert (SpanMaskBatches(corpus, 6, 32, steps=9, seed=5)[3][0]["token_ids"] != batches[3][0]["token_ids"]).any()
    assert batches.recipe() != parts.recipe() and batches.recipe() == again.recipe()


def test_rows_are_whole_sentences_of_one_document(corpus):
    rows = [
        row[1 : n - 1]
        for x, y, _ in SpanMaskBatches(corpus, 5, 32)
        for row, n in zip(original(x, y["tokens"]), x["lengths"], strict=True)
        if n
    ]
    expected, tokens = [], corpus.tokens.tolist()
    for first, last in zip(corpus.document_starts[:-1], corpus.document_starts[1:], strict=True):
        row = []
        for start, size in zip(corpus.sequence_starts[first:last], corpus.lengths[first:last], strict=True):
            sentence = tokens[start : start + size]
            if len(row) + size > 30 and row:
                expected.append(row)
                row = []
            if size <= 30:
                row = row + sentence
        if row:
            expected.append(row)
    assert sorted(expected) == sorted(row.tolist() for row in rows)


def test_sentences_that_are_too_long_end_a_row():
    sentences, documents = np.array([0, 4, 7, 20, 25, 26]), np.array([0, 4, 5])
    assert whole_sentences(sentences, documents, 8).tolist() == [[0, 7], [20, 5], [25, 1]]
    assert whole_sentences(sentences, documents, 4).tolist() == [[0, 4], [4, 3], [25, 1]]
    assert whole_sentences(np.array([0, 9]), np.array([0, 1]), 8).shape == (0, 2)


def test_phrases_of_the_corpus_are_masked(corpus):
    """Every other piece of five tokens is a phrase; with share 1 nothing else is masked where they suffice."""
    phrases = np.stack([np.arange(0, corpus.num_tokens - 5, 10), np.arange(5, corpus.num_tokens, 10)], axis=1)
    batches = batches_of(SpanMaskBatches, corpus, 8, 64, steps=5, phrases=phrases, phrase_share=1.0)
    plan = np.asarray(batches._layout.plan)
    texts = {tuple(corpus.tokens[start : start + size].tolist()): start for start, size in plan.tolist()}
    checked = 0
    for x, y, _ in batches:
        for ids, n, positions in zip(original(x, y["tokens"]), x["lengths"], x["masked_positions"], strict=True):
            start = texts.get(tuple(ids[1 : n - 1].tolist()))
            if start is not None and n > 40:
                places = start + positions[positions >= 0] - 1
                assert (places % 10 < 5).all()
                checked += 1
    assert checked > 20


def test_chunks_hold_all_of_the_text(corpus):
    batches = batches_of(SpanMaskBatches, corpus, 50, 20, whole_sentences=False)
    assert sum(int((x["lengths"] - 2 * (x["lengths"] > 0)).sum()) for x, _, _ in batches) == corpus.num_tokens


def test_without_boundary_terms_it_is_a_masked_lm_batch(corpus):
    x, y, weight = SpanMaskBatches(corpus, 4, 32, boundary=False)[0]
    assert "span_left" not in x and y.shape == weight.shape == (4, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(scheme="phrases"), "`scheme` must be one of"),
        (dict(mask_rate=0.0), "must be above 0 and below 1"),
        (dict(geometric=1.0), "must be above 0 and below 1"),
        (dict(longest=0), "must be at least 1"),
        (dict(length=2), "must leave space"),
        (dict(length=4), "only longer sentences"),
        (dict(phrases=np.zeros((0, 2), int)), r"`phrases` must be integers \(n, 2\)"),
        (dict(phrases=np.array([[0.5, 1.5]])), r"Received: an array of shape \(1, 2\), float64"),
        (dict(phrases=np.array([[3, 5], [4, 6]])), "without overlaps"),
        (dict(phrases=np.array([[3, 10**9]])), "within the corpus"),
    ],
)
def test_bad_input(corpus, options, message):
    with pytest.raises(ValueError, match=message):
        batches_of(SpanMaskBatches, corpus, 4, **{"length": 32, **options})
