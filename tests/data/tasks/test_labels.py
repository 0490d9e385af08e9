"""Names of labels in every form: what is a name, what is an index, and what is refused because it is neither."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kerasbert.data.tasks.labels import indices_of, names_of
from kerasbert.data.tasks.targets import encoded_classes, encoded_scores, encoded_sets, rows_of_table
from kerasbert.training.convert import class_numbers

pytestmark = pytest.mark.one_backend

STARS = pd.Series([3, 1, 5], index=[9, 4, 7])


@pytest.mark.parametrize(
    "labels, names",
    [
        (2, ["LABEL_0", "LABEL_1"]),
        (STARS.max() - 2, ["LABEL_0", "LABEL_1", "LABEL_2"]),
        ([1, 0], [1, 0]),
        (range(1, 4), [1, 2, 3]),
        (np.unique(STARS), [1, 3, 5]),
        ([1.0, 2.5], [1.0, 2.5]),
        (np.array([False, True]), [False, True]),
        (np.array(["bad", "good"]), ["bad", "good"]),
        (STARS, [3, 1, 5]),
        (pd.Categorical(["b", "a"]).categories, ["a", "b"]),
        (pa.chunked_array([["a"], ["b"]]), ["a", "b"]),
        ({0: "neg", 1: "pos"}, ["neg", "pos"]),
        ({1: "pos", 0: "neg"}, ["neg", "pos"]),
        ({"pos": 1, "neg": 0}, ["neg", "pos"]),
        ({"0": "neg", "1": "pos"}, ["neg", "pos"]),
        ({5: 0, 7: 1}, [5, 7]),
        ({"0": 1, "1": 0}, ["1", "0"]),
        ({"a": 0, "b": 1}.keys(), ["a", "b"]),
    ],
)
def test_names_keep_their_order_and_types(labels, names):
    found = names_of(labels)
    assert found == names and [type(name) for name in found] == [type(name) for name in names]


@pytest.mark.parametrize(
    "labels, message",
    [
        ({"a", "b"}, r"must be in an order. Received: a set. Use sorted\(labels\)"),
        (frozenset([1, 0]), "must be in an order. Received: a frozenset"),
        ("neg", "must be a list of names. Received: 'neg'"),
        (True, "must be a list of names. Received: True"),
        (2.0, "must be a list of names. Received: 2.0"),
        ((name for name in "ab"), "must be a list of names. Received: <generator"),
        (None, "must be a list of names. Received: None"),
        (0, "must be at least 1 and at most 1,000,000. Received: 0"),
        (10**12, "at most 1,000,000. Received: 1000000000000"),
        ([], "all be bools. Received: "),
        ([0, "a"], "all be bools. Received: 0, 'a'"),
        ([0, True], "all be bools. Received: 0, True"),
        ([float("nan"), 1.0], "all be bools. Received: nan, 1.0"),
        (["a", None], "all be bools. Received: 'a', None"),
        (["a", "b", "a"], r"different names. Received: 'a' twice, in \['a', 'b', 'a'\]"),
        ({0: 1, 1: 0}, "map the indices from 0 to names, or names to the indices from 0. Received: {0: 1, 1: 0}"),
        ({1: "a", 2: "b"}, "map the indices from 0"),
        ({"a": 1, "b": 2}, "map the indices from 0"),
        (pd.DataFrame({"x": [0, 1]}), r'the columns x. Use df\["x"\]'),
    ],
)
def test_names_that_are_not_clear(labels, message):
    with pytest.raises(ValueError, match=message):
        names_of(labels)


@pytest.mark.parametrize(
    "names, labels, indices",
    [
        ([1, 0], [1, 0, 1], [0, 1, 0]),
        ([1, 2, 3], np.array([3, 1]), [2, 0]),
        ([1, 2, 3], [1.0, np.float32(3), np.int64(2)], [0, 2, 1]),
        ([1.0, 2.5], [2.5, 1], [1, 0]),
        ([1, 0], [True, False], [0, 1]),
        ([True, False], np.array([True, False]), [0, 1]),
        ([True, False], [1, 0], [0, 1]),
        ([3, 1, 5], STARS, [0, 1, 2]),
        (["bad", "good"], ["good", 0, 1.0, True], [1, 0, 1, 1]),
        (["bad", "good"], pd.Series(["good"], index=[7]), [1]),
        (["0", "1"], [1, 0, "1"], [1, 0, 1]),
        (["1", "5"], [1, 0, "1"], [1, 0, 0]),  # an int is an index wherever the names are str
        (["1", "2", "3"], [0, 1, 2, "2"], [0, 1, 2, 1]),
        (["True", "False"], [True, False], [0, 1]),
    ],
)
def test_an_int_is_a_name_if_names_are_numbers(names, labels, indices):
    found = indices_of(names, labels)
    assert found.tolist() == indices and found.dtype == "int32"


@pytest.mark.parametrize(
    "names, labels, message",
    [
        ([1, 2, 3], [1, 0], r"must be in \[1, 2, 3\]. Received: 0, as label 1"),
        ([1, 2, 3], ["1"], "Received: '1', as label 0"),
        ([True, False], ["True"], "Received: 'True', as label 0"),
        (["a", "b"], [0, None], "or be their indices. Received: None, as label 1"),
        (["a", "b"], [0.5], "Received: 0.5, as label 0"),
        (["a", "b"], [10**400], "Received: 1000"),
        ([1, 2], [10**400], "Received: 1000"),
        (["1", "2", "3"], [3, 1], "Received: 3, as label 0. The name '3' is a str: use str"),
        (["1", "5"], np.array([1, 1]), "an index or a name. Received: 1, which is the index of '5', or the name '1'"),
        (["1", "0"], [1, 0, "1"], "an index or a name. Received: 1, which is the index of '0', or the name '1'"),
        (["a", "b"], "ab", "a list of labels, one per example. Received: 'ab'"),
        (["a", "b"], {"a": 1}, "a list of labels, one per example. Received: {'a': 1}"),
    ],
)
def test_labels_that_are_neither(names, labels, message):
    with pytest.raises(ValueError, match=message):
        indices_of(names, labels)


def test_a_label_for_each_text():
    assert encoded_classes([1, 0], np.array([[1], [0]])).tolist() == [0, 1]
    assert encoded_classes(["a", "b"], [["b"], ["a"]]).tolist() == [1, 0]
    assert encoded_classes([1, 0], [[0.25, 0.75]]).tolist() == [[0.25, 0.75]]
    with pytest.raises(ValueError, match=r"one label, or a row of 2 numbers.*Received: \['a', 'b'\]"):
        encoded_classes(["a", "b"], [["a", "b"]])
    assert encoded_scores(pd.Series([2, 0.5], index=[3, 1])).tolist() == [[2.0], [0.5]]
    with pytest.raises(ValueError, match="Scores must be numbers, one for each text. Received: 'good'"):
        encoded_scores([1, "good"])


@pytest.mark.parametrize(
    "names, labels, rows",
    [
        (["a", "b", "c"], ["c", ["b", "a"], []], [[0, 0, 1], [1, 1, 0], [0, 0, 0]]),
        (["a", "b", "c"], pd.Series([["c"], {"a"}], index=[5, 2]), [[0, 0, 1], [1, 0, 0]]),
        (["a", "b", "c"], pa.array([["c"], []]), [[0, 0, 1], [0, 0, 0]]),
        (["a", "b", "c"], [np.array(["a", "c"])], [[1, 0, 1]]),
        (["a", "b", "c"], [[0, 1, 1]], [[0, 1, 1]]),
        ([1, 0], [[0], [1, 0]], [[0, 1], [1, 1]]),
        ([1, 0], np.array([[0, 1]]), [[0, 1]]),
        (["a", "b"], np.array([[0, 1]]), [[0, 1]]),
        (["a", "b"], [[0, 1], [1, 1]], [[0, 1], [1, 1]]),
        (["a", "b"], [[0, 1], [0]], [[1, 1], [1, 0]]),
        (["a", "b"], [{0, 1}], [[1, 1]]),
        (["a", "b"], [[False, True]], [[0, 1]]),
        (["a", "b"], [[0.0, 1.0]], [[0, 1]]),
        ([1, 0], [[1, 1], [0, 1]], [[1, 1], [0, 1]]),
        ([7, 9], [[9], []], [[0, 1], [0, 0]]),
    ],
)
def test_several_labels_for_each_text(names, labels, rows):
    assert encoded_sets(names, labels).tolist() == rows


@pytest.mark.parametrize(
    "names, labels, message",
    [
        ([1, 0], [[1, 0], [0, 1]], r"Received: \[1, 0\], which may be either"),
        (["a", "b"], [[0, 1], [1, 0]], r"Received: \[0, 1\], which may be either. Pass rows as an array"),
        (["a", "b"], [["a"], ["b", "z"]], "Target 1: .*Received: 'z', as label 1"),
        (["a", "b"], [{"a": 1, "b": 0}], "a list of labels, which may be empty. Received: {'a': 1, 'b': 0}"),
        (["a", "b"], [0, 1], "a list of labels, which may be empty. Received: 0"),
        (["a", "b"], [[-1]], "from 0 to 1. Received: -1"),
        (["a", "b"], [[2]], "from 0 to 1. Received: 2 in target 0"),
        (["a", "b"], ["['a', 'b']"], "must be in"),
    ],
)
def test_several_labels_that_are_not_clear(names, labels, message):
    with pytest.raises(ValueError, match=message):
        encoded_sets(names, labels)


def test_a_table_of_targets_is_read_by_the_names_of_its_columns():
    table = pd.DataFrame({"b": [0, 1], "a": [1, 1]}, index=[4, 8])
    for one in (table, pa.Table.from_pandas(table, preserve_index=False)):
        assert rows_of_table(["a", "b"], one).tolist() == [[1, 0], [1, 1]]
    with pytest.raises(ValueError, match=r"a column for each label, \['a', 'c'\]. Received: the columns \['b', 'a'\]"):
        rows_of_table(["a", "c"], table)


def test_keys_of_class_weight_are_as_clear_as_labels():
    assert class_numbers({0: 2.0, 1: 3.0}, ["1", "5"]) == {0: 2.0, 1: 3.0}  # 0 is no name, so these are indices
    assert class_numbers({"5": 2.0}, ["1", "5"]) == {1: 2.0} == class_numbers({5: 2.0}, [1, 5])
    with pytest.raises(ValueError, match="an index or a name. Received: 1, which is the index of '5'"):
        class_numbers({1: 2.0}, ["1", "5"])
