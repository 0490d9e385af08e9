import math
import time

import numpy as np
import pytest

from kerasbert.data import Corpus, MaskedLMBatches, RareTokens, Tokenizer
from kerasbert.data.noise.corruption import choose_from_batch, num_to_predict
from tests.data.batches.objects import batches_of

from .test_batches import same, sliced

pytestmark = pytest.mark.one_backend

FORMS = [
    {},
    {"sentence_pairs": True},
    {"whole_words": True},
    {"static_masks": True, "dupe_factor": 3},
    {"sentence_pairs": True, "whole_words": True, "static_masks": True, "dupe_factor": 2},
]


def original(x, y):
    """Token ids before they were corrupted."""
    ids = x["token_ids"].copy()
    tokens = y["tokens"] if isinstance(y, dict) else y
    rows, slots = np.nonzero(x["masked_positions"] >= 0)
    ids[rows, x["masked_positions"][rows, slots]] = tokens[rows, slots]
    return ids


@pytest.mark.parametrize("form", FORMS)
def test_contract(corpus, wordpiece, form):
    batches = batches_of(MaskedLMBatches, corpus, 6, 32, steps=50, **form)
    pairs = form.get("sentence_pairs", False)
    assert len(batches) == 50 and batches.tokens_per_step == 192
    for step in (0, 7, 49):
        x, y, weight = batches[step]
        keys = {"token_ids": (6, 32), "lengths": (6,), "masked_positions": (6, 5)}
        keys |= {"segment_ids": (6, 32)} if pairs else {}
        assert {name: array.shape for name, array in x.items()} == keys
        assert all(array.dtype == np.int32 for array in x.values())
        tokens, weights = (y["tokens"], weight["tokens"]) if pairs else (y, weight)
        assert tokens.dtype == np.int32 and weights.dtype == np.float32
        np.testing.assert_array_equal(weights, x["masked_positions"] >= 0)
        assert (tokens[weights == 0] == 0).all()
        expected = num_to_predict(x["lengths"], 0.15, 5)
        assert (weights.sum(axis=1) <= expected).all()
        assert form.get("whole_words") or (weights.sum(axis=1) == expected).all()
        for ids, length in zip(original(x, y), x["lengths"], strict=True):
            assert ids[0] == wordpiece.cls_id and ids[length - 1] == wordpiece.sep_id
            assert (ids == wordpiece.sep_id).sum() == 1 + pairs and (ids[length:] == wordpiece.pad_id).all()
        if pairs:
            assert set(y) == set(weight) == {"tokens", "sentence_pair"}
            assert y["sentence_pair"].dtype == np.int32 and (weight["sentence_pair"] == 1).all()
            seps = [np.flatnonzero(ids == wordpiece.sep_id) for ids in original(x, y)]
            for segments, (first, last) in zip(x["segment_ids"], seps, strict=True):
                assert segments.tolist() == [0] * (first + 1) + [1] * (last - first) + [0] * (31 - last)


@pytest.mark.parametrize("form", FORMS)
def test_replay_resume_and_shards(corpus, form):
    batches = batches_of(MaskedLMBatches, corpus, 6, 32, steps=3000, seed=4, **form)
    again = batches_of(MaskedLMBatches, Corpus.open(corpus.folder), 6, 32, steps=2500, seed=4, **form)
    for step in (2000, 3, 511):
        same(batches[step], again[step])
        same(batches[step], again.starting_at(step)[0])
        for index in range(3):
            same(again.shard(index, 3)[step], sliced(batches[step], 2 * index, 2 * index + 2))
    other = batches_of(MaskedLMBatches, corpus, 6, 32, steps=10, seed=5, **form)
    assert (other[3][0]["token_ids"] != batches[3][0]["token_ids"]).any()


def test_chunks_are_the_documents(corpus, wordpiece):
    batches = MaskedLMBatches(corpus, 5, 32)
    rows = [row[1 : n - 1] for x, y, _ in batches for row, n in zip(original(x, y), x["lengths"], strict=True) if n]
    assert sum(map(len, rows)) == corpus.num_tokens
    starts = np.append(corpus.sequence_starts, corpus.num_tokens)[corpus.document_starts]
    chunks = []
    for start, stop in zip(starts[:-1], starts[1:], strict=True):
        chunks += [corpus.tokens[place : min(place + 30, stop)].tolist() for place in range(start, stop, 30)]
    assert sorted(chunks) == sorted(row.tolist() for row in rows)
    assert batches.num_rows == len(chunks) and len(batches) == -(-len(chunks) // 5)


def test_the_last_batch_of_a_pass_is_filled_with_padding(corpus):
    for form in FORMS:
        batches = batches_of(MaskedLMBatches, corpus, 1000, 32, **form)
        x, y, weight = batches[len(batches) - 1]
        missing = len(batches) * 1000 - batches.num_rows
        assert missing > 0
        for name, value in x.items():
            assert (value[-missing:] == (-1 if name == "masked_positions" else 0)).all(), name
        for part in (y, weight):
            for value in part.values() if isinstance(part, dict) else [part]:
                assert (value[-missing:] == 0).all()
        assert (x["lengths"][:-missing] > 0).all()


def test_passes_have_their_own_orders_and_dynamic_masks(corpus):
    count = MaskedLMBatches(corpus, 1, 32).num_rows
    batches = MaskedLMBatches(corpus, count, 32, steps=3)
    first, second, _ = (original(*batch[:2]) for batch in batches)
    assert sorted(first.tolist()) == sorted(second.tolist())
    assert (first != second).any()
    masks = [{ids.tobytes(): p.tobytes() for ids, p in zip(original(x, y), x["masked_positions"], strict=True)}
             for x, y, _ in batches]  # fmt: skip
    assert sum(masks[0][row] == masks[1][row] for row in masks[0]) < 0.1 * len(masks[0])


def test_static_masks_come_back_every_dupe_factor_passes(corpus):
    count = MaskedLMBatches(corpus, 1, 32).num_rows
    batches = batches_of(MaskedLMBatches, corpus, count, 32, steps=6, static_masks=True, dupe_factor=3)
    rows = [
        sorted(zip(original(x, y).tolist(), x["token_ids"].tolist(), x["masked_positions"].tolist(), strict=True))
        for x, y, _ in batches
    ]
    for number in range(3):
        assert rows[number] == rows[number + 3]
    assert rows[0] != rows[1] != rows[2]


def test_pairs_differ_in_dupe_factor_passes(corpus):
    options = {"sentence_pairs": True, "dupe_factor": 2}
    batches = batches_of(MaskedLMBatches, corpus, 1, 32, **options)
    sizes = np.diff(batches._bounds)
    run = batches_of(MaskedLMBatches, corpus, 1, 32, steps=2 * int(sizes.sum()), **options)
    rows = [original(*run[step][:2])[0].tobytes() for step in range(len(run))]
    first, second = rows[: sizes[0]], rows[sizes[0] : sizes.sum()]
    third, fourth = rows[sizes.sum() : sizes.sum() + sizes[0]], rows[sizes.sum() + sizes[0] :]
    assert sorted(first) == sorted(third) and sorted(second) == sorted(fourth)
    assert sorted(first) != sorted(second) and first != third


def test_pairs_follow_the_plan(corpus):
    batches = batches_of(MaskedLMBatches, corpus, 16, 40, steps=20, sentence_pairs=True)
    documents = np.append(corpus.sequence_starts, corpus.num_tokens)[corpus.document_starts]
    texts = [corpus.tokens[a:b].tolist() for a, b in zip(documents[:-1], documents[1:], strict=True)]
    labels = []
    for x, y, _ in batches:
        for ids, segments, length, label in zip(
            original(x, y), x["segment_ids"], x["lengths"], y["sentence_pair"], strict=True
        ):
            a = ids[1:length][segments[1:length] == 0][:-1].tolist()
            b = ids[:length][segments[:length] == 1][:-1].tolist()
            homes = [{n for n, text in enumerate(texts) if contains(text, part)} for part in (a, b)]
            assert homes[0] and homes[1]
            assert label == 1 or homes[0] & homes[1]
            labels.append(label)
    assert 0.4 < np.mean(labels) < 0.9


def contains(text, part):
    return any(text[start : start + len(part)] == part for start in range(len(text) - len(part) + 1))


@pytest.mark.parametrize("pairs", [False, True])
def test_accumulation_slices_the_large_batch(corpus, pairs):
    whole = batches_of(MaskedLMBatches, corpus, 12, 32, steps=9, sentence_pairs=pairs)
    parts = batches_of(MaskedLMBatches, corpus, 12, 32, steps=9, sentence_pairs=pairs).accumulated(3)
    assert len(parts) == 27 and parts.rows == 4 and parts.tokens_per_step == 128
    for step in (0, 13, 26, 25):
        x, y, weight = whole[step // 3]
        micro = 4 * (step % 3)
        inputs, targets, weights = parts[step]
        normalizer = inputs.pop("loss_normalizer")
        same((inputs, targets, weights), sliced((x, y, weight), micro, micro + 4))
        totals = {"tokens": weight["tokens"].sum(), "sentence_pair": 12.0} if pairs else {"": weight.sum()}
        for name, total in totals.items():
            value = normalizer[name] if pairs else normalizer
            assert value.dtype == np.float32
            np.testing.assert_allclose(value, np.full(4, total / 12), rtol=1e-6)
        sharded = parts.shard(1, 2)[step]
        np.testing.assert_allclose(
            sharded[0]["loss_normalizer"]["tokens"] if pairs else sharded[0]["loss_normalizer"],
            np.full(2, totals["tokens" if pairs else ""] / 12),
            rtol=1e-6,
        )
        del sharded[0]["loss_normalizer"]
        same(sharded, sliced((x, y, weight), micro + 2, micro + 4))
    assert "loss_normalizer" not in whole[0][0]
    same(parts.starting_at(13)[0], parts[13])


def test_the_template_is_the_tokenizers(byte_bpe, documents, tmp_path):
    corpus = Corpus.write(tmp_path, documents, byte_bpe)
    x, y, _ = batches_of(MaskedLMBatches, corpus, 4, 24, steps=2, sentence_pairs=True)[1]
    for ids, length in zip(original(x, y), x["lengths"], strict=True):
        ends = np.flatnonzero(ids[:length] == byte_bpe.sep_id)
        assert ids[0] == byte_bpe.cls_id and len(ends) == 3 and ends[1] == ends[0] + 1 and ends[2] == length - 1
        assert (ids[length:] == byte_bpe.pad_id).all()
    assert not x["segment_ids"].any()


def test_left_padding(documents, wordpiece, tmp_path):
    tokenizer = Tokenizer.from_json(wordpiece.to_json())
    tokenizer.padding_side = "left"
    corpus = Corpus.write(tmp_path, documents, tokenizer)
    batches = MaskedLMBatches(corpus, 50, 32)
    x, y, weight = batches[0]
    assert "lengths" not in x and x["padding_mask"].dtype == bool and not x["padding_mask"].all()
    rows, slots = np.nonzero(weight)
    assert x["padding_mask"][rows, x["masked_positions"][rows, slots]].all()
    assert (original(x, y)[:, -1] == tokenizer.sep_id).all()


def test_whole_words_are_whole(corpus, wordpiece):
    x, y, weight = batches_of(MaskedLMBatches, corpus, 64, 32, steps=1, whole_words=True)[0]
    for ids, positions in zip(original(x, y), x["masked_positions"], strict=True):
        masked = set(positions[positions >= 0].tolist())
        for position in masked:
            inside = not wordpiece.word_starts[ids[position]] and position > 1
            assert not inside or position - 1 in masked
            following = position + 1 < 32 and not wordpiece.word_starts[ids[position + 1]]
            assert not following or position + 1 in masked
    assert weight.sum() > 64


def test_max_predictions_and_rate(corpus):
    x, _, weight = batches_of(MaskedLMBatches, corpus, 8, 32, steps=1, mask_rate=0.5, max_predictions=7)[0]
    assert x["masked_positions"].shape == (8, 7)
    assert weight.sum(axis=1).tolist() == num_to_predict(x["lengths"], 0.5, 7).tolist()
    assert MaskedLMBatches(corpus, 8, 128, steps=1).max_predictions == 19


def test_a_resume_at_step_a_million_takes_milliseconds(corpus):
    options = {"steps": 2_000_000, "sentence_pairs": True, "whole_words": True}
    batches_of(MaskedLMBatches, corpus, 32, 128, **options)
    spent = []
    for _ in range(5):
        start = time.process_time()
        batches = batches_of(MaskedLMBatches, Corpus.open(corpus.folder), 32, 128, **options).starting_at(1_000_000)
        batch = batches[0]
        spent.append(time.process_time() - start)
    assert batch[0]["token_ids"].shape == (32, 128)
    assert min(spent) < 0.010


def test_recipe(corpus):
    first = MaskedLMBatches(corpus, 8, 32, steps=10)
    assert first.recipe() == MaskedLMBatches(corpus, 8, 32, steps=99).recipe()
    for change in ({"seed": 1}, {"mask_rate": 0.2}, {"whole_words": True}, {"static_masks": True}):
        assert batches_of(MaskedLMBatches, corpus, 8, 32, steps=10, **change).recipe() != first.recipe()
    assert first.recipe()["corpus"] == corpus.fingerprint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 2}, "`length` must leave space.*Received: 2. Use at least 3"),
        ({"length": 4, "sentence_pairs": True}, "`length` must leave space"),
        ({"mask_rate": 15}, "masking rate must be above 0 and below 1"),
        ({"dupe_factor": 0, "sentence_pairs": True}, "must be at least 1"),
        ({"shares": (0.8, 0.3)}, "`shares` must be two non-negative numbers"),
        ({"shares": (1.0,)}, "`shares` must be two non-negative numbers"),
        ({"shares": (float("nan"), 0.0)}, "`shares` must be two non-negative numbers"),
        ({"rare_exponent": float("nan")}, "`exponent` must be a finite number"),
        ({"batch_size": 8.0}, "`batch_size` must be an integer of at least 1. Received: 8.0"),
        ({"length": 32.0}, "`length` must be an integer. Received: 32.0"),
        ({"steps": 2.5}, "`steps` must be an integer of at least 0. Received: 2.5"),
        ({"ngrams": 0}, "`ngrams` must be the largest n .at least 1.*Received: 0"),
        ({"ngrams": (0.5, -0.5, 1.0)}, "`ngrams` must be"),
        ({"ngrams": ()}, "`ngrams` must be"),
        ({"short_sequence_rate": 10, "sentence_pairs": True}, "`short_sequence_rate` must be between 0 and 1"),
        ({"seed": -1, "sentence_pairs": True, "dupe_factor": 3}, "`seed` must be an integer of at least 0"),
        ({"max_predictions": -1}, "must be at least 1"),
        ({"max_predictions": 0}, "must be at least 1"),
        ({"batch_size": 0}, "`batch_size` must be an integer of at least 1"),
        ({"seed": -1}, "`seed` must be"),
    ],
)
def test_bad_arguments(corpus, options, message):
    with pytest.raises(ValueError, match=message):
        batches_of(MaskedLMBatches, corpus, **{"batch_size": 8, "length": 32, "steps": 2, **options})


@pytest.mark.parametrize("shares", [(1.0, 0.0), (0.8, 0.2), (0.8, 0.0), (0.0, 0.2), (0.0, 0.0)])
def test_masks_of_the_ablation(corpus, shares):
    """Table 8 of BERT's paper: mask, keep, random."""
    x, y, weight = batches_of(MaskedLMBatches, corpus, 256, 64, shares=shares)[0]
    shown = np.take_along_axis(x["token_ids"], np.maximum(x["masked_positions"], 0), axis=1)[weight > 0]
    size, total = corpus.tokenizer_info["vocabulary_size"], len(shown)
    random = 1 - sum(shares)
    expected = np.array([shares[0] + random / size, shares[1] + random / size])
    found = np.array([(shown == corpus.tokenizer_info["mask_id"]).mean(), (shown == y[weight > 0]).mean()])
    assert (np.abs(found - expected) <= 5 * np.sqrt(expected * (1 - expected) / total) + 1e-12).all()


def test_the_unknown_token_is_no_rare_token(documents, wordpiece, tmp_path):
    text = [*documents, "§ § ¶."]  # nothing that the tokenizer knows
    corpus = Corpus.write(tmp_path, text, wordpiece)
    assert 0 < corpus.counts()[wordpiece.unk_id] < 5
    batches = batches_of(MaskedLMBatches, corpus, 8, 32, rare_exponent=0.7)
    assert not any((y[weight > 0] == wordpiece.unk_id).any() for _, y, weight in batches)


def test_rare_tokens_of_a_whole_batch(corpus):
    noise = RareTokens(0.15, exponent=0.7, whole_batch=True)
    batches = MaskedLMBatches(corpus, 8, 32, noise=noise)
    x, y, weight = batches[0]
    total = int(x["lengths"].sum())
    per_row = weight.sum(axis=1)
    assert weight.sum() == math.ceil(0.15 * total) and len(set(per_row.tolist())) > 1
    assert per_row.max() <= batches.max_predictions == 15
    # They are rarer than those of a sample with the same share of every row.
    counts = corpus.counts()
    _, others, used = MaskedLMBatches(corpus, 8, 32, noise=RareTokens(0.15, exponent=0.7))[0]
    assert np.log(counts[y[weight > 0]]).mean() < np.log(counts[others[used > 0]]).mean()
    # A host has its part of the same rows.
    for host in range(2):
        part = batches.shard(host, 2)[0]
        for name, value in part[0].items():
            np.testing.assert_array_equal(value, x[name][4 * host : 4 * host + 4])
        np.testing.assert_array_equal(part[1], y[4 * host : 4 * host + 4])


def test_a_full_row_of_a_whole_batch_is_passed_over():
    candidates = np.ones((2, 4), bool)
    weights = np.array([[9.0, 8.0, 7.0, 6.0], [1.0, 0.9, 0.0, 0.8]])
    draws = np.full((2, 4), 2**31, dtype=np.uint32)  # equal draws: the largest weights come first
    found = choose_from_batch(candidates, weights, 5, 2, draws)
    np.testing.assert_array_equal(found, [[0, 1], [0, 1]])
    np.testing.assert_array_equal(choose_from_batch(candidates, weights, 3, 2, draws), [[0, 1], [0, -1]])


def test_packed_rows_spare_the_first_token_of_every_sequence(corpus):
    x, _, _ = batches_of(MaskedLMBatches, corpus, 64, 64, rows="packed", rule="xlm", mask_rate=0.9)[0]
    assert x["sequence_ids"].max() > 1
    firsts = np.take_along_axis(x["position_ids"], np.maximum(x["masked_positions"], 0), axis=1) == 0
    assert not firsts[x["masked_positions"] >= 0].any()
    lasts = x["token_ids"][x["position_ids"] > 0]
    assert (lasts == corpus.tokenizer_info["mask_id"]).mean() > 0.5


def test_bad_corpora(corpus, documents, tmp_path):
    for text in (documents, str(corpus.folder)):
        with pytest.raises(ValueError, match=f"must be a Corpus. Received: {type(text).__name__}. Use Corpus.open"):
            MaskedLMBatches(text, 8, 32)
    with pytest.raises(ValueError, match="must know its tokenizer"):
        MaskedLMBatches(Corpus.open(corpus.folder / "corpus.bin"), 8, 32)
    roles = {"pad": "<pad>", "unk": "<unk>"}
    plain = Corpus.write(tmp_path, documents, Tokenizer.train("wordpiece", documents, 150, special_tokens=roles))
    with pytest.raises(ValueError, match="It lacks: mask"):
        MaskedLMBatches(plain, 8, 32)
