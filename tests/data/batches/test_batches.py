import numpy as np
import pytest

from kerasbert.data import ExampleBatches

pytestmark = pytest.mark.one_backend


def arrays(count=10):
    ids = np.arange(count * 3, dtype=np.int32).reshape(count, 3)
    return {"token_ids": ids, "lengths": np.full(count, 3, np.int32), "masked_positions": ids % 3}, np.arange(count)


def test_every_example_once_a_pass_in_a_new_order():
    x, y = arrays()
    batches = ExampleBatches(x, y, batch_size=4, epochs=3, seed=5)
    assert (len(batches), batches.steps_per_epoch, batches.length, batches.rows) == (9, 3, 3, 4)
    orders = []
    for number in range(3):
        steps = [batches[3 * number + step] for step in range(3)]
        weights = np.concatenate([weight for _, _, weight in steps])
        targets = np.concatenate([target for _, target, _ in steps])
        tokens = np.concatenate([inputs["token_ids"] for inputs, _, _ in steps])
        assert weights.tolist() == [1] * 10 + [0] * 2 and weights.dtype == np.float32
        assert sorted(targets[:10].tolist()) == list(range(10))
        np.testing.assert_array_equal(tokens[:10], x["token_ids"][targets[:10]])
        orders.append(targets[:10].tolist())
    assert len({tuple(order) for order in orders}) == 3


def test_rows_of_padding_weigh_nothing():
    x, y = arrays(5)
    inputs, target, weight = ExampleBatches(x, {"start": y, "end": y}, batch_size=4, shuffle=False)[1]
    assert inputs["token_ids"].tolist() == [[12, 13, 14], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert inputs["lengths"].tolist() == [3, 0, 0, 0]
    assert inputs["masked_positions"].tolist() == [[0, 1, 2]] + [[-1, -1, -1]] * 3
    assert inputs["token_ids"].dtype == np.int32
    assert target["start"].tolist() == target["end"].tolist() == [4, 0, 0, 0]
    assert weight["start"].tolist() == weight["end"].tolist() == [1, 0, 0, 0]


def test_weights_and_missing_targets():
    x, _ = arrays(3)
    inputs, target, weight = ExampleBatches(x["token_ids"], sample_weight=[0.5, 2, 1], batch_size=2, shuffle=False)[0]
    assert inputs.tolist() == [[0, 1, 2], [3, 4, 5]] and target is None
    assert weight.tolist() == [0.5, 2]
    *_, weight = ExampleBatches(x, {"start": [1, 2, 3], "end": [1, 2, 3]}, [0.5, 2, 1], batch_size=2, shuffle=False)[1]
    assert {name: value.tolist() for name, value in weight.items()} == {"start": [1, 0], "end": [1, 0]}


def test_starting_at_shard_and_indices():
    x, y = arrays()
    batches = ExampleBatches(x, y, batch_size=4, epochs=4, seed=1)
    rest = batches.starting_at(5)
    assert len(rest) == len(batches) - 5
    same(rest[0], batches[5])
    same(rest.starting_at(2)[1], batches[8])
    same(rest[-1], batches[len(batches) - 1])
    assert [len(list(part)) for part in (batches, rest, batches.starting_at(12))] == [12, 7, 0]
    for index in range(2):
        part = batches.shard(index, 2)
        assert part.rows == 2 and len(part) == len(batches)
        for step in range(3):
            same(part[step], sliced(batches[step], 2 * index, 2 * index + 2))
    same(batches.shard(1, 2).shard(0, 2)[7], sliced(batches[7], 2, 3))
    same(batches.starting_at(3).shard(1, 4)[0], sliced(batches[3], 1, 2))
    for step in (12, -13):
        with pytest.raises(IndexError, match="outside this run of 12"):
            batches[step]


def same(first, second):
    assert type(first) is type(second)
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        for name in first:
            same(first[name], second[name])
    elif isinstance(first, tuple):
        for one, other in zip(first, second, strict=True):
            same(one, other)
    elif first is not None:
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)


def sliced(value, first, last):
    if isinstance(value, dict):
        return {name: sliced(part, first, last) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(sliced(part, first, last) for part in value)
    return value[first:last]


def test_recipe():
    x, y = arrays()
    recipe = ExampleBatches(x, y, batch_size=4, epochs=2, seed=3).recipe()
    assert recipe["batches"] == "ExampleBatches" and recipe["seed"] == 3 and recipe["examples"] == 10
    assert recipe == ExampleBatches(x, y, batch_size=4, epochs=5, seed=3).recipe()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be an integer of at least 1"),
        ({"seed": -1}, "`seed` must be an integer of at least 0"),
        ({"y": np.arange(4)}, r"same number of examples.*Received: arrays of \[4, 10\]"),
        ({"sample_weight": np.ones(4)}, "a weight for each of the 10 examples"),
    ],
)
def test_bad_arguments(options, message):
    x, y = arrays()
    with pytest.raises(ValueError, match=message):
        ExampleBatches(x, **{"y": y, **options})


def test_bad_parts():
    x, y = arrays()
    batches = ExampleBatches(x, y, batch_size=4)
    with pytest.raises(ValueError, match="`count` must divide the 4 rows"):
        batches.shard(0, 3)
    with pytest.raises(ValueError, match="`index` must be below `count`"):
        batches.shard(2, 2)
    with pytest.raises(ValueError, match="within the run of 3 steps. Received: 4"):
        batches.starting_at(4)
    with pytest.raises(ValueError, match="at least one"):
        ExampleBatches(np.zeros((0, 3)), np.zeros(0))
