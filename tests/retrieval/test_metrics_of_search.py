"""The metrics of search: the worked numbers, the rules about ties, and what is refused."""

import json

import numpy as np
import pytest

from kerasbert import metrics
from tests.retrieval.golden import cases

pytestmark = pytest.mark.one_backend


def test_worked_retrieval():
    (case,) = cases("eval", "information_retrieval")
    ids, settings = case["inputs"]["doc_ids"], case["settings"]
    results = {f"q{i}": dict(zip(ids, row, strict=True)) for i, row in enumerate(case["inputs"]["scores"])}
    relevant = {f"q{i}": found for i, found in enumerate(case["inputs"]["relevant"])}
    relevant["q3"] = []  # without relevant documents: dropped
    both = settings["precision_recall_at_k"]
    cutoffs = {"accuracy": settings["accuracy_at_k"], "precision": both, "recall": both}
    cutoffs |= {name: settings[f"{name}_at_k"] for name in ("ndcg", "mrr", "map")}
    found = metrics.retrieval(relevant, results, cutoffs, ids)
    expected = {f"{n[:-2]}@{k}": value for n, of_k in case["metrics"].items() for k, value in of_k.items()}
    assert found == pytest.approx(expected, abs=1e-8)
    graded = {query: {document: 1 + i for i, document in enumerate(found)} for query, found in relevant.items()}
    graded["q0"]["d1"] = 0
    assert metrics.retrieval(graded, results, cutoffs) == found


def test_precision_counts_places_without_a_document():
    assert metrics.retrieval({"q": ["a"]}, {"q": {"a": 1.0}}, {"precision": [4], "ndcg": [4]}) == {
        "precision@4": 0.25,
        "ndcg@4": 1.0,
    }


def test_worked_reranking():
    for case in cases("eval", "reranking"):
        k = case["settings"]["at_k"]
        found = metrics.reranking([case["inputs"]["relevant"]], [case["inputs"]["scores"]], k)
        expected = {f"mrr@{k}": case["mrr"], f"ndcg@{k}": case["ndcg"], "map": case["map"]}
        assert found == pytest.approx(expected, abs=1e-7)
    lists, scores = [[1, 0], [0, 0]], [[2.0, 1.0], [1.0, 2.0]]
    assert metrics.reranking(lists, scores)["map"] == 1 and metrics.reranking(lists, scores, 10, False)["map"] == 0.5


def test_reranking_equals_scikit_learn():
    from sklearn.metrics import average_precision_score, ndcg_score

    rng = np.random.default_rng(0)
    for _ in range(20):
        labels, scores = rng.integers(0, 2, 12), rng.integers(0, 5, 12) / 4
        labels[0] = 1
        found = metrics.reranking([labels], [scores], 5)
        assert found["ndcg@5"] == pytest.approx(ndcg_score([labels], [scores], k=5))
        assert found["map"] == pytest.approx(average_precision_score(labels, scores))


def test_worked_pairs():
    (case,) = cases("eval", "binary")
    found = metrics.similar_pairs(case["inputs"]["labels"], case["inputs"]["scores"])
    assert [found["accuracy"], found["accuracy_threshold"]] == pytest.approx(case["accuracy"])
    f1 = [found[name] for name in ("f1", "precision", "recall", "f1_threshold")]
    assert f1 == pytest.approx(case["f1_precision_recall_threshold"])
    assert found["average_precision"] == pytest.approx(case["ap"])
    assert found["mcc"] == pytest.approx(metrics.matthews([1, 1, 0, 1, 0, 0], [1, 1, 0, 0, 0, 0]))
    none = metrics.similar_pairs([0, 0, 1], [0.9, 0.8, 0.1])
    assert none["accuracy"] == pytest.approx(2 / 3) and none["accuracy_threshold"] > 0.9


def test_bad_input():
    relevant, results = {"q": ["a"]}, {"q": {"a": 1.0}}
    with pytest.raises(ValueError, match="Received: none for 'q'"):
        metrics.retrieval(relevant, {})
    with pytest.raises(ValueError, match="documents of the corpus. Received: the document 'a'"):
        metrics.retrieval(relevant, results, documents=["b"])
    with pytest.raises(ValueError, match="a query with a relevant document"):
        metrics.retrieval({"q": []}, results)
    with pytest.raises(ValueError, match="Scores must be finite. Received: nan for 'a'"):
        metrics.retrieval(relevant, {"q": {"a": float("nan")}})
    with pytest.raises(ValueError, match="`cutoffs` must have values of 1 or more"):
        metrics.retrieval(relevant, results, {"ndcg": [0]})
    with pytest.raises(ValueError, match="list of ids. Received: 'a'"):
        metrics.retrieval({"q": "a"}, results)
    with pytest.raises(ValueError, match="2 labels and 1 scores for query 0"):
        metrics.reranking([[1, 0]], [[1.0]])
    with pytest.raises(ValueError, match="Labels must be 0 or 1. Received: 2"):
        metrics.similar_pairs([0, 2], [0.1, 0.2])
    assert json.dumps(metrics.retrieval(relevant, results))
