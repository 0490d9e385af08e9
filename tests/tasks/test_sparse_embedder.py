"""Sparse encoders, compared with those of sentence-transformers, in both directions."""

import json
import shutil

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.data import Tokenizer
from kerasbert.models import Bert, BertConfig, DistilBert, DistilBertConfig, Roberta, RobertaConfig
from kerasbert.objectives import MaskedLM
from kerasbert.retrieval import MultipleNegatives, Splade
from kerasbert.tasks import Prompts, QueryWeights, SparseEmbedder
from kerasbert.tasks.sparse_embedder import TokenWeights
from kerasbert.training import add_lora
from tests.models.reference import randomize, to_numpy

WORDS = "the cat sat on a mat and dogs ran home fast while birds sang old songs all day".split()
TEXTS = [" ".join(WORDS[i % 5 : i % 5 + n]) for i, n in enumerate([3, 12, 1, 7, 14, 5])]
SIZES = dict(num_layers=1, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=64, dropout=0.0)
SPLADE = Splade(MultipleNegatives(scale=1.0, similarity="dot"), 0.03, 0.05)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train("wordpiece", [" ".join(WORDS * 5), *TEXTS], 80)


def encoder(tokenizer, cls=Bert, config=BertConfig):
    options = {"pad_id": tokenizer.pad_id, "attention_dropout": 0.0}
    options = {name: value for name, value in options.items() if name in config.__dataclass_fields__}
    return randomize(cls(config(**SIZES, **options, vocabulary_size=tokenizer.vocabulary_size)))


@pytest.fixture(scope="module")
def backbone(tokenizer):
    return encoder(tokenizer)


def peer(folder):
    import sentence_transformers

    return sentence_transformers.SparseEncoder(str(folder), device="cpu")


def assert_equal(ours, theirs):
    calls = (("embed", "encode"), ("embed_queries", "encode_query"), ("embed_documents", "encode_document"))
    for call, their_call in calls:
        found, expected = getattr(ours, call)(TEXTS), getattr(theirs, their_call)(TEXTS)
        assert found.format == "csr" and found.dtype == np.float32
        np.testing.assert_allclose(found.toarray(), expected.to_dense().numpy(), atol=1e-5, err_msg=call)
    np.testing.assert_allclose(
        ours.similarity(found[:3], found),
        theirs.similarity(expected.to_dense()[:3], expected).numpy(),
        atol=3e-3,  # their distances of equal vectors are not exactly 0
    )
    for row, expected_row in zip(ours.decode(found, 4), theirs.decode(expected, 4), strict=True):
        np.testing.assert_allclose([w for _, w in row], [w for _, w in expected_row], atol=1e-5)
        assert row[0][0] == expected_row[0][0]


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("cls", "config", "pooling", "activation", "similarity", "dims"),
    [
        (Bert, BertConfig, "max", "relu", "dot", None),
        (DistilBert, DistilBertConfig, "sum", "log1p_relu", "cosine", 7),
        (Roberta, RobertaConfig, "max", "log1p_relu", "euclidean", None),
        (Bert, BertConfig, "sum", "relu", "manhattan", 500),
    ],
)
def test_folders_in_both_directions(cls, config, pooling, activation, similarity, dims, tokenizer, tmp_path):
    model = SparseEmbedder(
        encoder(tokenizer, cls, config),
        pooling,
        activation,
        max_length=12,
        prompts={"query": "the old ", "document": ""},
        similarity=similarity,
        max_active_dims=dims,
        tokenizer=tokenizer,
    )
    model.save_to_preset(tmp_path / "ours")
    theirs = peer(tmp_path / "ours")
    assert theirs.similarity_fn_name == similarity
    assert_equal(model, theirs)
    theirs.save(str(tmp_path / "theirs"))
    again = kerasbert.load(tmp_path / "theirs")
    assert type(again) is SparseEmbedder and again.arguments() == model.arguments()
    assert_equal(again, theirs)
    np.testing.assert_array_equal(
        kerasbert.load(tmp_path / "ours").embed(TEXTS).toarray(), model.embed(TEXTS).toarray()
    )


@pytest.mark.one_backend
@pytest.mark.parametrize("frozen", [True, False])
def test_queries_without_an_encoder(frozen, backbone, tokenizer, tmp_path):
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Router
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

    model = SparseEmbedder(backbone, queries=QueryWeights(not frozen), tokenizer=tokenizer)
    model.set_query_weights({"cat": 2.5, "the": 0.25})
    with pytest.raises(ValueError, match="must be those of tokens of the vocabulary. Received: .*unheard"):
        model.set_query_weights({"cat": 2.5, "unheard": 3.0})
    assert model.decode(model.embed_queries("the cat the cat")) == [[("cat", 2.5), ("the", 0.25)]]
    assert model.embed_queries("mat").nnz == 0
    model.max_active_dims = 1
    assert model.decode(model.embed_queries("the cat")) == [[("cat", 2.5)]]
    model.max_active_dims = None
    model.save_to_preset(tmp_path / "ours")
    theirs = peer(tmp_path / "ours")
    assert_equal(model, theirs)
    document = theirs[0].sub_modules["document"]
    (tmp_path / "idf.json").write_text(json.dumps({"cat": 2.5, "mat": 0.5, "unheard": 1.0}))
    query = SparseStaticEmbedding.from_json(str(tmp_path / "idf.json"), tokenizer=document[0].tokenizer, frozen=frozen)
    router = Router({"query": [query], "document": list(document)}, None if frozen else "document")
    theirs = SparseEncoder(modules=[router], device="cpu")
    theirs.save(str(tmp_path / "theirs"))
    again = kerasbert.load(tmp_path / "theirs")
    assert again.queries == QueryWeights(not frozen, frozen, None)  # the first route is the default one
    assert_equal(again, theirs)
    shutil.copytree(tmp_path / "theirs", tmp_path / "bad")
    (tmp_path / "bad" / "router_config.json").unlink()
    with pytest.raises(FileNotFoundError, match="A Router needs a router_config.json. Received: .*bad without it"):
        SparseEmbedder.from_preset(tmp_path / "bad")
    folder = tmp_path / "theirs" / "query_0_SparseStaticEmbedding"
    shutil.copy(tmp_path / "idf.json", folder)
    (folder / "config.json").write_text(json.dumps({"frozen": frozen, "path": "idf.json"}))
    (folder / "model.safetensors").unlink()
    (tmp_path / "theirs" / "router_config.json").rename(tmp_path / "theirs" / "config.json")
    np.testing.assert_array_equal(
        kerasbert.load(tmp_path / "theirs").embed_queries(TEXTS).toarray(), again.embed_queries(TEXTS).toarray()
    )


@pytest.mark.one_backend
def test_a_masked_language_model_and_newer_types(backbone, tokenizer, tmp_path):
    MaskedLM(backbone, tokenizer=tokenizer).save_to_preset(tmp_path / "mlm")
    model = SparseEmbedder.from_preset(tmp_path / "mlm")
    assert_equal(model, peer(tmp_path / "mlm"))  # theirs adds the pooling of SPLADE
    model.save_to_preset(tmp_path / "sparse")
    path = tmp_path / "sparse" / "modules.json"
    text = path.read_text().replace(
        "sparse_encoder.models.SpladePooling", "sparse_encoder.modules.splade_pooling.SpladePooling"
    )
    path.write_text(text.replace("sparse_encoder.models.MLMTransformer", "base.modules.transformer.Transformer"))
    with pytest.raises(
        ValueError, match="`transformer_task` in .* must be 'fill-mask'. Received: 'feature-extraction'"
    ):
        kerasbert.load(tmp_path / "sparse")


def test_weights_of_tokens():
    layer = TokenWeights(5)
    layer.build((2, 4))
    layer.weight.assign([1.0, 2.0, 3.0, 4.0, 5.0])
    ids, real = (
        np.int32([[3, 1, 3, 0], [4, 4, 2, 2]]),
        np.array([[True, True, True, False], [True, True, False, False]]),
    )
    np.testing.assert_array_equal(to_numpy(layer(ids, real)), [[0, 2, 0, 4, 0], [0, 0, 0, 0, 5]])
    np.testing.assert_array_equal(to_numpy(layer(ids)), [[1, 2, 0, 4, 0], [0, 0, 3, 0, 5]])


# === Training ===


def test_a_step_and_files(backbone, tokenizer, tmp_path):
    model = SparseEmbedder(encoder(tokenizer), objective=SPLADE, queries=QueryWeights(), tokenizer=tokenizer)
    examples = [(TEXTS[i], TEXTS[i], TEXTS[i - 1]) for i in range(6)]
    before = keras.ops.convert_to_numpy(model.query_weights.weight)
    model.compile(keras.optimizers.SGD(0.01))
    model.fit(examples, batch_size=6, epochs=1, verbose=0)
    after = keras.ops.convert_to_numpy(model.query_weights.weight)
    changed = np.flatnonzero(after != before)
    words = {i for row in tokenizer.encode(TEXTS, add_special_tokens=False) for i in row}
    assert changed.size and {*changed} <= words
    vectors = model.embed(TEXTS).toarray()
    assert (vectors >= 0).all() and np.isfinite(vectors).all()
    np.testing.assert_allclose(model.predict(TEXTS, verbose=0), vectors, atol=1e-5)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.embed(TEXTS).toarray(), vectors)
    np.testing.assert_array_equal(again.embed_queries(TEXTS).toarray(), model.embed_queries(TEXTS).toarray())


@pytest.mark.one_backend
@pytest.mark.parametrize("queries", [None, QueryWeights(), QueryWeights(trainable=False)])
def test_loss_and_gradients_are_those_of_sentence_transformers(queries, tokenizer, tmp_path):
    import torch
    from safetensors.torch import load_file
    from sentence_transformers.sparse_encoder import losses

    loss = SPLADE if queries is None else Splade(SPLADE.loss, 0.03, None)
    model = SparseEmbedder(encoder(tokenizer), objective=loss, queries=queries, tokenizer=tokenizer)
    model.save_to_preset(tmp_path / "model")
    theirs = peer(tmp_path / "model").train()
    inner = losses.SparseMultipleNegativesRankingLoss(theirs)
    other = losses.SpladeLoss(theirs, inner, 0.03, query_regularizer_weight=0.05 if queries is None else None)
    columns = [TEXTS[:4], TEXTS[1:5], TEXTS[2:]]
    tasks = [None] * 3 if queries is None else ["query", "document", "document"]
    features = [theirs.preprocess(column, task=task) for column, task in zip(columns, tasks, strict=True)]
    expected = sum(other(features, None).values())
    expected.backward()
    batch = model.encode_columns(list(zip(*columns, strict=True)))
    vectors = model(batch, training=True)
    found = loss([vectors[:, i] for i in range(3)])
    np.testing.assert_allclose(float(found.detach()), float(expected.detach()), rtol=1e-5)
    variables = model.trainable_variables
    trains_queries = queries is not None and queries.trainable
    assert any("query_weights" in v.path for v in variables) == trains_queries
    gradients = torch.autograd.grad(found, [v.value for v in variables])
    for variable, gradient in zip(variables, gradients, strict=True):
        variable.assign(gradient)
    model.save_to_preset(tmp_path / "gradients")
    ours = load_file(tmp_path / "gradients" / "model.safetensors")
    wanted = {name.rpartition("model.")[2]: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    assert len(wanted) > 15
    for name, gradient in wanted.items():
        if name.endswith("query.0.weight"):
            ours[name] = load_file(tmp_path / "gradients" / "query_0_SparseStaticEmbedding" / "model.safetensors")[
                "weight"
            ]
        torch.testing.assert_close(ours[name], gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.one_backend
def test_low_ranks(backbone, tokenizer, tmp_path):
    model = SparseEmbedder(encoder(tokenizer), objective=SPLADE, tokenizer=tokenizer)
    add_lora(model, rank=2)
    model.compile(keras.optimizers.SGD(0.01))
    model.fit([(a, b) for a, b in zip(TEXTS, TEXTS[1:], strict=False)], batch_size=5, epochs=1, verbose=0)
    model.save_to_preset(tmp_path)
    np.testing.assert_allclose(peer(tmp_path).encode(TEXTS).to_dense().numpy(), model.embed(TEXTS).toarray(), atol=1e-5)


# === Bad input ===


@pytest.mark.one_backend
def test_bad_input(backbone, tokenizer, tmp_path):
    for options, message in (
        ({"pooling": "mean"}, "`pooling` must be one of max, sum"),
        ({"activation": "gelu"}, "`activation` must be one of relu"),
        ({"similarity": "max_sim"}, "`similarity` must be one of cosine"),
        ({"max_active_dims": 0}, "`max_active_dims` must be an integer of at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            SparseEmbedder(backbone, **options)
    for queries, message in (
        ({"max_length": -3}, "`max_length` of QueryWeights must be at least 1. Received: -3"),
        ({"max_length": 0}, "at least 1. Received: 0"),
        ({"trainable": 1}, "`trainable` in QueryWeights must be bool"),
        ({"foo": 1}, "with the fields trainable, default, max_length. Received: {'foo': 1}"),
        (True, "`queries` must be a QueryWeights.* Received: True"),
    ):
        with pytest.raises(ValueError, match=message):
            SparseEmbedder(backbone, queries=queries)
    with pytest.raises(ValueError, match="Only a TextEmbedder can leave prompts out"):
        SparseEmbedder(backbone, prompts=Prompts({}, pooled=False))
    model = SparseEmbedder(backbone, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="needs a model with `queries`"):
        model.set_query_weights({"cat": 1.0})
    with pytest.raises(ValueError, match="`top_k` must be an integer of at least 1"):
        model.decode(model.embed("a"), 0)
    assert model.embed([]).shape == (0, 80)
    model.save_to_preset(tmp_path / "good")
    for file, content, message in (
        ("1_SpladePooling/config.json", {"pooling_strategy": "mean"}, "pooling_strategy of max, sum"),
        ("1_SpladePooling/config.json", {"chunk": 3}, r"unknown settings \['chunk'\]"),
        ("modules.json", ["base.modules.Transformer", "sparse_encoder.models.SparseAutoEncoder"], "SparseAutoEncoder"),
        ("modules.json", "[{", "must be JSON"),
        ("config_sentence_transformers.json", {"max_active_dims": "8"}, "`max_active_dims` in .* must be int"),
        ("sentence_bert_config.json", {"query_length": 8, "transformer_task": "fill-mask"}, "Received: query_length"),
    ):
        shutil.rmtree(tmp_path / "bad", ignore_errors=True)
        shutil.copytree(tmp_path / "good", tmp_path / "bad")
        if isinstance(content, list):
            content = [{"path": "", "type": f"sentence_transformers.{kind}"} for kind in content]
        (tmp_path / "bad" / file).write_text(content if isinstance(content, str) else json.dumps(content))
        with pytest.raises(ValueError, match=message):
            kerasbert.load(tmp_path / "bad")
