"""Embedders from files: columns and losses, training, searches, vectors and hard negatives; and what is refused."""

import json

import numpy as np
import pandas
import pytest
import scipy.sparse

import kerasbert
from kerasbert.backend import seed_everything
from kerasbert.data import Tokenizer
from kerasbert.models import Bert, BertConfig
from kerasbert.retrieval import CoSENT, Matryoshka, MultipleNegatives, Splade, retrieve
from kerasbert.tasks import Reranker, TextEmbedder
from pipelines.embed import embed
from pipelines.evaluate import evaluate
from pipelines.finetune import finetune
from pipelines.mine import Rules, mine
from pipelines.predict import predict
from pipelines.reading.documents import read_documents
from pipelines.reading.examples import Examples
from pipelines.reading.labeled import Columns
from pipelines.reading.text_columns import expanded, read_searches, read_text_columns
from pipelines.runs.losses import Objective, check_examples, default_loss, parsed_loss, shown
from pipelines.runs.searching import Stages
from pipelines.runs.task_options import Optimizer, Start, Training
from pipelines.runs.text_scores import text_pair_scores
from pipelines.runs.vectors import read_vectors, write_vectors
from pipelines.search import find

pytestmark = pytest.mark.one_backend

WORDS = [f"{first}{second}" for first in ("ba", "ce", "di", "fo") for second in ("lu", "mi", "ne", "po")]
PAIRS = [(f"what is {word}", f"{word} is a word like {word[:2]}") for word in WORDS]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a tiny embedder with random weights."""
    folder = tmp_path_factory.mktemp("models") / "start"
    seed_everything(0)
    tokenizer = Tokenizer.train("wordpiece", [text for pair in PAIRS for text in pair], 70, lowercase=True)
    config = BertConfig(
        num_layers=1, hidden_dim=16, num_heads=2, feed_forward_dim=24, max_length=16, vocabulary_size=70, dropout=0.0
    )
    TextEmbedder(Bert(config), prompts={"query": "what is "}, tokenizer=tokenizer).save_to_preset(folder)
    return str(folder)


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    folder = tmp_path_factory.mktemp("beir")
    (folder / "qrels").mkdir()
    rows = [json.dumps({"_id": f"d{i}", "title": "", "text": text}) for i, (_, text) in enumerate(PAIRS)]
    (folder / "corpus.jsonl").write_text("\n".join(rows))
    rows = [json.dumps({"_id": f"q{i}", "text": text}) for i, (text, _) in enumerate(PAIRS)]
    (folder / "queries.jsonl").write_text("\n".join(rows))
    (folder / "qrels" / "test.tsv").write_text("\n".join(f"q{i}\td{i}\t1" for i in range(len(PAIRS))))
    return folder


def table(path, rows, names):
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    path.write_text("\n".join(lines))
    return str(path)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return table(tmp_path_factory.mktemp("data") / "pairs.jsonl", PAIRS, ("query", "positive"))


@pytest.fixture(scope="module")
def tuned(model, pairs, collection, tmp_path_factory):
    output = tmp_path_factory.mktemp("models") / "tuned"
    metrics = finetune(
        model,
        pairs,
        output,
        held_out=(str(collection),),
        task="embed",
        training=Training(epochs=16, batch_size=8),
        optimizer=Optimizer(learning_rate=0.01),
        objective=Objective(matryoshka=(16, 8)),
    )
    return output, metrics


def test_an_embedder_learns_to_search(tuned, model, collection, capsys):
    output, metrics = tuned
    before = evaluate(model, (str(collection),), task="retrieval")
    assert metrics["ndcg@10"] > before["ndcg@10"] + 0.1
    loaded = kerasbert.load(output)
    assert loaded.objective == Matryoshka(MultipleNegatives(), (16, 8))
    assert metrics["runs"][0]["seed"] == 0 and "Matryoshka(loss=MultipleNegatives, dims=(16, 8))" in str(
        json.loads((output / "metrics.json").read_text())["recipe"]
    )
    rows = [json.loads(line) for line in (output / "predictions.jsonl").read_text().splitlines()]
    assert rows[3]["input"] == PAIRS[3][0] and rows[3]["expected"] == ["d3"] and len(rows[3]["answer"]) == 10
    log = (output / "logs" / "seed_0").glob("*.csv")
    assert "val_ndcg@10" in next(log).read_text()
    card = (output / "README.md").read_text()
    assert "ndcg@10" in card
    loss = "Matryoshka(loss=MultipleNegatives(scale=20.0, similarity='cosine', directions=('query_to_doc',), "
    loss += "partition='joint', hardness_strength=0.0, mask_duplicates=True), dims=(16, 8))"
    rows = (
        "width of vectors | 16",
        "pooling | mean",
        "similarity | cosine",
        "max_length | 16",
        "seed | 0",
        "updates | 32",
    )
    for row in (*rows, f"loss | {loss}", "columns | text in query, positive"):
        assert f"| {row} |\n" in card


def test_stages_of_an_evaluation(tuned, collection, tmp_path):
    again = evaluate(str(tuned[0]), (str(collection),), output=tmp_path / "scores.json", task="retrieval")
    assert again["ndcg@10"] == pytest.approx(tuned[1]["ndcg@10"])
    assert json.loads((tmp_path / "scores.json").read_text()) == again
    words = evaluate("bm25", (f"a={collection}", f"b={collection}"), task="retrieval")
    assert words["a_ndcg@10"] == words["b_ndcg@10"] == 1.0
    stages = Stages(first_stage="bm25", top_k=4)
    two = evaluate(str(tuned[0]), (str(collection),), answers=tmp_path / "found.jsonl", task="retrieval", stages=stages)
    found = retrieve(read_searches(collection).collection, "bm25", kerasbert.load(tuned[0]), 4)
    rows = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert set(rows[0]["answer"]) == set(found["q0"]) and two["accuracy@10"] == 1.0
    with pytest.raises(ValueError, match="is a first stage. Received: --model bm25 --first-stage"):
        evaluate("bm25", (str(collection),), task="retrieval", stages=Stages(first_stage=str(tuned[0])))
    with pytest.raises(ValueError, match="--task retrieval needs folders in BEIR format. Received: no --data"):
        evaluate("bm25", task="retrieval")
    with pytest.raises(ValueError, match="Received: --first-stage, --top-k without --task retrieval. Add --task retr"):
        evaluate(str(tuned[0]), (str(collection),), stages=stages)


def test_evaluation_on_tables(tuned, tmp_path, capsys):
    model = kerasbert.load(tuned[0])
    scored = [(a, b, float(i == j)) for i, (a, _) in enumerate(PAIRS[:4]) for j, (_, b) in enumerate(PAIRS[:4])]
    path = table(tmp_path / "scored.jsonl", scored, ("a", "b", "score"))
    scores = evaluate(str(tuned[0]), (path,), answers=tmp_path / "answers.jsonl")
    assert scores["average_precision"] > 0.5
    answers = [json.loads(line)["answer"] for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    vectors = model.embed_queries([PAIRS[0][0]]), model.embed_documents([PAIRS[1][1]])
    assert answers[1] == pytest.approx(float(model.similarity(*vectors)[0, 0]), abs=1e-5)
    finer = Examples([row[:2] for row in scored], [row[2] + i / 100 for i, row in enumerate(scored)])
    assert set(text_pair_scores(model, finer)[0]) == {"spearman", "pearson"}
    triplets = Examples([(a, b, c) for (a, b), (_, c) in zip(PAIRS, PAIRS[1:] + PAIRS[:1], strict=True)], [None] * 16)
    lists = Examples([(a, [b, c]) for a, b, c in triplets.x], [[1.0, 0.0]] * 16)
    assert text_pair_scores(model, triplets) == text_pair_scores(model, lists)
    assert text_pair_scores(model, triplets)[0]["accuracy"] > 0.6
    for teacher in ([0.9, 0.8], 0.1):  # its scores of the documents, or their margin
        assert text_pair_scores(model, Examples(triplets.x, [teacher] * 16)) == text_pair_scores(model, triplets)
    for wrong, message in (
        (Examples(PAIRS, [None] * 16), "need labels, or negatives"),
        (Examples([("a",)] * 2, [1.0, 0.0]), "two texts or more. Received: rows of one text"),
        (Examples(PAIRS, ["x"] * 16), "pairs with a number.*Received: 2 texts with 'x'"),
        (Examples(PAIRS, [[0.5, 0.1]] * 16), r"pairs with a number.*Received: 2 texts with \[0.5, 0.1\]"),
        (Examples(triplets.x, ["x"] * 16), "triplets or n-tuples.*Received: 3 texts with 'x'"),
        (Examples(lists.x, [[0.9, 0.2]] * 16), r"Lists to evaluate on need labels, which are 0 .*: \[0.9, 0.2\]"),
        (Examples(lists.x, [[1.0, 0.0]] * 15 + [[1.0]]), r"Lists to evaluate on need labels.*Received: \[1.0\]"),
        (Examples(lists.x, [None] * 16), "Lists to evaluate on need labels.*Received: None"),
    ):
        with pytest.raises(ValueError, match=message):
            text_pair_scores(model, wrong)


def test_columns(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,anchor,positive,score\n1,a,b,0.5\n2,c,d,1\n")
    assert read_text_columns(path) == Examples([("a", "b"), ("c", "d")], [0.5, 1.0])
    assert read_text_columns(path, texts=("anchor", "anchor")).x == [("a", "a"), ("c", "c")]
    assert read_text_columns(path, Columns(label="id"), ("positive",)) == Examples([("b",), ("d",)], [1.0, 2.0])
    path.write_text("x,y\nz,w\n")
    assert read_text_columns(path, Columns(label="1"), ("0",)) == Examples([("x",), ("z",)], ["y", "w"])
    rows = [("q", ["a", "b"], [1, 0]), ("r", ["c", "d", "e"], [0, 1, 0])]
    lists = read_text_columns(table(tmp_path / "lists.jsonl", rows, ("query", "documents", "labels")))
    assert lists == Examples([("q", ["a", "b"]), ("r", ["c", "d", "e"])], [[1.0, 0.0], [0.0, 1.0, 0.0]])
    assert expanded(Examples(lists.x[:1], lists.y[:1])).x == [("q", "a", "b")]
    with pytest.raises(ValueError, match="equal lengths for an embedder. Received: f with 2 documents in row 1, but 3"):
        expanded(lists, "f")
    for rows, names, message in (
        ([("a", "")], ("x", "y"), "needs a text in 'y'. Received: .* row 1 without it"),
        ([("a", [])], ("x", "y"), "texts that are not empty. Received: .* row 1, column 'y'"),
        ([("a", ["b", " "])], ("x", "y"), "texts that are not empty"),
        ([("a", "b", None)], ("x", "y", "label"), "needs a label, .* row 1, column 'label'"),
        ([("a", "b", float("nan"))], ("x", "y", "score"), "needs a label, .* row 1, column 'score'"),
        ([("a", ["b"]), ("a", "b")], ("x", "y"), "texts, or all of them a query and a list"),
        ([(1.0, 2)], ("score", "id"), "has no column of texts. It has: score, id"),
    ):
        with pytest.raises(ValueError, match=message):
            read_text_columns(table(tmp_path / "bad.jsonl", rows, names))
    with pytest.raises(ValueError, match="has no column 'z'"):
        read_text_columns(path, texts=("z",))


def test_lists_in_tables_of_text(tmp_path):
    """pandas writes lists into CSV as Python prints them."""
    path = tmp_path / "lists.csv"
    rows = [("q1", ["a", "b"], [1, 0]), ("q2", ["c"], [0.5])]
    pandas.DataFrame(rows, columns=["query", "documents", "labels"]).to_csv(path, index=False)
    found = read_text_columns(path)
    assert found == Examples([("q1", ["a", "b"]), ("q2", ["c"])], [[1.0, 0.0], [0.5]])
    path.write_text("query,document\nq1,['a']\nq2,plain text\n")
    assert read_text_columns(path).x == [("q1", "['a']"), ("q2", "plain text")]


def test_losses_as_text():
    assert parsed_loss("CoSENT") == CoSENT() and parsed_loss("ranking(scale=1)") == MultipleNegatives(scale=1)
    nested = "Matryoshka(CoSENT(scale=5.0), dims=[8, 4], weights=[1.0, 0.5])"
    assert parsed_loss(nested) == Matryoshka(CoSENT(5.0), (8, 4), (1.0, 0.5))
    assert parsed_loss(shown(parsed_loss(nested))) == parsed_loss(nested)
    assert shown(CoSENT()) == "CoSENT"
    assert shown(CoSENT(), whole=True) == "CoSENT(scale=20.0, similarity='cosine')"
    for text in ("CoSENT(", "__import__('os').system('ls')", "CoSENT(1, 2)", "f(x=y.z)", "CoSENT(**{})", ""):
        with pytest.raises(ValueError, match="A loss is written as in Python"):
            parsed_loss(text)
    with pytest.raises(ValueError, match="`objective` must be a loss, or its name"):
        parsed_loss("Cosent")
    with pytest.raises(ValueError, match="CoSENT has the options"):
        parsed_loss("CoSENT(temperature=2)")
    with pytest.raises(ValueError, match="Matryoshka needs loss. Received"):
        parsed_loss("Matryoshka(dims=[64])")


def test_losses_for_columns():
    def chosen(kind, x, y):
        return shown(default_loss(kind, Examples([x] * 2, y)))

    none = [None, None]
    assert chosen("embed", ("a", "b"), none) == chosen("embed", ("a", "b", "c"), none) == "MultipleNegatives"
    assert chosen("embed", ("a", "b"), [0.0, 1.0]) == "OnlineContrastive"
    assert chosen("embed", ("a", "b"), [0.3, 4.0]) == "CoSENT"
    assert chosen("embed", ("a",), ["x", "y"]) == "BatchHardSoftMargin"
    assert chosen("embed", ("a", "b"), ["no", "yes"]) == "PairClasses(labels=('no', 'yes'))"
    with pytest.raises(ValueError, match="A reranker learns from numbers. Received: 'no'.*--task classes"):
        chosen("rerank", ("a", "b"), ["no", "yes"])
    assert chosen("rerank", ("a", "b"), [0.0, 1.0]) == "BinaryCrossEntropy"
    assert chosen("rerank", ("a", "b"), [-2.0, 1.0]) == "MeanSquaredError"
    assert chosen("rerank", ("a", ["b", "c"]), [[1.0, 0.0]] * 2) == "LambdaLoss"
    assert chosen("rerank", ("a", "b"), none) == "SampledNegatives"
    assert chosen("multivector", ("a", "b"), none) == "MultipleNegatives(scale=1.0, similarity='max_sim')"
    with pytest.raises(ValueError, match=r"several uses. Received: \[1.0, 0.0\].*--loss MarginMSE"):
        chosen("embed", ("a", "b", "c"), [[1.0, 0.0]] * 2)
    sparse = Objective().loss_for("sparse", Examples([("a", "b")], [None]), 30)
    assert sparse == Splade(MultipleNegatives(scale=1.0, similarity="dot"), warmup=10)
    vectors = "needs a loss on vectors: AdaptiveLayer, AnglE, .*, ranking, triplet. Received: --loss ListNet"
    scores = "needs a loss on scores: ADRMSE, BinaryCrossEntropy, .*, ScoreMarginMSE. Received: --loss GI"
    for kind, loss, message in (("embed", "ListNet", vectors), ("rerank", "GIST()", scores)):
        with pytest.raises(ValueError, match=f"--task {kind} {message}"):
            Objective(loss=loss).loss_for(kind, Examples([("a", "b")], [None]), 1)
    with pytest.raises(ValueError, match="--matryoshka is for --task embed"):
        Objective(matryoshka=(4,)).loss_for("multivector", Examples([("a", "b")], [None]), 1)


def test_options_of_other_tasks(tmp_path):
    for task, options, message in (
        ("classes", dict(objective=Objective("CoSENT", (64,))), "--loss, --matryoshka are for --task embed, sparse"),
        ("ner", dict(objective=Objective(mine_negatives=1)), "--mine-negatives is for --task .*a task of kind tags"),
        ("rerank", dict(start=Start(text_to_text=True)), "--text-to-text is for .*Received: --task rerank"),
    ):
        with pytest.raises(ValueError, match=message):
            finetune("no model", "no data", tmp_path / "output", task=task, **options)
    with pytest.raises(ValueError, match="hard negatives. Received: --miner and --documents without --mine-negatives"):
        Objective(miner="a", documents="b")


def test_held_out_examples_are_checked_before_training(model, pairs, tmp_path):
    with pytest.raises(ValueError, match="pairs.jsonl: Pairs to evaluate on need labels"):
        finetune(model, pairs, tmp_path / "output", held_out=(pairs,), task="embed")
    assert not (tmp_path / "output" / "logs").exists()


def test_examples_that_do_not_fit_the_loss():
    for loss, x, y, size, message in (
        ("Triplet", [("a", "b", "c")] * 2, [0.5, 1.0], 2, "f: Triplet reads no labels. Received: a column"),
        ("MultipleNegatives", [("a",), ("b",)], [None] * 2, 2, "f: MultipleNegatives needs 2 or more texts"),
        ("MultipleNegatives", [("a", "b")] * 3, [None] * 3, 2, "f: .*Received: 3 equal examples"),
        ("MultipleNegatives", [("a", "b"), ("c", "d")], [None] * 2, 1, "f: .*a batch of one example"),
        ("CoSENT", [("a", "b"), ("c", "d")], [None] * 2, 2, "f: CoSENT needs labels: one number per example"),
        ("CosineSimilarity", [("a", "b"), ("c", "d")], [2.0, 5.0], 2, "f: Scores must lie between -1 and 1"),
    ):
        with pytest.raises(ValueError, match=message):
            check_examples(parsed_loss(loss), Examples(x, y), size, "f")


def test_training_with_mined_negatives(model, pairs, tmp_path, capsys):
    documents = tmp_path / "documents.txt"
    documents.write_text("what is a word\nanother text\n")
    objective = Objective(mine_negatives=2, documents=str(documents))
    finetune(model, pairs, tmp_path / "output", task="embed", training=Training(epochs=1), objective=objective)
    printed = capsys.readouterr().out
    assert "16 examples with negatives" in printed and "learning rate 5e-05, the default for this model" in printed
    with pytest.raises(ValueError, match="needs pairs of a query and a positive, without labels"):
        scored = Examples([("a", "b")] * 2, [0.0, 1.0])
        Objective(mine_negatives=1).mined("embed", model, scored, None, 8)
    with pytest.raises(ValueError, match="without --miner"):
        Objective(mine_negatives=1).mined("rerank", model, Examples(PAIRS, [None] * 16), None, 8)


def test_late_interaction(model, pairs, collection, tmp_path, capsys):
    output, training = tmp_path / "late", Training(epochs=2, batch_size=8)
    metrics = finetune(model, pairs, output, held_out=(str(collection),), task="multivector", training=training)
    assert kerasbert.load(output).objective == MultipleNegatives(scale=1.0, similarity="max_sim")
    assert evaluate(str(output), (str(collection),), task="retrieval")["ndcg@10"] == pytest.approx(metrics["ndcg@10"])
    embed(pairs, str(output), tmp_path / "vectors.npz", column="positive", prompt="document")
    stored, expected = np.load(tmp_path / "vectors.npz"), kerasbert.load(output).embed_documents([b for _, b in PAIRS])
    assert stored["lengths"].tolist() == [len(one) for one in expected]
    np.testing.assert_allclose(stored["vectors"], np.concatenate(expected), atol=1e-5)


def test_mined_files(model, pairs, tmp_path, capsys):
    output = tmp_path / "negatives.jsonl"
    mine(pairs, model, output, rules=Rules(num_negatives=2))
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert list(rows[0]) == ["query", "positive", "negative_1", "negative_2"] and len(rows) == 16
    assert all(len({*row.values()}) == 4 for row in rows)
    assert [texts[:2] for texts in read_text_columns(output).x] == PAIRS
    assert "left out" not in capsys.readouterr().out
    twice = table(tmp_path / "twice.jsonl", [(PAIRS[0][0], text) for _, text in PAIRS[:14]] + PAIRS[14:], ("q", "p"))
    mine(twice, model, output, rules=Rules(num_negatives=3))  # of 16 documents, 14 are positives of the first query
    said = capsys.readouterr().out
    assert "2 examples of 2 queries" in said
    assert "left out: 1 of 3 queries, for which the rules leave fewer than 3 negatives. Mine fewer, change" in said
    names = {
        ("triplet", True): ["query", "positive", "negative", "scores"],
        ("labeled-pair", False): ["query", "document", "label"],
        ("labeled-list", True): ["query", "documents", "scores"],
    }
    for (layout, with_scores), expected in names.items():
        mine(pairs, model, output, layout=layout, with_scores=with_scores)
        assert list(json.loads(output.read_text().splitlines()[0])) == expected
        assert read_text_columns(output).y[0] is not None
    with pytest.raises(ValueError, match="The rules must leave negatives. Received: .*pairs.jsonl, none of whose"):
        mine(pairs, model, tmp_path / "again.jsonl", rules=Rules(num_negatives=100))
    with pytest.raises(ValueError, match="pairs without labels. Received: .* rows of 2 texts and labels"):
        mine(str(output), model, tmp_path / "again.jsonl")


def test_vectors_in_a_file(model, tmp_path, capsys, monkeypatch):
    (tmp_path / "texts.txt").write_text("\n".join(word for word in WORDS))
    loaded = kerasbert.load(model)
    embed(str(tmp_path / "texts.txt"), model, tmp_path / "vectors.npy")
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), loaded.embed(WORDS), atol=1e-6)
    path = table(tmp_path / "texts.jsonl", [(word, "x") for word in WORDS], ("body", "other"))
    embed(path, model, tmp_path / "vectors.npy", column="body", prompt="query")
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), loaded.embed_queries(WORDS), atol=1e-6)
    with pytest.raises(ValueError, match="`prompt` must be one of"):
        embed(path, model, tmp_path / "vectors.npy", column="body", prompt="passage")
    read = []
    monkeypatch.setattr(TextEmbedder, "embed", lambda self, texts, **options: read.append(texts) or np.zeros((1, 2)))
    with pytest.raises(ValueError, match="dense embedder must end in .npy. Received: .*vectors.npz"):
        embed(path, model, tmp_path / "vectors.npz", column="body")
    assert read == [WORDS[:1]]
    sparse = scipy.sparse.csr_matrix(np.eye(3, dtype="float32"))
    write_vectors(tmp_path / "sparse.npz", sparse)
    assert (scipy.sparse.load_npz(tmp_path / "sparse.npz") != sparse).nnz == 0
    write_vectors(tmp_path / "many.npz", [np.ones((2, 3)), np.zeros((1, 3))])
    stored = np.load(tmp_path / "many.npz")
    assert stored["vectors"].shape == (3, 3) and stored["lengths"].tolist() == [2, 1]
    with pytest.raises(ValueError, match="multi-vector embedder must end in .npz"):
        write_vectors(tmp_path / "many.npy", [np.ones((2, 3))])


def test_searching_a_file(tuned, tmp_path, capsys):
    path = tmp_path / "documents.txt"
    path.write_text("\n".join(text for _, text in PAIRS))
    queries = (PAIRS[5][0], PAIRS[9][0])
    for model in ("bm25", str(tuned[0])):
        capsys.readouterr()
        find(str(path), model, top=3, queries=queries)
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [row["query"] for row in rows] == list(queries)
        assert PAIRS[5][1] in [row["text"] for row in rows[0]["documents"]]
        scores = [row["score"] for row in rows[0]["documents"]]
        assert scores == sorted(scores, reverse=True) and len(scores) <= 3
    with pytest.raises(ValueError, match="needs a query. Received: none"):
        find(str(path))
    with pytest.raises(
        ValueError, match="A query must be a text. Received: bert_mini_en, which is a model. Use --model"
    ):
        find(str(path), queries=("bert_mini_en", "a query"))
    capsys.readouterr()
    find(str(path), queries=("zzz",))
    assert "No document shares a word with 'zzz'" in capsys.readouterr().err


def test_documents_in_tables(tmp_path):
    """The only column of texts, or `text` after the title, or the one that is named."""

    def read(row, column=None):
        (tmp_path / "documents.jsonl").write_text(json.dumps(row))
        found = read_documents(tmp_path / "documents.jsonl", column=column)
        return found.texts[0], found.ids[0]

    assert read({"id": "1", "body": "A cat."}) == ("A cat.", "1")
    assert read({"url": "x", "text": "A cat."}) == ("A cat.", 0)
    assert read({"url": "x", "review": "A cat."}) == ("A cat.", 0)
    assert read({"_id": "7", "title": "Cats", "text": "A cat."}) == ("Cats A cat.", "7")
    assert read({"_id": "7", "title": "", "text": "A cat."}) == ("A cat.", "7")
    assert read({"_id": "7", "title": "Cats", "text": ""}) == ("Cats", "7")  # as some documents of BEIR
    assert read({"_id": "7", "title": "Cats", "text": "A cat."}, "text") == ("A cat.", "7")
    assert read({"title": "Cats", "body": "A cat."}, "body") == ("A cat.", 0)
    with pytest.raises(ValueError, match="with the columns title, body. Rename the column to text, or"):
        read({"title": "Cats", "body": "A cat."})
    with pytest.raises(ValueError, match="has no column 'bodies'"):
        read({"title": "Cats", "body": "A cat."}, "bodies")
    with pytest.raises(ValueError, match="Every row needs a text in 'text'. Received: .* row 1 without it"):
        read({"_id": "7", "text": " "})
    (tmp_path / "lines.txt").write_text("one\n\ntwo\n")
    assert read_documents(tmp_path / "lines.txt").texts == ["one", "two"]
    assert read_documents(tmp_path / "lines.txt").ids == [0, 1]
    with pytest.raises(ValueError, match="`column` is for tables. Received: text for .*lines.txt"):
        read_documents(tmp_path / "lines.txt", column="text")
    (tmp_path / "lines.txt").write_text("\n")
    with pytest.raises(ValueError, match="lines.txt has no texts"):
        read_documents(tmp_path / "lines.txt")


def test_searching_stored_vectors(tuned, model, tmp_path, capsys):
    rows = [(f"doc-{number}", word, text) for number, (word, (_, text)) in enumerate(zip(WORDS, PAIRS, strict=True))]
    path, vectors = table(tmp_path / "documents.jsonl", rows, ("_id", "title", "text")), tmp_path / "vectors.npy"
    embed(path, str(tuned[0]), vectors, prompt="document")

    def search(**options):
        capsys.readouterr()
        find(path, str(tuned[0]), queries=(PAIRS[5][0],), top=3, **options)
        return json.loads(capsys.readouterr().out)["documents"]

    assert search(vectors=vectors) == search()
    assert {"id": search()[0]["id"], "text": search()[0]["text"]} in [
        {"id": name, "text": f"{title} {text}"} for name, title, text in rows
    ]
    write_vectors(vectors, np.load(vectors)[:-1])
    with pytest.raises(ValueError, match="Every document needs a vector. Received: 16 documents, and .* with 15 vec"):
        search(vectors=vectors)
    with pytest.raises(ValueError, match="--vectors needs the embedder that wrote them. Received: --model bm25"):
        find(path, "bm25", queries=("a",), vectors=vectors)
    with pytest.raises(FileNotFoundError, match="There is no file .*none.npy. Write it with kerasbert embed"):
        search(vectors=tmp_path / "none.npy")
    np.savez(tmp_path / "whole.npz", vectors=np.ones((3, 2)), lengths=np.ones(3, int))
    for content in (b"PK no archive", (tmp_path / "whole.npz").read_bytes()[:200]):
        (tmp_path / "broken.npz").write_bytes(content)
        with pytest.raises(
            ValueError, match="Vectors must be a file that kerasbert embed wrote. Received: .*broken.npz"
        ):
            search(vectors=tmp_path / "broken.npz")


def test_vectors_are_read_as_written(tmp_path):
    sparse = scipy.sparse.csr_matrix(np.eye(3, dtype="float32"))
    write_vectors(tmp_path / "sparse.npz", sparse)
    assert (read_vectors(tmp_path / "sparse.npz", 3) != sparse).nnz == 0
    tokens = [np.ones((2, 3)), np.zeros((1, 3))]
    write_vectors(tmp_path / "tokens.npz", tokens)
    for found, expected in zip(read_vectors(tmp_path / "tokens.npz", 2), tokens, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_models_that_are_no_rerankers(model, pairs, tmp_path):
    classes, documents = tmp_path / "classes", tmp_path / "documents.txt"
    documents.write_text("a text\n")
    Reranker.from_preset(model, labels=["a", "b", "c"]).save_to_preset(classes)
    for wrong, message in (
        (model, "--reranker must be a reranker. Received: .*, a TextEmbedder"),
        (str(classes), "--reranker must give one score per pair. Received: .* with 3 outputs, a, b, c"),
    ):
        with pytest.raises(ValueError, match=message):
            find(str(documents), reranker=wrong, queries=("a",))
        with pytest.raises(ValueError, match=message):
            mine(pairs, model, tmp_path / "mined.jsonl", reranker=wrong)


def test_answers_of_rerankers(model, tmp_path, capsys):
    """One score for a pair; of a reranker of classes, a score for each label."""
    for labels, folder in ((1, tmp_path / "one"), (["no", "yes"], tmp_path / "two")):
        with pytest.warns(UserWarning, match="new head"):
            reranker = Reranker.from_preset(model, labels=labels)
        reranker.save_to_preset(folder)
        predict(str(folder), texts=("what is balu\tbalu is a word",))
        answer = json.loads(capsys.readouterr().out)
        expected = reranker.score(("what is balu", "balu is a word"))
        if labels == 1:
            assert answer["score"] == pytest.approx(float(expected), rel=1e-5)
        else:
            assert answer["scores"] == pytest.approx({"no": expected[0], "yes": expected[1]}, rel=1e-5)
