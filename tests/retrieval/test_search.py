"""Exact and approximate search, and BM25: against all scores at once, the rule about ties, and what is refused."""

import numpy as np
import pytest
import scipy.sparse
from keras import ops

from kerasbert.core import packages
from kerasbert.retrieval import BM25, ApproximateIndex, search
from kerasbert.retrieval.search import SIMILARITIES, order_of
from kerasbert.retrieval.similarity import SIMILARITIES as OF_LOSSES
from tests.models.reference import to_numpy
from tests.retrieval.golden import R

Q, D = R(0, 5, 6), R(1, 40, 6)


def expected(scores, ids, top_k):
    return [sorted(range(len(ids)), key=lambda i: (-row[i], str(ids[i])))[:top_k] for row in scores]


def lists(seed, counts):
    return [R(seed + i, count, 6) for i, count in enumerate(counts)]


def test_similarities_are_those_of_the_losses():
    for name in ("cosine", "dot", "euclidean", "manhattan"):
        theirs = to_numpy(OF_LOSSES[name].of_all(*map(ops.convert_to_tensor, (Q, D))))
        np.testing.assert_allclose(SIMILARITIES[name](Q, D), theirs, atol=2e-6, err_msg=name)
        if name != "manhattan":
            sparse = SIMILARITIES[name](scipy.sparse.csr_matrix(Q), scipy.sparse.csr_matrix(D))
            np.testing.assert_allclose(sparse, theirs, atol=2e-6, err_msg=name)
    np.testing.assert_array_equal(SIMILARITIES["cosine"](0 * Q, D), 0 * (Q @ D.T))
    queries, documents = lists(2, [3, 1, 2]), lists(20, [2, 4, 1, 3])

    def padded(texts):
        width = max(map(len, texts))
        array = np.stack([np.pad(x, ((0, width - len(x)), (0, 0))) for x in texts])
        return array, np.stack([np.arange(width) < len(x) for x in texts])

    for name in ("max_sim", "mean_max_sim"):
        theirs = to_numpy(OF_LOSSES[name].of_all(padded(queries), padded(documents)))
        np.testing.assert_allclose(SIMILARITIES[name](queries, documents), theirs, atol=2e-6, err_msg=name)


@pytest.mark.one_backend
@pytest.mark.parametrize("convert", [np.asarray, scipy.sparse.csr_matrix])
def test_small_distances_between_long_vectors(convert, monkeypatch):
    monkeypatch.setitem(search.__globals__, "DOUBLED", 3)
    query = 3 * R(7, 1, 768)
    documents = np.concatenate([query + step * R(8, 1, 768) for step in (2e-4, 0, 1e-4, 1)]).astype("float32")
    exact = np.sqrt(np.square(documents.astype("float64") - query).sum(axis=1))
    found = search(convert(query), convert(documents), 4, "euclidean")
    assert found.numbers.tolist() == [[1, 2, 0, 3]]
    np.testing.assert_allclose(found.scores[0], -exact[[1, 2, 0, 3]], rtol=1e-5, atol=5e-6)


@pytest.mark.one_backend
@pytest.mark.parametrize("memory", [1, 1_000, 2**27])
def test_blocks_of_all_sizes_find_the_same(memory):
    ids = [str(i) for i in range(40)]
    for name in ("cosine", "dot", "euclidean", "manhattan"):
        found = search(Q, D, 7, name, ids, memory)
        scores = SIMILARITIES[name](Q, D)
        assert found.numbers.tolist() == expected(scores, ids, 7)
        np.testing.assert_allclose(found.scores, np.take_along_axis(scores, found.numbers, 1), atol=1e-6)
    own = search(Q, D, 40, lambda a, b: a @ b.T, ids, memory)
    assert own.numbers.tolist() == search(Q, D, 40, "dot", ids).numbers.tolist()
    sparse = search(*map(scipy.sparse.csr_matrix, (Q, D)), 40, "dot", ids, memory)
    assert sparse.numbers.tolist() == own.numbers.tolist()
    queries, documents = lists(2, [3, 1, 0]), lists(20, [2, 0, 4, 1, 0])
    late = search(queries, documents, 5, "max_sim", memory=memory)
    assert late.numbers[:2, 3:].tolist() == [[1, 4], [1, 4]]  # documents without tokens come last
    assert late.scores[1, 4] == -1e9 and late.numbers[2].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.one_backend
def test_few_queries_copy_few_documents():
    """A cosine copies the documents of a block, which has at most `memory` bytes, however few the scores are."""
    sizes = []

    def similarity(queries, documents):
        sizes.append(documents.nbytes)
        return queries @ documents.T

    search(Q[:1], D, similarity=similarity, memory=D[:7].astype("float32").nbytes)
    assert sum(sizes) == D.nbytes and len(sizes) == -(-len(D) // 7)


@pytest.mark.parametrize("memory", [1, 2**27])
def test_equal_scores_are_in_the_order_of_ids(memory):
    vectors = np.eye(3, dtype="float32")[[0, 1, 1, 2, 0, 1]]
    query = np.array([[0.1, 1, 0.1]], "float32")
    assert search(query, vectors, 4, "dot", ["d2", "d9", "d10", "d1", "d100", "e"], memory).numbers.tolist() == [
        [2, 1, 5, 3]
    ]
    assert search(query, vectors, 4, "dot", None, memory).numbers.tolist() == [[1, 2, 5, 0]]
    assert search(query, vectors, 2, "dot").named(["q"], list("abcdef")) == {"q": {"b": 1.0, "c": 1.0}}


@pytest.mark.one_backend
@pytest.mark.parametrize("library", ["faiss", "usearch"])
def test_approximate_indices(library):
    vectors, queries = R(5, 300, 8), R(6, 9, 8)
    vectors[7] = vectors[3]
    ids = [f"d{i}" for i in range(300)]
    for name in ("cosine", "dot", "euclidean"):
        index = ApproximateIndex(vectors, name, ids, library)
        found, exact = index.search(queries, 5), search(queries, vectors, 5, name, ids)
        # usearch builds its graph in several threads, so that it differs a little from run to run.
        recalls = [len({*ours} & {*best}) / 5 for ours, best in zip(found.numbers, exact.numbers, strict=True)]
        assert np.mean(recalls) > 0.9
        same = found.numbers == exact.numbers
        np.testing.assert_allclose(found.scores[same], exact.scores[same], atol=1e-5)
    tied = ApproximateIndex(vectors, "euclidean", ["z", *ids[1:]], library).search(vectors[3:4], 2)
    assert tied.numbers.tolist() == [[3, 7]] and np.allclose(tied.scores, 0)
    with pytest.raises(ValueError, match="of one kind and width. Received: dense vectors of width 3 and .* width 8"):
        index.search(R(0, 2, 3), 2)
    with pytest.raises(ValueError, match="from 1 to the number of documents, 300. Received: 301"):
        index.search(queries, 301)


@pytest.mark.one_backend
def test_bm25():
    texts = ["The cats sat on a mat.", "", "A dog sat.", "dogs and cats", "the of and"]
    index = BM25(texts, ["a", "b", "d10", "d2", "e"])
    found = index.search(["Cat", "sitting dogs", "the", "unknown words", ""], 5)
    assert sorted(found.numbers[0][:2].tolist()) == [0, 3] and (found.numbers[0][2:] == -1).all()
    assert found.numbers[1][:2].tolist() == [2, 3] and (found.numbers[2:] == -1).all()
    assert np.isneginf(found.scores[2:]).all() and found.named(list("pqrst"), list("abcde"))["t"] == {}
    # By hand: a word in one of two documents of two words: idf log(1 + 1.5 / 1.5), frequency 1 / (1 + k1).
    plain = BM25(["one two", "three four"], k1=1.0, b=0.0, language=None).search(["one"], 1)
    np.testing.assert_allclose(plain.scores, [[np.log(2) / 2]], rtol=1e-6)
    assert BM25(["Häuser", "Katzen"], language="german").search(["Haus"], 1).numbers.tolist() == [[0]]
    with pytest.raises(ValueError, match="documents with words. Received: 2 documents without any"):
        BM25(["", "the"])
    with pytest.raises(ValueError, match=r"`documents` must be a list of str. Received: 'a cat', .*\['a cat'\]"):
        BM25("a cat")
    with pytest.raises(ValueError, match="`queries` must be a list of str. Received: 'cat', one str"):
        index.search("cat")
    with pytest.raises(ValueError, match="`language` must be None or one of .*. Received: 'latin'"):
        BM25(texts, language="latin")
    with pytest.raises(ValueError, match="`k1` must be at least 0, and `b` from 0 to 1. Received: k1=-1, b=0.4"):
        BM25(texts, k1=-1)
    vitamins = ["vitamin C", "vitamin D"]
    assert BM25(vitamins).search(["d"], 1).numbers.tolist() == [[-1]]  # a word has two characters
    assert BM25(vitamins, token_pattern=r"\b\w+\b").search(["d"], 1).numbers.tolist() == [[1]]
    with pytest.raises(ValueError, match="`top_k` must be from 1 to the number of documents, 5. Received: 6"):
        index.search(["cat"], 6)


@pytest.mark.one_backend
def test_ten_documents_are_found_or_all_of_fewer():
    assert search(Q, D).numbers.shape == (len(Q), 10)
    assert search(Q, D[:3]).numbers.shape == (len(Q), 3)
    assert BM25(["a cat", "a dog"]).search(["cat"]).numbers.shape == (1, 2)


@pytest.mark.one_backend
def test_bad_input(monkeypatch):
    with pytest.raises(ValueError, match="dense vectors of width 5 and dense vectors of width 6. Compute both"):
        search(Q[:, :5], D)
    with pytest.raises(ValueError, match="lists of vectors of width 6 and dense vectors"):
        search([Q], D)
    with pytest.raises(ValueError, match="from 1 to the number of documents, 40. Received: 41"):
        search(Q, D, 41)
    for wrong in (0, True, 2.0):
        with pytest.raises(ValueError, match=f"`top_k` must be .*Received: {wrong}"):
            search(Q, D, wrong)
    with pytest.raises(ValueError, match="one of cosine, dot, euclidean, manhattan. Received: 'cos'"):
        search(Q, D, similarity="cos")
    with pytest.raises(ValueError, match="sparse vectors of width 6 must be .*Received: 'manhattan'"):
        search(scipy.sparse.csr_matrix(Q), scipy.sparse.csr_matrix(D), similarity="manhattan")
    with pytest.raises(ValueError, match="one of max_sim, mean_max_sim. Received: 'cosine'"):
        search([Q], [D], 1)
    with pytest.raises(ValueError, match="needs documents. Received: none"):
        search(Q, D[:0])
    with pytest.raises(ValueError, match=r"an array or a CSR matrix .*Received: \(6,\)"):
        search(Q[0], D)
    with pytest.raises(ValueError, match="must be finite. Received: queries"):
        search(np.full((1, 6), np.nan), D)
    with pytest.raises(ValueError, match="arrays .* of one width"):
        search([Q], [D, D[:, :3]], 1, "max_sim")
    with pytest.raises(ValueError, match=r"scores of the shape \(5, 40\). Received: the shape \(40, 5\)"):
        search(Q, D, 3, lambda a, b: b @ a.T)
    with pytest.raises(ValueError, match="2 ids, of which 1 differ, for 2 documents"):
        order_of(["a", "a"], 2)
    with pytest.raises(ValueError, match="`library` must be faiss or usearch"):
        ApproximateIndex(D, library="annoy")
    with pytest.raises(ValueError, match="needs dense vectors. Received: sparse vectors"):
        ApproximateIndex(scipy.sparse.csr_matrix(D))
    with pytest.raises(ValueError, match="`connections` must be an integer of at least 2. Received: 0"):
        ApproximateIndex(D, connections=0)
    with pytest.raises(ValueError, match="`effort` must be an integer of at least 1. Received: -5"):
        ApproximateIndex(D, effort=-5)

    def missing(name):
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(packages.importlib, "import_module", missing)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "kerasbert\[faiss\]"'):
        ApproximateIndex(D)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "kerasbert\[retrieval\]"'):
        BM25(["a"])
