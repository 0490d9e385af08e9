"""BM25 on three collections: at least the metrics of a plain BM25, and the counts that their sources state."""

import pytest

from kerasbert.retrieval import evaluate_retrieval, read_beir


@pytest.mark.parametrize(
    ("name", "documents", "queries", "judgments", "ndcg"),
    [("scifact", 5_183, 300, 339, 0.666), ("vaswani", 11_429, 93, 2_083, 0.418), ("cisi", 1_460, 76, 3_114, 0.361)],
)
def test_bm25(name, documents, queries, judgments, ndcg, shared_data):
    collection = read_beir(shared_data / "retrieval" / name)
    assert (len(collection.documents), len(collection.judged)) == (documents, queries)
    assert sum(map(len, collection.relevant.values())) == judgments
    assert evaluate_retrieval(collection, "bm25")["ndcg@10"] > ndcg
