"""Evaluation of search on collections in BEIR format: files, stages, and what is refused."""

import gzip
import json

import numpy as np
import pytest
import scipy.sparse

from kerasbert.metrics import retrieval
from kerasbert.retrieval import Collection, evaluate_retrieval, evaluation, read_beir, retrieve
from tests.retrieval.golden import cases

pytestmark = pytest.mark.one_backend

DOCUMENTS = {"d1": "cats sleep", "d10": "cats sleep", "d2": "dogs bark", "d3": "", "d4": "a fish swims"}
QUERIES = {"q1": "sleeping cats", "q2": "swimming fish", "q3": "nothing"}
RELEVANT = {"q1": {"d10": 2, "d2": 1}, "q2": {"d4": 1, "d1": 0}, "q3": {"d1": 0}}
COLLECTION = Collection(DOCUMENTS, QUERIES, RELEVANT)


def write(folder, documents=DOCUMENTS, queries=QUERIES, judgments=None, split="test"):
    rows = [{"_id": name, "title": "", "text": text} for name, text in documents.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "queries.jsonl").write_text("".join(json.dumps({"_id": q, "text": t}) + "\n" for q, t in queries.items()))
    if judgments is None:
        judged = [(q, d, grade) for q, found in RELEVANT.items() for d, grade in found.items()]
        judgments = "query-id\tcorpus-id\tscore\n" + "".join("\t".join(map(str, row)) + "\n" for row in judged)
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "qrels" / f"{split}.tsv").write_text(judgments)
    return folder


class Letters:
    """An embedder whose vectors count letters; queries have no s."""

    def __init__(self, kind="dense"):
        self.kind, self.texts = kind, []

    def embed_documents(self, texts, batch_size=32):
        self.texts += texts
        counts = np.array([[text.count(chr(97 + i)) for i in range(26)] for text in texts], "float32")
        if self.kind == "lists":
            return [row[None] if row.any() else row[None][:0] for row in counts]
        return scipy.sparse.csr_matrix(counts) if self.kind == "sparse" else counts

    def embed_queries(self, texts, batch_size=32):
        return self.embed_documents([text.replace("s", "") for text in texts])

    def similarity(self, queries, documents):
        if self.kind == "lists":
            tables = [np.array([row.sum(0) for row in side]) for side in (queries, documents)]
            return tables[0] @ tables[1].T
        scores = queries @ documents.T
        return scores.toarray() if self.kind == "sparse" else scores


class Lengths:
    """A reranker that prefers short documents."""

    def score(self, pairs, batch_size=32):
        self.pairs = pairs
        return np.array([-len(document) for _, document in pairs], "float32")


def test_files(tmp_path):
    write(tmp_path)
    assert read_beir(tmp_path) == COLLECTION
    assert COLLECTION.judged == ["q1", "q2"]
    write(tmp_path, judgments="q1 0 d10 2\nq1 0 d2 1\n\nq2 0 d4 1\nq2 0 d1 0\nq3 0 d1 0\n", split="trec")
    assert read_beir(tmp_path, "trec") == COLLECTION
    rows = ['{"_id": 7, "title": "A", "text": "b c"}', '{"_id": "8", "text": " d "}', ""]
    rows.append('{"_id": "9", "title": null, "text": ""}')
    with gzip.open(tmp_path / "corpus.jsonl.gz", "wt") as file:
        file.write("\n".join(rows))
    (tmp_path / "corpus.jsonl").unlink()
    (tmp_path / "qrels" / "train.tsv").write_text("q1\t7\t1\nq1\t7\t1\n")
    assert read_beir(tmp_path, "train").documents == {"7": "A b c", "8": "d", "9": ""}


def test_worked_metrics():
    (case,) = cases("eval", "information_retrieval")
    scores, ids = np.array(case["inputs"]["scores"], "float32"), case["inputs"]["doc_ids"]
    queries = {f"q{i}": str(i) for i in range(len(scores))}
    relevant = {f"q{i}": dict.fromkeys(found, 1) for i, found in enumerate(case["inputs"]["relevant"])}
    collection = Collection(dict(zip(ids, map(str, range(len(ids))), strict=True)), queries, relevant)

    class Scores:
        def embed_queries(self, texts, batch_size):
            return scores[[int(text) for text in texts]]

        def embed_documents(self, texts, batch_size):
            return np.eye(len(ids), dtype="float32")[[int(text) for text in texts]]

        def similarity(self, queries, documents):
            return queries @ documents.T

    found = evaluate_retrieval(collection, Scores())
    for name in ("mrr@10", "ndcg@10", "map@100"):
        short, k = name.split("@")
        assert found[name] == pytest.approx(case["metrics"][f"{short}@k"][k], abs=1e-8)


@pytest.mark.parametrize("kind", ["dense", "sparse", "lists"])
@pytest.mark.parametrize("chunk", [2, 5_000])
def test_embedders_in_both_stages(kind, chunk, monkeypatch):
    monkeypatch.setattr(evaluation, "CHUNK", chunk)
    model = Letters(kind)
    found = retrieve(COLLECTION, model, top_k=3)
    assert list(found["q1"]) == ["d1", "d10", "d4"]
    assert found["q1"]["d1"] == found["q1"]["d10"] == 9 and list(found) == ["q1", "q2"]
    assert "nothing" not in model.texts  # a query without relevant documents
    assert set(retrieve(COLLECTION, model)["q1"]) == set(DOCUMENTS)  # a small collection is searched whole
    second = Letters(kind)
    again = retrieve(COLLECTION, model, second, top_k=2)
    assert again == {query: dict(list(scores.items())[:2]) for query, scores in found.items()}
    assert len(second.texts) == 2 + len({one for scores in again.values() for one in scores})  # each text once
    assert evaluate_retrieval(COLLECTION, model, top_k=3) == retrieval(RELEVANT, found)


def test_bm25_and_a_reranker():
    first = retrieve(COLLECTION, "bm25")
    assert list(first["q1"]) == ["d1", "d10"] and list(first["q2"]) == ["d4"]
    reranker = Lengths()
    second = retrieve(COLLECTION, Letters(), reranker, top_k=3)
    assert second["q1"] == {"d1": -10.0, "d10": -10.0, "d4": -12.0}
    assert len(reranker.pairs) == 6 and reranker.pairs[0] == ("sleeping cats", "cats sleep")
    nothing = Collection({"a": "words"}, {"q": "others"}, {"q": {"a": 1}})
    for model in (None, Letters(), Lengths()):
        assert retrieve(nothing, "bm25", model) == {"q": {}}
        assert evaluate_retrieval(nothing, "bm25", model)["ndcg@10"] == 0


def test_bad_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="without corpus.jsonl"):
        read_beir(tmp_path)
    write(tmp_path)
    with pytest.raises(FileNotFoundError, match="one of .*: test. Received: 'dev'"):
        read_beir(tmp_path, "dev")
    for judgments, message in (
        ("q1\td9\t1\n", "documents of the collection. Received: the document 'd9' for the query 'q1'"),
        ("q9\td1\t1\n", "queries of the collection. Received: the query 'q9'"),
        ("q1\td1\t0\n", "a query with a relevant document. Received: 5 documents and 0 queries"),
        ("q1\td1\t1\nq1\td1\t2\n", "one grade. Received: .* line 2: 2 for 'q1' and 'd1', which had 1"),
        ("q1\td1\n", "must have the columns .* line 1"),
        ("q1\td1\t1\nq2\td1\tyes\n", "must have the columns .* line 2"),
        ("q1\td1\t1\nq2\td1\tnan\n", "must have the columns .* line 2"),
    ):
        write(tmp_path, judgments=judgments)
        with pytest.raises(ValueError, match=message):
            read_beir(tmp_path)
    for line, message in (
        ('{"_id": "a", "text": "x"}\n{"_id": "a", "text": "y"}', "Ids must differ. Received: .* line 2 with 'a'"),
        ('{"id": "a", "text": "x"}', 'an object with an "_id". Received: .* line 1'),
        ('{"_id": "a", "title": "x"}', 'must have a "text"'),
        ("[1]", 'an object with an "_id"'),
    ):
        (tmp_path / "corpus.jsonl").write_text(line)
        with pytest.raises(ValueError, match=message):
            read_beir(tmp_path)


def test_bad_stages():
    with pytest.raises(ValueError, match='"bm25" or an embedder. Received: bm26. A reranker'):
        retrieve(COLLECTION, "bm26")
    with pytest.raises(ValueError, match='"bm25" or an embedder. Received: Lengths'):
        retrieve(COLLECTION, Lengths())
    with pytest.raises(ValueError, match="a reranker or an embedder. Received: a dict"):
        retrieve(COLLECTION, "bm25", {})
    with pytest.raises(ValueError, match="`top_k` must be from 1"):
        retrieve(COLLECTION, "bm25", top_k=0)

    class Classes:
        def score(self, pairs, batch_size):
            return np.zeros((len(pairs), 3))

    with pytest.raises(ValueError, match=r"one score per pair. Received: scores of the shape \(3, 3\) for 3 pairs"):
        retrieve(COLLECTION, "bm25", Classes())
