"""XLNet's batches: where the text of a row comes from, who sees whom, and that nothing but seed and step decides."""

import numpy as np
import pytest

from kerasbert.data import Corpus, PermutationLMBatches, Tokenizer
from tests.data.batches.objects import batches_of

from .test_batches import same, sliced

pytestmark = pytest.mark.one_backend

LENGTH, REUSE = 64, 32


@pytest.fixture(scope="module")
def batches(corpus):
    return PermutationLMBatches(corpus, 4, LENGTH, steps=60, bidirectional_data=True)


@pytest.fixture(scope="module")
def sentences(corpus):
    return set(np.append(corpus.sequence_starts, corpus.num_tokens).tolist())


def parts(x, row, info):
    """(text of the first part, A, B) of a row in reading order of the row, by where the special tokens are."""
    ids, segments = x["token_ids"][row], x["segment_ids"][row]
    reuse = REUSE if "stream_start" in x else 0
    assert ids[-1] == info["cls_id"] and ids[-2] == info["sep_id"]
    assert segments[-1] == 2 and segments[-2] == 1 and (np.diff(segments) >= 0).all()
    end_a = int((segments == 0).sum()) - 1
    assert ids[end_a] == info["sep_id"]
    return ids[:reuse], ids[reuse:end_a], ids[end_a + 1 : -2]


def find(tokens, part):
    """All places where `part` stands in `tokens`."""
    windows = np.lib.stride_tricks.sliding_window_view(tokens, len(part))
    return np.flatnonzero((windows == part).all(axis=1))


def test_rows_read_their_columns(batches, corpus, sentences):
    """First parts and A go on step by step; B follows A, or is of the column; both end with sentences or are cut."""
    tokens = corpus.tokens.astype(np.int32)
    size, max_tokens = len(tokens) // 2, LENGTH - REUSE - 3
    assert batches.steps_per_pass == -(-(size - REUSE - max_tokens) // REUSE)
    follows = total = 0
    for step in range(len(batches)):
        x, _, _ = batches[step]
        begin = step % batches.steps_per_pass * REUSE
        assert x["stream_start"].tolist() == [begin == 0] * 4
        assert x["backward"].tolist() == [False, False, True, True]
        for row in range(4):
            column = tokens[row % 2 * size : (row % 2 + 1) * size]
            column = column[::-1] if row >= 2 else column
            text, a, b = parts(x, row, corpus.tokenizer_info)
            assert len(a) + len(b) == max_tokens and len(a) and len(b)
            np.testing.assert_array_equal(np.concatenate([text, a]), column[begin : begin + REUSE + len(a)])
            places = find(column, b)
            assert len(places)
            edges = {(size - (s - row % 2 * size)) if row >= 2 else s - row % 2 * size for s in sentences} | {0, size}
            after = begin + REUSE + len(a)
            cut = len(a) >= len(b) or after in edges
            assert cut, "A is shorter than B and yet was cut"
            assert any(place in edges for place in places)
            ends = [edge for edge in edges if begin + REUSE < edge < begin + REUSE + max_tokens]
            follows += any(edge >= after and edge in places for edge in ends)
            total += len(ends) > 0
    assert total > 100 and 0.37 < follows / total < 0.63


def test_who_sees_whom(batches, corpus):
    special = np.array([corpus.tokenizer_info["sep_id"], corpus.tokenizer_info["cls_id"]])
    for step in range(8):
        x, y, weight = batches[step]
        for row in range(4):
            ids, positions = x["token_ids"][row], x["masked_positions"][row]
            sees = x["query_ranks"][row][:, None] > x["key_ranks"][row]
            used = positions[positions >= 0]
            assert (np.diff(used) > 0).all() and (positions[len(used) :] == -1).all()
            np.testing.assert_array_equal(y[row, : len(used)], ids[used])
            np.testing.assert_array_equal(weight[row], positions >= 0)
            target = np.isin(np.arange(LENGTH), used)
            functional = np.isin(ids, special)
            plain = ~target & ~functional
            assert not (target & functional).any() and 8 <= len(used) <= 10
            assert not sees[:REUSE, REUSE:].any() and sees[REUSE:, :REUSE].all()
            assert not sees[target, target].any() or not np.diag(sees)[target].any()
            assert np.diag(sees)[functional].all()
            for part in (slice(0, REUSE), slice(REUSE, LENGTH)):
                block = sees[part, part]
                assert block[:, plain[part]].all()  # everybody sees plain tokens
                assert not block[np.ix_(plain[part], ~plain[part])].any()  # which see nothing else
                inner = block[np.ix_(target[part], target[part])]
                # Of two targets exactly one sees the other: an order.
                assert (inner ^ inner.T ^ np.eye(len(inner), dtype=bool)).all()
                assert sorted(inner.sum(axis=1)) == list(range(len(inner)))


def test_sizes_of_the_paper(corpus):
    """512 tokens, of which 256 go into the memory, and 85 slots: 43 and 42."""
    x, y, weight = PermutationLMBatches(corpus, 2, 512)[0]
    assert y.shape == weight.shape == x["masked_positions"].shape == (2, 85)
    for row in x["masked_positions"]:
        assert (row[row >= 0] < 256).sum() == 43 and 40 <= (row >= 256).sum() <= 42
    assert {key: (value.shape, value.dtype) for key, value in x.items()} == {
        **dict.fromkeys(("token_ids", "segment_ids", "query_ranks", "key_ranks"), ((2, 512), np.int32)),
        "masked_positions": ((2, 85), np.int32),
        "stream_start": ((2,), bool),
    }


def test_without_a_first_part_rows_lie_side_by_side(corpus):
    batches = batches_of(PermutationLMBatches, corpus, 6, 20, reuse_length=0, max_predictions=4).accumulated(2)
    x, y, weight = batches[3]
    assert "stream_start" not in x and y.shape == (3, 4)
    np.testing.assert_allclose(x["loss_normalizer"], sum(batches[i][2].sum() for i in (2, 3)) / 6, rtol=1e-6)
    size = corpus.num_tokens // 6
    for row in range(3):
        _, a, _ = parts(x, row, corpus.tokenizer_info)
        start = (3 + row) * size + 1 * 17
        np.testing.assert_array_equal(a, corpus.tokens[start : start + len(a)])


def test_documents_end_with_eod(documents, tmp_path):
    tokenizer = Tokenizer.train("unigram", documents, 150, family="xlnet")
    corpus = Corpus.write(tmp_path, documents, tokenizer)
    batches = PermutationLMBatches(corpus, 1, 40, reuse_length=20)
    eod = tokenizer.id("<eod>")
    text = np.concatenate([batches[step][0]["token_ids"][0, :20] for step in range(len(batches))])
    starts = np.append(corpus.sequence_starts, corpus.num_tokens)[corpus.document_starts]
    expected = np.concatenate(
        [[*corpus.tokens[a:b], eod] for a, b in zip(starts[:-1], starts[1:], strict=True)]
    ).astype(np.int32)
    np.testing.assert_array_equal(text, expected[: len(text)])
    assert (text == eod).sum() >= 5


def test_replay_resume_shards(corpus):
    options = dict(steps=3000, seed=4, bidirectional_data=True, whole_words=True, permutation_size=16)
    batches = batches_of(PermutationLMBatches, corpus, 6, LENGTH, **options)
    again = batches_of(PermutationLMBatches, Corpus.open(corpus.folder), 6, LENGTH, **{**options, "steps": 2500})
    for step in (2000, 3):
        same(batches[step], again[step])
        same(batches[step], again.starting_at(step)[0])
        for index in range(3):
            same(again.shard(index, 3)[step], sliced(batches[step], 2 * index, 2 * index + 2))
    assert batches.recipe() == again.recipe()
    other = batches_of(PermutationLMBatches, corpus, 6, LENGTH, **{**options, "seed": 5})
    assert (other[3][0]["query_ranks"] != batches[3][0]["query_ranks"]).any() and other.recipe() != batches.recipe()
    # A second pass reads the same first parts, in other orders.
    one, two = batches[1][0], batches[1 + batches.steps_per_pass][0]
    np.testing.assert_array_equal(one["token_ids"][:, :REUSE], two["token_ids"][:, :REUSE])
    assert (one["key_ranks"] != two["key_ranks"]).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 8}, "leave space for two segments"),
        ({"reuse_length": 60}, "Use a length of at least 65"),
        ({"reuse_length": -1}, "leave space for two segments"),
        ({"partial_prediction": 0}, "must be at least 1"),
        ({"max_predictions": -2}, "must be at least 1"),
        ({"permutation_size": 24}, "must divide the number of tokens in both parts"),
        ({"bidirectional_data": True, "batch_size": 3}, "`batch_size` must be even"),
        ({"batch_size": 500}, "Use a smaller `batch_size`"),
        ({"batch_size": 0}, "`batch_size` must be an integer of at least 1"),
    ],
)
def test_bad_arguments(corpus, options, message):
    with pytest.raises(ValueError, match=message):
        batches_of(PermutationLMBatches, corpus, **{"batch_size": 4, "length": 64, **options})


def test_an_update_of_rows_that_continue_is_one_step(corpus):
    batches = PermutationLMBatches(corpus, 4, 64)
    assert batches.accumulated(1).recipe() == batches.recipe()
    with pytest.raises(ValueError, match="PermutationLMBatches must be one step: .* continue from step to step"):
        batches.accumulated(2)


def test_bad_corpora(corpus, documents, tmp_path):
    with pytest.raises(ValueError, match="must know its tokenizer"):
        PermutationLMBatches(Corpus.open(corpus.folder / "corpus.bin"), 4, 64)
    bare = Tokenizer.train("wordpiece", documents, 150, special_tokens={"unk": "<unk>"})
    with pytest.raises(ValueError, match="It lacks: cls, sep"):
        PermutationLMBatches(Corpus.write(tmp_path, documents, bare), 4, 64)
