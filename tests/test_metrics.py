import warnings

import numpy as np
import pytest

from kerasbert import metrics

pytestmark = pytest.mark.one_backend


def question(key, *answers, **further):
    return {"id": key, "question": "?", "answers": [{"text": a, "answer_start": 0} for a in answers], **further}


def article(*questions):
    return {"version": "x", "data": [{"title": "t", "paragraphs": [{"context": "c", "qas": list(questions)}]}]}


def test_squad_1():
    data = article(question("a", "The cat's mat!", "a mat"), question("b", "dog"), question("c", "owl"))
    scores = metrics.squad(data, {"a": "cats mat", "b": "the big dog"})
    assert scores == {"exact_match": pytest.approx(100 / 3), "f1": pytest.approx((1 + 2 / 3) * 100 / 3)}


def test_squad_2_with_thresholds():
    none = dict(is_impossible=True)
    data = article(
        question("a", "cat", is_impossible=False), question("b", "dog", is_impossible=False), question("c", **none),
        question("d", **none),
    )  # fmt: skip
    predictions = {"a": "cat", "b": "a big dog", "c": "", "d": "owl"}
    scores = metrics.squad(data, predictions)
    assert scores["exact"] == 50 and scores["total"] == 4 and scores["NoAns_exact"] == 50
    assert scores["HasAns_f1"] == pytest.approx(100 * (1 + 2 / 3) / 2)
    odds = {"a": -3.0, "b": -1.0, "c": 5.0, "d": 0.5}
    scores = metrics.squad(data, predictions, odds)
    # Of no answer at all, 2 of 4 are right; with "a" 3; with "b" 3 and 3.67; then "d" is lost again.
    assert (scores["best_exact"], scores["best_exact_thresh"]) == (75, -3.0)
    assert (scores["best_f1"], scores["best_f1_thresh"]) == (pytest.approx(100 * (3 + 2 / 3) / 4), -1.0)
    assert scores["exact"] == 50
    assert metrics.squad(data, predictions, odds, null_threshold=0.0)["exact"] == 75
    with pytest.raises(ValueError, match="none for 1 of them, such as d"):
        metrics.squad(data, {"a": "cat", "b": "", "c": ""})


def test_squad_2_without_its_flag():
    """A question without answers makes a data set one of version 2.0, whatever it says."""
    data = article(question("a", "cat"), question("b"))
    scores = metrics.squad(data, {"a": "cat", "b": ""})
    assert (scores["exact"], scores["HasAns_total"], scores["NoAns_total"]) == (100, 1, 1)
    assert metrics.squad(data, {"a": "cat", "b": "dog"})["NoAns_exact"] == 0


def test_entities_count_whole_ones():
    labels, predictions = [["B-P", "I-P", "O"], ["B-L", "O"]], [["B-P", "O", "O"], ["B-L", "B-P"]]
    found = metrics.entities(labels, predictions)
    assert found["precision"] == pytest.approx(1 / 3) and found["recall"] == 0.5 and found["f1"] == pytest.approx(0.4)
    assert (
        found["accuracy"] == pytest.approx(3 / 5) and found["types"]["L"]["f1"] == 1 and found["types"]["P"]["f1"] == 0
    )
    assert metrics.entities([["O"]], [["O"]])["f1"] == 0
    with pytest.raises(ValueError, match="sentence 0 with 2 labels, 1 predictions"):
        metrics.entities([["O", "O"]], [["O"]])
    with pytest.raises(ValueError, match="Received: 1 labels, 2 predictions"):
        metrics.entities([["O"]], [["O"], ["O"]])


def test_labels_and_numbers():
    labels, predictions = ["a", "b", "a", "a"], ["a", "b", "b", "a"]
    assert metrics.accuracy(labels, predictions) == 0.75
    assert metrics.f1(labels, predictions) == pytest.approx((0.8 + 2 / 3) / 2)
    assert metrics.f1(labels, predictions, "binary", positive="b") == pytest.approx(2 / 3)
    assert metrics.matthews([1, 1, 0, 0], [1, 1, 0, 0]) == 1 and metrics.matthews([1, 0], [1, 1]) == 0
    x = np.array([1.0, 2, 3, 4])
    assert metrics.pearson(x, 2 * x + 1) == pytest.approx(1) and metrics.spearman(x, -(x**3)) == pytest.approx(-1)
    assert metrics.pearson(x, np.ones(4)) == 0 == metrics.spearman(np.ones(4), x)
    with pytest.raises(ValueError, match=r"labels\[1\] = nan"):
        metrics.pearson([1, np.nan], [1, 2])


def test_bleu_and_rouge():
    references = ["the cat sat on the mat", "a dog"]
    assert metrics.bleu(references, references) == pytest.approx(100)
    assert metrics.bleu([["the cat sat on a mat", references[0]], [references[1]]], references) == pytest.approx(100)
    assert 0 < metrics.bleu(references, ["the cat sat on mat", "a dog"]) < 100
    scores = metrics.rouge(references, ["the cat sat", "a dog"])
    assert scores["rouge1"] == pytest.approx(100 * (2 * 0.5 / 1.5 + 1) / 2) and scores["rougeL"] == scores["rouge1"]
    assert metrics.rouge([["x", "a dog"]], ["a dog"])["rouge2"] == 100


def test_what_cannot_be_measured():
    for function, arguments, message in (
        (metrics.accuracy, (["1"], [1]), "both be names, or both be numbers. Received: '1' and 1"),
        (metrics.squad, ({"data": []}, {}), "must have questions"),
        (metrics.bleu, ([["a"], []], ["a", "b"]), "needs a reference. Received: none for number 1"),
        (metrics.rouge, ([[]], ["a"]), "needs a reference. Received: none for number 0"),
    ):
        with pytest.raises(ValueError, match=message):
            function(*arguments)


def test_f1_of_a_single_label_that_texts_may_have():
    """One column is one label: what it is not is no second class."""
    labels, predictions = np.array([[1], [0], [0], [1]]), np.array([[1], [0], [1], [0]])
    two = np.hstack([labels, labels]), np.hstack([predictions, predictions])
    for average in ("micro", "macro", "weighted"):
        assert metrics.f1(labels, predictions, average) == metrics.f1(*two, average) == 0.5
    assert metrics.f1(np.array([[0], [0], [0]]), np.array([[1], [0], [0]]), "micro") == 0


def test_matthews_of_one_class_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert metrics.matthews([1, 1], [1, 1]) == metrics.matthews(["a"], ["a"]) == 0.0


@pytest.mark.parametrize("side", ["B-PER", 0])
def test_a_flat_list_is_no_list_of_sentences(side):
    """Its items would be read as sentences of letters."""
    for labels, predictions in (([side, side], [side, side]), ([["O"], side], [["O"], ["O"]]), ([["O"]], [side])):
        with pytest.raises(ValueError, match=f"must be a list of tags, one for each word. Received: {side!r}"):
            metrics.entities(labels, predictions)
    with pytest.raises(ValueError, match="tags of a sentence must be a list of str. Received: 1"):
        metrics.entities([[1, 0]], [[1, 0]])


def test_a_single_text_is_no_list_of_texts():
    for score in (metrics.accuracy, metrics.bleu, metrics.rouge, metrics.entities):
        with pytest.raises(ValueError, match="list of labels or texts, one per example. Received: 'abc'"):
            score("abc", "abd")
    with pytest.raises(ValueError, match="list of labels or texts, one per example. Received: 'abd'"):
        metrics.bleu(["a", "b", "c"], "abd")


def test_columns_of_tables_are_labels():
    import pandas as pd
    import pyarrow as pa

    labels, predictions = pd.Series(["a", "b", "b"], index=[7, 9, 4]), pa.array(["a", "b", "a"])
    assert metrics.accuracy(labels, predictions) == pytest.approx(2 / 3)
    assert metrics.f1(labels, predictions, "micro") == pytest.approx(2 / 3)
    assert metrics.by_class(["a", "b"], labels, predictions)["a"]["precision"] == 0.5
    sentences = pd.Series([["B-X", "O"], ["B-X"]], index=[3, 1])
    assert metrics.entities(sentences, [["B-X", "O"], ["O"]])["recall"] == 0.5
    with pytest.raises(ValueError, match="must both be names, or both be numbers. Received: 'a' and 1"):
        metrics.accuracy(labels, pd.Series([1, 2, 3], index=[5, 6, 7]))
