import numpy as np
import pytest

from kerasbert.data.bucketing import BucketedBatches, batches_by_length, bucket_width, row_lengths

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


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_example_comes_once_a_pass_and_whole(left, shuffle):
    labels = np.arange(len(LENGTHS))
    batches = BucketedBatches(
        examples(left), labels, batch_size=3, epochs=2, shuffle=shuffle, limit=100, steps_per_width=1
    )
    assert len(batches) == 8
    orders = []
    for number in range(2):
        seen = []
        for x, y, weight in list(batches)[4 * number : 4 * number + 4]:
            width = x["token_ids"].shape[1]
            assert len(y) == 3 and width in (16, 32, 64, 100)
            real = weight > 0
            lengths = row_lengths({key: array[real] for key, array in x.items()})
            assert lengths.tolist() == LENGTHS[y[real]].tolist()
            assert lengths.max() <= width
            assert (x["token_ids"][real].sum(axis=1) == (1 + y[real]) * lengths).all()
            seen += y[real].tolist()
        assert sorted(seen) == labels.tolist()
        orders.append(seen)
    assert (orders[0] != orders[1]) is shuffle


def test_little_padding_and_one_batch_that_is_not_full():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 513, 2_000).astype("int32")
    batches = BucketedBatches(
        {"token_ids": np.zeros((2_000, 512), "int32"), "lengths": lengths}, batch_size=32, steps_per_width=1
    )
    slots = sum(x["token_ids"].size for x, _, _ in batches)
    assert lengths.sum() / slots > 0.7
    assert sum((weight == 0).any() for _, _, weight in batches) == 1
    widths = [x["token_ids"].shape[1] for x, _, _ in batches]
    assert widths[:2] == [512, 16] and widths != sorted(widths)


def test_any_step_at_once_and_from_any_start():
    batches = BucketedBatches(examples(), np.arange(len(LENGTHS)), batch_size=2, epochs=3, seed=5, steps_per_width=1)
    whole = list(batches)
    for step in (11, 0, 17, 6):
        for found, expected in zip(batches[step][:2], whole[step][:2], strict=True):
            np.testing.assert_equal(found, expected)
    np.testing.assert_equal(batches.starting_at(7)[2], whole[9])


def test_parts_have_one_width():
    x = examples()
    batches = BucketedBatches(x, batch_size=4, shuffle=False, steps_per_width=1)
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
        x, y, (y > 0).astype("float32"), batch_size=3, tagged=True, steps_per_width=1
    ):
        assert targets.shape == weight.shape and ((targets == 7) == (weight > 0)).all()


def test_a_width_must_be_worth_its_program():
    x = examples()  # 16 or less: 5, 17 to 32: 2, 33 to 64: 3, more: 1
    for least, expected in ((1, {16, 32, 64, 70}), (3, {16, 64, 70}), (5, {16, 64, 70}), (6, {32, 70}), (99, {70})):
        batches = BucketedBatches(x, batch_size=1, steps_per_width=least, limit=70)
        assert {row["token_ids"].shape[1] for row, _, _ in batches} == expected
    widths = [row["token_ids"].shape[1] for row, _, _ in BucketedBatches(x, batch_size=1, epochs=100)]
    assert set(widths) == {16, 32, 64, 128}


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
