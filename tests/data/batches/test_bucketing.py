import numpy as np
import pytest

from kerasbert.data.batches.bucketing import (
    BucketedBatches,
    Widths,
    batches_by_length,
    bucket_width,
    fine_width,
    prediction_widths,
    row_lengths,
    training_widths,
)

pytestmark = pytest.mark.one_backend

LENGTHS = np.array([3, 60, 17, 5, 33, 16, 30, 2, 70, 40, 9])


def examples(left=False):
    width = 70
    columns = np.arange(width)
    real = columns >= width - LENGTHS[:, None] if left else columns < LENGTHS[:, None]
    ids = np.where(real, 1 + np.arange(len(LENGTHS))[:, None], 0).astype("int32")
    return {"token_ids": ids, **({"padding_mask": real} if left else {"lengths": LENGTHS.astype("int32")})}


def test_widths_are_few():
    assert [bucket_width(n) for n in (1, 16, 17, 500, 513, 1_025)] == [16, 16, 32, 512, 1_024, 1_536]
    assert [bucket_width(n, limit=100) for n in (60, 70, 120)] == [64, 100, 120]
    assert [fine_width(n) for n in (1, 13, 33, 64, 70, 201)] == [2, 14, 34, 64, 72, 208]
    assert [fine_width(n, limit=71) for n in (60, 70, 120)] == [60, 71, 120]
    assert max(fine_width(n) / n for n in range(32, 2_000)) < 1.0625 + 1e-9


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_example_comes_once_a_pass_and_whole(left, shuffle):
    labels = np.arange(len(LENGTHS))
    batches = BucketedBatches(
        examples(left), labels, batch_size=3, epochs=2, shuffle=shuffle, widths=Widths(100, least_steps=1)
    )
    assert len(batches) == 8 and 1 < len(batches.widths) < 5
    orders = []
    for number in range(2):
        seen = []
        for x, y, weight in list(batches)[4 * number : 4 * number + 4]:
            width = x["token_ids"].shape[1]
            assert len(y) == 3 and width in batches.widths
            real = weight > 0
            lengths = row_lengths({key: array[real] for key, array in x.items()})
            assert lengths.tolist() == LENGTHS[y[real]].tolist()
            assert lengths.max() <= width
            assert (x["token_ids"][real].sum(axis=1) == (1 + y[real]) * lengths).all()
            seen += y[real].tolist()
        assert sorted(seen) == labels.tolist()
        orders.append(seen)
    assert (orders[0] != orders[1]) is shuffle


DRAWS = {
    "questions": lambda generator, count: generator.poisson(9, count) + 3,
    "sentences": lambda generator, count: generator.normal(24, 8, count),
    "uniform": lambda generator, count: generator.integers(3, 513, count),
}


@pytest.mark.parametrize("count", [500, 501, 2_000, 10_000])
@pytest.mark.parametrize("kind", DRAWS)
def test_little_padding_with_few_widths(kind, count):
    """From 500 examples on less than 15% of the slots are padding, and at most 8 programs are compiled."""
    lengths = np.clip(DRAWS[kind](np.random.default_rng(0), count), 3, 512).astype("int32")
    x = {"token_ids": np.zeros((count, 512), "bool"), "lengths": lengths}
    batches = BucketedBatches(x, batch_size=32, widths=Widths(512))
    rows, widths = batches._pass(0)
    assert sorted(np.concatenate(rows).tolist()) == list(range(count))
    assert len(batches.widths) <= 8 and 1 - lengths.sum() / (32 * sum(widths)) < 0.15
    assert sum(len(part) < 32 for part in rows) == (count % 32 > 0)
    assert widths[:2] == [max(widths), min(widths)] and widths != sorted(widths)
    assert batches.tokens_per_step == round(lengths.sum() / len(widths))


def test_a_pass_of_a_multiple_of_steps():
    """So that reports come at equal distances and at the end of every pass; nothing is lost or repeated."""
    batches = BucketedBatches(examples(), np.arange(len(LENGTHS)), batch_size=2, epochs=2, widths=Widths(least_steps=1))
    assert batches.steps_per_epoch == 6
    for number, steps in ((3, 6), (4, 8), (5, 10)):
        found = batches.in_multiples_of(number)
        assert found.steps_per_epoch == steps and len(found) == 2 * steps
        seen = [y[weight > 0].tolist() for _, y, weight in found]
        for passed in (seen[:steps], seen[steps:]):
            assert sorted(sum(passed, [])) == list(range(len(LENGTHS))) and all(passed)


def test_widths_of_predictions_are_worth_their_programs():
    assert prediction_widths([64, 32, 32, 16], cost=0) == [64, 32, 32, 16]
    assert prediction_widths([64, 32, 32, 16], cost=1_000) == [64] * 4
    assert prediction_widths([64, 32, 32, 16], cost=20) == [64, 32, 32, 32]
    assert prediction_widths([64, 32, 32, 16], cost=20, compiled=[16]) == [64, 32, 32, 16]
    assert prediction_widths([48, 32, 32, 16], cost=100, compiled=[64]) == [64] * 4
    assert training_widths([40, 20, 18, 9], 1, 0.0) == [40] * 4
    assert training_widths([40, 20, 18, 9], 4, 0.0) == [40, 20, 20, 9]  # within 4% of four widths
    assert training_widths([40, 20, 18, 9], 4, 23.0) == [40, 20, 20, 20]  # no more than 12% of padding


def test_any_step_at_once_and_from_any_start():
    batches = BucketedBatches(
        examples(), np.arange(len(LENGTHS)), batch_size=2, epochs=3, seed=5, widths=Widths(least_steps=1)
    )
    whole = list(batches)
    for step in (11, 0, 17, 6):
        for found, expected in zip(batches[step][:2], whole[step][:2], strict=True):
            np.testing.assert_equal(found, expected)
    np.testing.assert_equal(batches.starting_at(7)[2], whole[9])


def test_parts_have_one_width():
    x = examples()
    batches = BucketedBatches(x, batch_size=4, shuffle=False, widths=Widths(least_steps=1))
    rows = []
    for part, numbers in batches.parts():
        ids = np.concatenate([x["token_ids"][:, :16] for x, _, _ in part])[: len(numbers)]
        assert len({x["token_ids"].shape[1] for x, _, _ in part}) == 1
        assert ids[:, 0].tolist() == (1 + numbers).tolist()
        rows += numbers.tolist()
    assert sorted(rows) == list(range(len(LENGTHS)))


def test_tags_are_cut_with_their_tokens():
    x = examples()
    y = np.where(x["token_ids"] > 0, 7, 0)
    for _, targets, weight in BucketedBatches(
        x, y, (y > 0).astype("float32"), batch_size=3, tagged=True, widths=Widths(least_steps=1)
    ):
        assert targets.shape == weight.shape and ((targets == 7) == (weight > 0)).all()


def test_a_width_must_be_worth_its_program():
    x = examples()
    for least, most in ((1, 11), (3, 3), (6, 1), (99, 1)):
        batches = BucketedBatches(x, batch_size=1, widths=Widths(70, least))
        assert 1 <= len(batches.widths) <= most and (most == 1) == (len(batches.widths) == 1)
    for shuffle in (True, False):
        few = BucketedBatches({key: array[:3] for key, array in x.items()}, batch_size=2, shuffle=shuffle)
        assert len(few.widths) == 1, "two steps"


def test_predictions_of_other_texts_need_no_new_programs():
    batches = BucketedBatches(examples(), batch_size=1, shuffle=False)
    assert batches.for_prediction(cost=0).widths == [16, 24, 32, 48, 64, 96]
    assert batches.for_prediction(cost=10_000).widths == [96]
    assert batches.for_prediction(cost=10_000, compiled=[96, 128]).widths == [96]
    assert batches.for_prediction(cost=10_000, compiled=[16, 64, 128]).widths == [16, 64, 128]


def test_batches_by_length_are_of_few_shapes_and_have_little_padding():
    lengths = np.clip(np.random.default_rng(0).lognormal(3.3, 0.8, 5_000).astype(int), 3, 256)
    batches = list(batches_by_length(lengths, 32, limit=256))
    assert sorted(np.concatenate([examples for examples, _, _ in batches]).tolist()) == list(range(5_000))
    assert all(len(examples) <= rows and lengths[examples].max() <= width for examples, rows, width in batches)
    assert len({(rows, width) for _, rows, width in batches}) <= 20
    assert lengths.sum() / sum(rows * width for _, rows, width in batches) > 0.9
    exact = list(batches_by_length(lengths, 32, exact=True))
    assert lengths.sum() / sum(rows * width for _, rows, width in exact) > 0.97


@pytest.mark.parametrize(
    ("lengths", "batch_size", "expected"),
    [
        ([3, 90, 5], 32, [([1, 2, 0], 4, 128)]),
        ([7], 32, [([0], 1, 16)]),
        ([600, 600], 1, [([0], 1, 1024), ([1], 1, 1024)]),
    ],
)
def test_batches_by_length_of_few(lengths, batch_size, expected):
    found = [
        (examples.tolist(), rows, width) for examples, rows, width in batches_by_length(np.array(lengths), batch_size)
    ]
    assert found == expected


def test_a_run_that_is_shorter_than_compiling_has_a_single_width_that_other_texts_share():
    lengths = np.arange(1, 41).repeat(8)
    x = {"token_ids": np.ones((len(lengths), 40), "int32"), "lengths": lengths.astype("int32")}

    def widths(program_tokens, epochs=1):
        return BucketedBatches(x, batch_size=8, epochs=epochs, widths=Widths(100, program_tokens=program_tokens)).widths

    assert widths(0) == widths(1) and len(widths(0)) > 2
    assert widths(10_000) == [40] and widths(20_000) == [64]  # another width would be less than half of a program
    assert len(widths(10_000, epochs=2)) == 1 and widths(10_000, epochs=1_000) == widths(0)
    few = {key: array[:1] for key, array in x.items()}
    costly = Widths(program_tokens=1_000)
    assert [
        w
        for n in (17, 20, 32)
        for w in BucketedBatches({**few, "lengths": np.full(1, n, "int32")}, batch_size=1, widths=costly).widths
    ] == [32] * 3
    columns = sum(min(w for w in widths(0) if w >= n) for n in lengths)
    assert columns < 40 * len(lengths) < 64 * len(lengths)
