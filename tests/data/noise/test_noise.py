"""Noise of encoder-decoders: T5's reference numbers, the sheet's examples, and frequencies."""

import json
from collections import Counter

import numpy as np
import pytest

from kerasbert.data import Tokenizer
from kerasbert.data.noise.denoising import OBJECTIVES, Denoising, sentinel_ids
from kerasbert.data.noise.span_corruption import (
    kept,
    masked_or_random,
    noise_counts,
    random_ends,
    random_spans,
    random_tokens,
    shuffled_noise,
    span_corruption_lengths,
    span_draws,
    spans_replaced,
)
from kerasbert.data.sampling import row_draws
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

GOLDEN = json.loads((REPOSITORY / "tests" / "goldens" / "t5_span_corruption.json").read_text())
SENTINELS = np.arange(999, 899, -1)
WORDS = "Thank you for inviting me to your party last week .".split()
X, Y, Z = 32099, 32098, 32097


def draws_for(rows, size, seed=0):
    return row_draws(seed, 0, 0, 0, rows, size)


def one(tokens, mask):
    return np.array([tokens], np.int32), np.array([len(tokens)]), np.array([mask], bool)


def test_lengths_of_the_reference():
    assert len(GOLDEN["lengths"]) == 250
    for row in GOLDEN["lengths"]:
        found = span_corruption_lengths(row["inputs_length"], row["noise_density"], row["mean_noise_span_length"])
        assert found == (row["tokens_length"], row["targets_length"]), row


def test_lengths_of_the_sheet():
    for mean, expected in ((2, (552, 126)), (3, (568, 114)), (5, (581, 105)), (10, (591, 99))):
        assert span_corruption_lengths(512, 0.15, mean) == expected
    assert span_corruption_lengths(512, 0.5, 3) == (766, 512)
    assert span_corruption_lengths(512, 0.25, 3) == (614, 206)
    assert span_corruption_lengths(512, 0.10, 3) == (548, 74)
    assert span_corruption_lengths(256, 0.15, 3) == (284, 58)
    assert span_corruption_lengths(128, 0.15, 3) == (141, 29)
    assert span_corruption_lengths(114, 0.15, 3) == (126, 26)
    assert span_corruption_lengths(64, 0.2, 2) == (70, 22)
    assert span_corruption_lengths(64, 0.2, 1) == (63, 27)


def renderings(tokens, mask):
    tokens, lengths, mask = one(tokens, mask)
    single = np.full(100, SENTINELS[0])
    return {
        "noise_span_to_unique_sentinel": spans_replaced(tokens, lengths, mask, SENTINELS),
        "nonnoise_span_to_unique_sentinel": spans_replaced(tokens, lengths, ~mask, SENTINELS),
        "noise_token_to_sentinel": (np.where(mask, SENTINELS[0], tokens), lengths),
        "noise_span_to_sentinel": spans_replaced(tokens, lengths, mask, single),
        "nonnoise_span_to_sentinel": spans_replaced(tokens, lengths, ~mask, single),
        "drop_noise_tokens": kept(tokens, ~mask),
        "drop_nonnoise_tokens": kept(tokens, mask),
    }


def test_renderings_of_the_reference():
    assert len(GOLDEN["cases"]) == 60
    for case in GOLDEN["cases"]:
        for name, (rows, lengths) in renderings(case["tokens"], case["noise_mask"]).items():
            assert rows[0].tolist() == case[name] and lengths.tolist() == [len(case[name])]


def test_unit_examples_of_the_sheet():
    found = renderings(range(10, 16), [1, 1, 0, 0, 1, 0])
    expected = {
        "noise_token_to_sentinel": [999, 999, 12, 13, 999, 15],
        "noise_span_to_sentinel": [999, 12, 13, 999, 15],
        "nonnoise_span_to_sentinel": [10, 11, 999, 14, 999],
        "noise_span_to_unique_sentinel": [999, 12, 13, 998, 15],
        "nonnoise_span_to_unique_sentinel": [10, 11, 999, 14, 998],
        "drop_noise_tokens": [12, 13, 15],
        "drop_nonnoise_tokens": [10, 11, 14],
    }
    assert {name: rows[0].tolist() for name, (rows, _) in found.items()} == expected
    tokens, _, mask = one(range(10, 16), [1, 1, 0, 0, 1, 0])
    seen = Counter()
    for row in shuffled_noise(np.repeat(tokens, 3000, 0), np.repeat(mask, 3000, 0), draws_for(3000, 4)).tolist():
        assert row[2:4] + row[5:] == [12, 13, 15]
        seen[tuple(row[:2] + row[4:5])] += 1
    assert len(seen) == 6 and max(abs(count - 500) for count in seen.values()) < 5 * np.sqrt(3000 * 5 / 36)


def rendered(objective, mask, **changes):
    """Inputs and targets of the paper's sentence under a given mask."""
    vocabulary = {word: 100 + number for number, word in enumerate(WORDS)} | {"X": X, "Y": Y, "Z": Z}
    tokens, lengths, mask = one([vocabulary[word] for word in WORDS], mask)

    class Given(Denoising):
        def _noise(self, lengths, width, draws):
            return mask

    denoising = Given(objective, sentinels=range(X, X - 100, -1), vocabulary=(3, 32100), **changes)
    sides = denoising(tokens, lengths, draws_for(1, denoising.num_draws(len(WORDS))))
    names = {number: word for word, number in vocabulary.items()}
    return tuple(" ".join(names[token] for token in rows[0].tolist()) for rows, _ in sides)


def test_renderings_of_the_paper():
    text = " ".join(WORDS)
    scattered, spans = [0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0], [0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1]
    end, nothing = [0] * 4 + [1] * 7, [1] * 11
    assert rendered("prefix_lm", end) == ("Thank you for inviting", "me to your party last week .")
    assert rendered("lm", nothing) == ("", text)
    assert rendered("mass", scattered) == ("Thank you X X me to your party X week .", text)
    replaced = ("Thank you X me to your party Y week .", "X for inviting Y last Z")
    assert rendered("replace_spans", scattered) == replaced
    assert rendered("drop_tokens", scattered) == ("Thank you me to your party week .", "for inviting last")
    printed = [0, 0, 1, 1, 1, 0, 1, 1, 1, 0, 0]
    assert rendered("random_spans", printed) == ("Thank you X to Y week .", "X for inviting me Y your party last Z")
    assert rendered("random_spans", spans) == (
        "Thank you X to your party last Y",
        "X for inviting me Y week .",
    )
    inputs, targets = rendered("deshuffling", nothing)
    assert sorted(inputs.split()) == sorted(WORDS) and inputs != text and targets == text


def test_bert_style_masks_nine_in_ten():
    tokens = np.full((400, 100), 7, np.int32)
    noise = np.tile(np.arange(100) % 2 == 0, (400, 1))
    rendered = masked_or_random(tokens, noise, 32099, (3, 32100), draws_for(400, 100))
    assert (rendered[~noise] == 7).all()
    hidden = rendered[noise]
    assert abs((hidden == 32099).mean() - 0.9) < 5 * np.sqrt(0.09 / len(hidden))
    random = hidden[hidden != 32099]
    assert random.min() >= 3 and random.max() < 32100 and abs(random.mean() - 16051) < 5 * 9266 / np.sqrt(len(random))


@pytest.mark.parametrize("row", GOLDEN["mask_statistics"])
def test_random_spans_are_those_of_the_reference(row):
    length, rows = row["length"], 500
    draws = draws_for(rows, span_draws(length))
    masks = random_spans(np.full(rows, length), length, row["noise_density"], row["mean_noise_span_length"], draws)
    spans = (np.diff(masks.astype(int), axis=1, prepend=0) == 1).sum(axis=1)
    assert set(masks.sum(axis=1).tolist()) == set(row["noise_tokens"])
    assert set(spans.tolist()) == set(row["spans"])
    assert masks[:, 0].any() == row["first_token_ever_noise"] and (~masks[:, -1]).any() == row["last_token_ever_clean"]


def test_every_way_to_split_is_equally_likely():
    # 9 tokens, 4 of them noise, in 2 spans: 4 ways to split what is kept, times 3.
    rows = 24_000
    masks = random_spans(np.full(rows, 9), 9, 4 / 9, 2.0, draws_for(rows, span_draws(9)))
    seen = Counter("".join("01"[bit] for bit in row) for row in masks.astype(int).tolist())
    assert len(seen) == 12
    assert max(abs(count - 2000) for count in seen.values()) < 5 * np.sqrt(2000 * 11 / 12)


def test_rows_of_different_lengths_in_one_batch():
    lengths = np.array([0, 1, 2, 3, 7, 40])
    masks = random_spans(lengths, 40, 0.3, 2.0, draws_for(6, span_draws(40)))
    noise, _ = noise_counts(lengths, 0.3, 2.0)
    assert masks.sum(axis=1).tolist() == [0, 0, *noise[2:].tolist()]
    assert not (masks & (np.arange(40) >= lengths[:, None])).any()
    for mask, length in zip(masks[2:], lengths[2:], strict=True):
        assert not mask[0] and mask[length - 1]


def test_counts_of_the_sheet_and_at_the_edges():
    assert [int(v[0]) for v in noise_counts(np.array([32]), 0.25, 2.0)] == [8, 4]
    for rate, lengths in ((0.15, (190, 350, 390)), (0.3, (95, 175, 195))):  # single and double precision differ
        for length in lengths:
            assert noise_counts(np.array([length]), rate, 3.0)[0][0] == round(length * rate) + 1
    assert [int(noise_counts(np.array([n]), 0.15, 3.0)[0][0]) for n in (190, 350, 390)] == [29, 53, 59]
    assert [int(v[0]) for v in noise_counts(np.array([20]), 0.8, 1.0)] == [16, 4]  # spans that need kept tokens
    assert [int(v[0]) for v in noise_counts(np.array([20]), 0.0, 3.0)] == [1, 1]
    assert [int(v[0]) for v in noise_counts(np.array([20]), 1.0, 3.0)] == [19, 1]
    assert random_spans(np.array([4]), 4, 0.2, 3.0, draws_for(1, span_draws(4))).tolist() == [[False] * 3 + [True]]
    assert random_spans(np.array([1]), 1, 0.5, 3.0, draws_for(1, span_draws(1))).tolist() == [[False]]
    # A mean longer than the text: one span.
    assert random_spans(np.array([9]), 9, 0.4, 50.0, draws_for(1, span_draws(9))).sum() == 4


def test_rolled_spans_stand_anywhere():
    rows = 5000
    masks = random_spans(np.full(rows, 12), 14, 0.25, 3.0, draws_for(rows, span_draws(14)), roll=True)
    assert (masks.sum(axis=1) == 3).all() and not masks[:, 12:].any()
    assert abs(masks[:, :12].mean(axis=0) - 0.25).max() < 5 * np.sqrt(0.1875 / rows)


def test_tokens_by_themselves_and_ends():
    lengths = np.full(4000, 20)
    tokens = random_tokens(lengths, 25, 0.15, draws_for(4000, 25))
    assert not tokens[:, 20:].any()
    assert abs(tokens[:, :20].mean(axis=0) - 0.15).max() < 5 * np.sqrt(0.1275 / 4000)
    assert not tokens.any(axis=1).all()
    assert not random_tokens(lengths, 20, 0.0, draws_for(4000, 20)).any()
    assert random_tokens(lengths, 20, 1.0, draws_for(4000, 20)).all()
    ends = random_ends(np.full(9000, 10), 12, draws_for(9000, 1))
    splits = 10 - ends.sum(axis=1)
    assert abs(np.bincount(splits, minlength=11)[1:10] - 1000).max() < 5 * np.sqrt(9000 * 8 / 81)
    assert splits.min() == 1 and splits.max() == 9 and ends[:, 9].all() and not ends[:, 10:].any()


def test_more_runs_than_sentinels_go_on_downwards():
    tokens, lengths, mask = one(range(10, 18), [1, 0] * 4)
    assert spans_replaced(tokens, lengths, mask, np.array([99, 98]))[0].tolist() == [[99, 11, 98, 13, 97, 15, 96, 17]]


def test_padding_is_never_rendered():
    for name in OBJECTIVES:
        denoising = Denoising(name, 0.4, 2.0, sentinels=SENTINELS, vocabulary=(3, 1000))
        draws = draws_for(2, denoising.num_draws(12))
        tokens = np.arange(100, 112, dtype=np.int32)
        longer = denoising(np.array([tokens, tokens]), np.array([7, 12]), draws)
        for rows, lengths in longer:
            assert not np.isin(rows[0, : lengths[0]], tokens[7:]).any(), name
        empty = denoising(np.zeros((0, 12), np.int32), np.zeros(0, int), draws[:0])
        assert [len(rows) for rows, _ in empty] == [0, 0]


def test_sentinels_of_a_vocabulary():
    tokenizer = Tokenizer.train("unigram", ["a b c d e f g h"] * 20, 112, family="t5")
    ids = sentinel_ids(tokenizer)
    assert len(ids) == 100 and ids[0] == tokenizer.vocabulary_size - 1 and (np.diff(ids) == -1).all()
    with pytest.raises(ValueError, match="needs the sentinels <extra_id_0>"):
        sentinel_ids(Tokenizer.train("wordpiece", ["a b c d e f g h"] * 20, 21))
