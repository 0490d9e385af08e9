"""How many examples are longer than what the model reads."""

from types import SimpleNamespace

import pytest

from kerasbert.data import Tokenizer
from kerasbert.models import Bert, BertConfig, WordVectors, WordVectorsConfig
from kerasbert.retrieval import Collection
from kerasbert.tasks import StaticEmbedder, TextClassifier, TextEmbedder
from pipelines.embed import embed
from pipelines.evaluate import evaluate
from pipelines.export import export
from pipelines.predict import predict
from pipelines.reading.examples import Examples
from pipelines.reading.text_columns import Searches
from pipelines.runs import task_models
from pipelines.runs.cutting import longest_rows
from pipelines.runs.task_models import cut_documents, cut_texts, longest_row, reader_of

pytestmark = pytest.mark.one_backend

SHORT, LONG = "a a", "a a a a a a"  # 4 and 8 tokens with [CLS] and [SEP]


@pytest.fixture(scope="module")
def model():
    tokenizer = Tokenizer.train("wordpiece", ["a b c"] * 50, 11)
    return SimpleNamespace(tokenizer=tokenizer, require_tokenizer=lambda: tokenizer, max_length=7)


@pytest.mark.parametrize(
    "kind, x, cut",
    [
        ("classes", [SHORT, SHORT], 0),
        ("classes", [SHORT, LONG, LONG], 2),
        ("classes", [(SHORT, SHORT)], 0),
        ("score", [(SHORT, "a a a")], 1),
        ("embed", [(SHORT, SHORT, SHORT), (SHORT, LONG, LONG)], 1),
        ("rerank", [(SHORT, SHORT), (SHORT, LONG)], 1),
        ("rerank", [(SHORT, [SHORT, LONG]), (SHORT, [SHORT])], 1),
        ("choices", [(SHORT, [SHORT, SHORT]), (SHORT, [SHORT, LONG, SHORT])], 1),
        ("questions", [(SHORT, LONG)], 0),
        ("tags", [LONG.split()], 0),
    ],
)
def test_examples_with_a_row_that_is_too_long_are_counted(model, kind, x, cut):
    found = cut_texts(model, kind, Examples(x, [0] * len(x)))
    verb = "is" if cut == 1 else "are"
    assert found == (f"{cut} of {len(x)} examples {verb} longer than 7 tokens and {verb} cut" if cut else None)


def test_only_a_part_of_many_examples_is_counted(model, monkeypatch):
    monkeypatch.setattr(task_models, "MEASURED", 10)
    found = cut_texts(model, "classes", Examples([SHORT, LONG] * 50, [0] * 100))
    assert found.startswith(("4 of 10", "5 of 10", "6 of 10")) and "that were looked at" in found


def test_the_documents_of_a_collection_are_counted(model):
    collection = Collection({"a": SHORT, "b": LONG, "c": LONG}, {"q": LONG}, {"q": {"a": 1}})
    found = cut_texts(model, "retrieval", Searches(["q"], ["a"], collection=collection))
    assert found == "2 of 3 examples are longer than 7 tokens and are cut"


def test_documents_of_a_multi_vector_model_have_a_limit_of_their_own(model):
    model = SimpleNamespace(**{**vars(model), "tokens": SimpleNamespace(document_length=3)})
    assert longest_row(model) == 3
    assert cut_documents(model, [SHORT, "a"]) == "1 of 2 examples is longer than 3 tokens and is cut"


def test_a_model_without_a_limit_cuts_nothing(model):
    model = SimpleNamespace(**{**vars(model), "max_length": None})
    assert longest_row(model) is None and cut_documents(model, [LONG]) is None


def test_texts_are_counted_as_the_model_reads_them():
    """With `lowercase`, "AB" is one token; without it, a byte-level tokenizer splits it."""
    tokenizer = Tokenizer.train("byte_bpe", ["ab ab ab"] * 50, 263)
    backbone = Bert(BertConfig(vocabulary_size=263, hidden_dim=8, num_layers=1, num_heads=2, max_length=32))
    longest = []
    for lowercase in (True, False):
        model = TextEmbedder(backbone, lowercase=lowercase, tokenizer=tokenizer)
        longest += longest_rows(reader_of(model), [["AB AB AB"]]).tolist()
    assert longest[0] < longest[1]


def test_static_vectors_have_no_limit():
    table = WordVectors(WordVectorsConfig(vocabulary_size=11, hidden_dim=4))
    model = StaticEmbedder(table, tokenizer=Tokenizer.train("wordpiece", ["a b c"] * 50, 11))
    assert longest_row(model) is None


def test_predict_says_how_many_inputs_are_cut(tmp_path, capsys):
    tokenizer = Tokenizer.train("wordpiece", ["a b c"] * 50, 11)
    backbone = Bert(BertConfig(vocabulary_size=11, hidden_dim=8, num_layers=1, num_heads=2, max_length=32))
    model = TextClassifier(backbone, labels=["x", "y"], max_length=7, tokenizer=tokenizer)
    model.save_to_preset(tmp_path / "model")
    (tmp_path / "lines.txt").write_text(f"{SHORT}\n{LONG}\n{SHORT}\n", encoding="utf-8")
    predict(str(tmp_path / "model"), str(tmp_path / "lines.txt"))
    found = capsys.readouterr()
    assert len(found.out.splitlines()) == 3
    assert found.err == "1 of 3 inputs is longer than 7 tokens and is cut\n"
    export(str(tmp_path / "model"), tmp_path / "export")
    predict(str(tmp_path / "export"), str(tmp_path / "lines.txt"))
    assert "1 of 3 inputs is longer than 7 tokens and is cut\n" in capsys.readouterr().err


def test_evaluate_and_embed_say_how_many_texts_are_cut(tmp_path, capsys):
    tokenizer = Tokenizer.train("wordpiece", ["a b c"] * 50, 11)
    backbone = Bert(BertConfig(vocabulary_size=11, hidden_dim=8, num_layers=1, num_heads=2, max_length=32))
    TextClassifier(backbone, labels=["x", "y"], max_length=7, tokenizer=tokenizer).save_to_preset(tmp_path / "model")
    TextEmbedder(backbone, max_length=7, tokenizer=tokenizer).save_to_preset(tmp_path / "embedder")
    (tmp_path / "labeled.csv").write_text(f"text,label\n{SHORT},x\n{LONG},y\n{LONG},y\n", encoding="utf-8")
    evaluate(str(tmp_path / "model"), (str(tmp_path / "labeled.csv"),))
    assert "2 of 3 examples are longer than 7 tokens and are cut\n" in capsys.readouterr().err
    (tmp_path / "lines.txt").write_text(f"{SHORT}\n{LONG}\n", encoding="utf-8")
    embed(str(tmp_path / "lines.txt"), str(tmp_path / "embedder"), tmp_path / "vectors.npy")
    assert "1 of 2 examples is longer than 7 tokens and is cut\n" in capsys.readouterr().err
