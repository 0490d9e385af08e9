"""Hard negatives, contrastive pairs, zero-shot scores and pooling without prompts: the worked numbers."""

import collections
import types

import numpy as np
import pytest
import scipy.sparse
from keras import ops

from kerasbert.retrieval import NegativeRules, PairRules, contrastive_pairs, entailment_scores, mine_hard_negatives
from kerasbert.tasks.poolings import pooled
from tests.models.reference import to_numpy
from tests.retrieval.golden import R, cases

DOCUMENTS = [f"d{i}" for i in range(10)]
PAIRS = [("q0", "d0"), ("q1", "d1"), ("q1", "d2"), ("q2", "d3")]


def encode(texts):
    vectors = {"d": R(70, 10, 4), "q": R(71, 3, 4)}
    return np.stack([vectors[text[0]][int(text[1])] for text in texts])


@pytest.mark.one_backend
def test_worked_mining():
    found = cases("eval", "mine_hard_negatives")
    assert len(found) == 8
    for case in found:
        settings = dict(case["settings"])
        both = settings.pop("include_positives", False)
        layout = settings.pop("output_format", "n-tuple" if both else "triplet")
        rows = mine_hard_negatives(PAIRS, encode, DOCUMENTS, NegativeRules(**settings), layout, include_positives=both)
        assert [list(row) for row in rows] == case["rows"], case["settings"]


@pytest.mark.one_backend
def test_mining_by_chance_and_with_a_reranker():
    rules = NegativeRules(2, range_max=6, sampling="random")
    rows = [mine_hard_negatives(PAIRS[:1], encode, DOCUMENTS, rules, "labeled-pair", seed=seed) for seed in range(20)]
    assert {row[0] for row in rows} == {("q0", "d0", 1)} and {len(row) for row in rows} == {3}
    similar = np.argsort(-(encode(DOCUMENTS) @ encode(["q0"])[0]) / np.linalg.norm(encode(DOCUMENTS), axis=1))[:6]
    assert {text for row in rows for _, text, label in row if not label} == {f"d{i}" for i in similar} - {"d0"}
    reverse = NegativeRules(2, max_score=0.55)
    scores = mine_hard_negatives(
        PAIRS[:1], encode, DOCUMENTS, reverse, reranker=lambda pairs: [int(text[1]) / 10 for _, text in pairs]
    )
    assert [row[2] for row in scores] == ["d5", "d4"]


@pytest.mark.one_backend
def test_mining_with_scores_and_an_embedder():
    rules, cosines = NegativeRules(2), encode(["q0"])[0] @ encode(DOCUMENTS).T
    cosines /= np.linalg.norm(encode(["q0"])[0]) * np.linalg.norm(encode(DOCUMENTS), axis=1)
    (row,) = mine_hard_negatives(PAIRS[:1] * 2, encode, DOCUMENTS * 2, rules, "n-tuple", with_scores=True)
    np.testing.assert_allclose(row[-1], [cosines[int(text[1])] for text in row[1:-1]], atol=1e-6)
    pairs = mine_hard_negatives(PAIRS[:1], encode, DOCUMENTS, rules, "labeled-pair", with_scores=True)
    assert [text for _, text, _ in pairs] == list(row[1:-1]) and [score for *_, score in pairs] == row[-1]
    lists = mine_hard_negatives(PAIRS[:1], encode, DOCUMENTS, rules, "labeled-list", with_scores=True)
    assert lists == [("q0", list(row[1:-1]), row[-1])]
    triplets = mine_hard_negatives(PAIRS[:1], encode, DOCUMENTS, rules, with_scores=True)
    assert triplets == [("q0", row[1], row[2 + i], [row[-1][0], row[-1][1 + i]]) for i in (0, 1)]
    scored = mine_hard_negatives(
        PAIRS[:1], encode, DOCUMENTS, rules, "labeled-pair", numbers_reranker(), with_scores=True
    )
    assert [score for *_, score in scored] == [int(text[1]) for _, text, _ in scored]

    sizes = []

    class Batches:
        score = staticmethod(lambda pairs, batch_size: sizes.append(batch_size) or [0.0] * len(pairs))

    mine_hard_negatives(PAIRS[:1], encode, DOCUMENTS, rules, reranker=Batches(), with_scores=True, batch_size=5)
    assert set(sizes) == {5}

    class Opposite:  # sparse vectors, and the similarity of a model
        embed_queries = staticmethod(lambda texts, batch_size: scipy.sparse.csr_matrix(encode(texts)))
        embed_documents = embed_queries
        similarity = staticmethod(lambda queries, documents: -(queries @ documents.T).toarray())

    farthest = [f"d{i}" for i in np.argsort(encode(["q0"])[0] @ encode(DOCUMENTS).T) if i]
    found = mine_hard_negatives(PAIRS[:1], Opposite(), DOCUMENTS, rules)
    assert [negative for *_, negative in found] == farthest[:2]


def numbers_reranker():
    class Numbers:
        score = staticmethod(lambda pairs, batch_size: [int(text[1]) for _, text in pairs])

    return Numbers()


@pytest.mark.one_backend
def test_contrastive_pairs():
    for case in cases("eval", "setfit_pairs"):
        labels = case["inputs"]["labels"]
        for sampling, expected in case["positive_negative"].items():
            pairs = contrastive_pairs(labels, PairRules(sampling))
            counts = collections.Counter(score for *_, score in pairs)
            assert [counts[1.0], counts[0.0]] == expected
            assert all((labels[i] == labels[j]) == score for i, j, score in pairs)
            assert [score for *_, score in pairs[:6]] == [1.0, 0.0] * 3
    assert not any(i == j for i, j, _ in contrastive_pairs(labels, PairRules(include_identical=False)))
    assert (0, 1, 1.0) in contrastive_pairs([{"a", "b"}, {"b"}, {"c"}])
    scores = [score for *_, score in contrastive_pairs([0, 0, 1], PairRules("unique", iterations=4))]
    assert scores == [1.0, 0.0] * 12  # 2 kinds of pairs, 4 for each of 3 examples
    assert len(contrastive_pairs([0, 1] * 8, PairRules(limit=10))) == 10
    assert len(set(contrastive_pairs([0, 1] * 8, PairRules(iterations=20, limit=10)))) == 10


@pytest.mark.one_backend
def test_entailment():
    (case,) = cases("eval", "zero_shot")
    logits, names = case["inputs"]["logits"], case["inputs"]["order"]
    np.testing.assert_allclose(entailment_scores(logits, names), case["single"], atol=1e-6)
    np.testing.assert_allclose(entailment_scores(logits, names, multi_label=True), case["multi"], atol=1e-6)
    np.testing.assert_allclose(entailment_scores(logits[:1], names), case["multi"][:1], atol=1e-6)
    turned = [row[::-1] for row in logits]
    np.testing.assert_allclose(entailment_scores(turned, ["ENTAILMENT", "neutral", "no"]), case["single"], atol=1e-6)


def test_pooling_without_the_prompt():
    found = cases("eval", "pooling")
    assert len(found) == 4
    for case in found:
        mask = np.array(case["inputs"]["mask"], bool)
        left = case["settings"]["prompt_length"]
        left = None if left is None else ops.full((3,), left, "int32")
        for name, expected in case["output"].items():
            vectors = to_numpy(pooled(name, ops.convert_to_tensor(R(30, 3, 4, 3)), ops.convert_to_tensor(mask), left))
            np.testing.assert_allclose(vectors, expected, atol=1e-6, err_msg=f"{name} {case['settings']}")
    x, whole = ops.convert_to_tensor(R(30, 3, 4, 3)), ops.full((3,), 4, "int32")  # rows that end inside the prompt
    for name, of_none in {"mean": 0.0, "weightedmean": 0.0, "lasttoken": 0.0, "max": -np.inf}.items():
        assert (to_numpy(pooled(name, x, ops.ones((3, 4), "bool"), whole)) == of_none).all(), name


@pytest.mark.one_backend
def test_bad_input():
    with pytest.raises(ValueError, match="`range_max` must be at least 5.*Received: 4"):
        NegativeRules(3, range_min=2, range_max=4)
    with pytest.raises(ValueError, match="`num_negatives` must be at least 1"):
        NegativeRules(0)
    with pytest.raises(ValueError, match="n-tuple with include_positives. Received: 'triplet'"):
        mine_hard_negatives(PAIRS, encode, include_positives=True)
    with pytest.raises(ValueError, match=r"pairs \(query, positive\) of texts. Received: none"):
        mine_hard_negatives([], encode)
    with pytest.raises(ValueError, match=r"pairs \(query, positive\) of texts. Received: \('q', 'd', 'e'\)"):
        mine_hard_negatives([("q", "d", "e")], encode)
    with pytest.raises(ValueError, match=r"\(candidates, 3\). Received: \(3,\)"):
        entailment_scores([1.0, 2.0, 3.0], ["a", "b", "c"])
    with pytest.raises(ValueError, match="`reranker` must be a Reranker, or a function of pairs. Received: a str"):
        mine_hard_negatives(PAIRS, encode, reranker="model")
    embedder = types.SimpleNamespace(embed_queries=encode, embed_documents=encode, similarity=np.dot)
    with pytest.raises(ValueError, match="Received: a SimpleNamespace. An embedder is passed as `model`"):
        mine_hard_negatives(PAIRS, encode, reranker=embedder)
    with pytest.raises(ValueError, match=r"one score per pair. Received: scores of the shape \(3, 3\) for 3 pairs"):
        rules = NegativeRules(1, max_score=0.5)
        mine_hard_negatives(PAIRS[:1], encode, DOCUMENTS[:3], rules, reranker=lambda pairs: [[0, 0, 0]] * len(pairs))
    with pytest.raises(ValueError, match="one of unique, oversampling, undersampling. Received: 'all'"):
        PairRules("all")
