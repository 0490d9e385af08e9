"""MultiVectorEmbedder: which tokens are read and scored, MaxSim, training, and what is refused."""

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.models import Roberta, RobertaConfig
from kerasbert.retrieval import CoSENT, DistillKL, MarginMSE, MultipleNegatives, max_sim, similarity
from kerasbert.retrieval.late_interaction import max_sim_of_texts
from kerasbert.tasks import Dense, LayerNorm, MultiVectorEmbedder, Normalize, Prompts, QueryExpansion, TokenRules
from tests.models.reference import to_numpy

QUERIES = ["who lives in Bonn ?", "Ann", "where lives Ann ?"]
DOCUMENTS = ["Bob lives in Bonn .", "a cat met a dog", ". .", "Ann met Bob in Bonn , who met a cat in Rome ."]


@pytest.fixture
def make(tiny_backbone, tokenizer):
    def model(tokens=None, projection=6, backbone=None, **options):
        backbone = backbone or tiny_backbone()
        return MultiVectorEmbedder(backbone, projection, tokens, tokenizer=tokenizer, **options)

    return model


# === Encoding ===


@pytest.mark.one_backend
def test_queries_are_filled_with_mask_tokens(make, tokenizer):
    cls, sep, mask, ann = tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.id("Ann")
    fixed = make(TokenRules(expansion=QueryExpansion(5))).encode(["Ann", "Ann " * 9], query=True)
    assert fixed["token_ids"].tolist() == [[cls, ann, sep, mask, mask], [cls, ann, ann, ann, sep]]
    assert fixed["lengths"].tolist() == [5, 5] and fixed["attended"].sum(axis=1).tolist() == [3, 5]
    rules = TokenRules(expansion=QueryExpansion(5, "min", attend=True, token="Bob"))
    least = make(rules).encode(["Ann", "Ann " * 4], query=True)
    bob = tokenizer.id("Bob")
    assert least["token_ids"].tolist() == [[cls, ann, sep, bob, bob, 0], [cls, ann, ann, ann, ann, sep]]
    assert least["lengths"].tolist() == [5, 6] and "attended" not in least
    assert make(rules).encode(["Ann"])["token_ids"].tolist() == [[cls, ann, sep]]  # documents are not expanded


@pytest.mark.one_backend
def test_added_tokens_read_the_text_but_are_not_read(make):
    """Their number changes nothing for the others, and they are all scored."""
    short, long = (make(TokenRules(expansion=QueryExpansion(n))).embed_queries("Ann") for n in (4, 8))
    assert short.shape == (4, 6) and long.shape == (8, 6)
    np.testing.assert_allclose(long[:4], short, atol=1e-6)
    attending = make(TokenRules(expansion=QueryExpansion(8, attend=True))).embed_queries("Ann")
    assert np.abs(attending[:3] - long[:3]).max() > 1e-3


@pytest.mark.one_backend
def test_added_padding_tokens_have_no_positions_in_roberta(make, tokenizer):
    sizes = dict(num_layers=1, hidden_dim=12, num_heads=2, feed_forward_dim=16, max_length=20, initializer_range=0.5)
    config = RobertaConfig(**sizes, vocabulary_size=tokenizer.vocabulary_size, pad_id=tokenizer.pad_id)
    padding = QueryExpansion(8, attend=True, token=tokenizer.tokens[tokenizer.pad_id])
    vectors = make(TokenRules(expansion=padding), backbone=Roberta(config)).embed_queries("Ann")
    np.testing.assert_allclose(vectors[4:], np.repeat(vectors[3:4], 4, axis=0), atol=1e-6)
    assert np.abs(vectors[2] - vectors[3]).max() > 1e-3


def test_scored_tokens_lengths_and_prompts(make, tokenizer):
    rules = TokenRules(query_length=5, document_length=8, skip_words=(".", "?"))
    model = make(rules, prompts={"query": "who ", "document": "a "})
    queries, documents = model.embed_queries(QUERIES), model.embed_documents(DOCUMENTS, batch_size=2)
    assert [x.shape for x in queries] == [(5, 6), (4, 6), (5, 6)]
    assert [len(x) for x in documents] == [7, 8, 3, 8]
    plain = make()
    for text, found in zip(DOCUMENTS[:2], documents, strict=False):
        ids = plain.encode([f"a {text}"])["token_ids"][0]
        expected = plain.embed(f"a {text}")[~np.isin(ids, [tokenizer.id("."), tokenizer.id("?")])]
        np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(queries[0], axis=1), 1, atol=1e-6)
    found = model.predict(DOCUMENTS, verbose=0)
    rows = [vectors[scored] for vectors, scored in zip(found["vectors"], found["scored"], strict=True)]
    for one, other in zip(rows, documents, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert model.embed_documents([]) == [] and model.embed_documents("").shape == (3, 6)
    kept = make(TokenRules(keep_ids=(tokenizer.id("cat"),))).embed_documents(DOCUMENTS[:2])
    assert [x.shape for x in kept] == [(0, 6), (1, 6)]


@pytest.mark.one_backend
def test_rank(make):
    model = make()
    scores = model.similarity(model.embed_queries(QUERIES[:1]), model.embed_documents(DOCUMENTS))[0]
    ranked = model.rank(QUERIES[0], [*DOCUMENTS, DOCUMENTS[0]])
    assert [entry["index"] for entry in ranked if entry["text"] == DOCUMENTS[0]] == [0, 4]
    for entry in ranked[:4]:
        np.testing.assert_allclose(entry["score"], scores[entry["index"] % 4], rtol=1e-5)
    assert model.rank(QUERIES[0], DOCUMENTS, top_k=1)[0]["index"] == int(np.argmax(scores))
    assert model.rank(QUERIES[0], []) == []


# === MaxSim ===


@pytest.mark.one_backend
@pytest.mark.parametrize("mean", [False, True])
def test_max_sim_of_lists_is_that_of_padded_arrays(monkeypatch, mean):
    rng = np.random.default_rng(0)
    queries, documents = (
        [rng.standard_normal((n, 4)).astype("float32") for n in sizes] for sizes in ((3, 1, 5), (2, 6, 0, 4))
    )
    (q, q_mask), (d, d_mask) = (padded(x) for x in (queries, documents))
    expected = to_numpy(max_sim(q, d, q_mask, d_mask, mean=mean))
    np.testing.assert_allclose(max_sim_of_texts(queries, documents, mean), expected, rtol=1e-5)
    assert expected[0, 2] == np.float32(-1e9 / (3 if mean else 1))
    monkeypatch.setattr("kerasbert.retrieval.late_interaction.BLOCK", 9)
    np.testing.assert_allclose(max_sim_of_texts(queries, documents, mean), expected, rtol=1e-5)


def padded(texts):
    width = max(map(len, texts))
    found = np.zeros((len(texts), width, texts[0].shape[1]), "float32")
    for row, text in zip(found, texts, strict=True):
        row[: len(text)] = text
    return found, np.arange(width) < np.array([len(text) for text in texts])[:, None]


# === Training ===

LOSSES = {
    "ranking": (MultipleNegatives(scale=1.0, similarity="max_sim"), None),
    "mean": (MultipleNegatives(scale=20.0, similarity="mean_max_sim"), None),
    "kl": (DistillKL(similarity="max_sim"), [[3.0, 1.0], [2.0, 0.0], [1.0, 1.5]]),
    "margin": (MarginMSE(similarity="max_sim"), [2.0, 1.0, -0.5]),
}
EXAMPLES = (QUERIES, DOCUMENTS[:3], DOCUMENTS[1:])


def gradients(model, y=None, steps=1):
    """(Changes of all weights by steps at a rate of 1, losses)"""
    model.compile(keras.optimizers.SGD(1.0))
    before = [to_numpy(variable.value).copy() for variable in model.trainable_variables]
    x = model.encode_columns(list(zip(*EXAMPLES, strict=True)))
    keras.utils.set_random_seed(4)
    losses = [model.train_on_batch(x, np.zeros(3, "float32") if y is None else np.float32(y)) for _ in range(steps)]
    return [b - to_numpy(v.value) for b, v in zip(before, model.trainable_variables, strict=True)], losses


RULES = TokenRules(expansion=QueryExpansion(9), document_length=10, skip_words=(".",))


def test_chunks_and_blocks_change_nothing(make, tiny_backbone, monkeypatch):
    """GradCache over token vectors with dropout, and products of a few queries at a time."""

    def found(chunk):
        objective = MultipleNegatives(scale=1.0, similarity="max_sim", chunk=chunk)
        return gradients(make(RULES, backbone=tiny_backbone(dropout=0.2, attention_dropout=0.2), objective=objective))

    direct, losses = found(None)
    monkeypatch.setattr(similarity, "BLOCK", 200)
    for chunk in (2, None) if keras.backend.backend() == "torch" else (2,):
        chunked, same = found(chunk)
        np.testing.assert_allclose(same, losses, rtol=1e-5)
        for one, other in zip(direct, chunked, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5 * max(1, np.abs(one).max()))


@pytest.mark.one_backend
@pytest.mark.parametrize("name", LOSSES)
def test_it_learns(make, name):
    objective, y = LOSSES[name]
    model = make(RULES, objective=objective)
    model.compile(keras.optimizers.Adam(0.01))
    history = model.fit(EXAMPLES, y, batch_size=3, epochs=12, verbose=0).history["loss"]
    assert history[-1] < 0.6 * history[0]


@pytest.mark.one_backend
def test_bfloat16_with_chunks(make, tiny_backbone):
    """Rounding may change which token is the best, so the gradients are compared within the dtype."""
    changes, losses = {}, {}
    for dtype, chunk in (("float32", 2), ("mixed_bfloat16", 2), ("mixed_bfloat16", None)):
        objective = MultipleNegatives(scale=1.0, similarity="max_sim", chunk=chunk)
        model = make(RULES, backbone=tiny_backbone(dtype=dtype, attention_dropout=0.0), objective=objective)
        assert model.embed_queries("Ann").dtype == np.float32
        changes[dtype, chunk], losses[dtype, chunk] = gradients(model)
    np.testing.assert_allclose(losses["mixed_bfloat16", 2], losses["float32", 2], rtol=0.02)
    chunked, whole = (np.concatenate([x.ravel() for x in changes["mixed_bfloat16", chunk]]) for chunk in (2, None))
    assert np.linalg.norm(chunked - whole) < 0.02 * np.linalg.norm(whole)


@pytest.mark.one_backend
def test_training_reads_prompts_and_the_expansion(make):
    """A batch of training has the tokens that `embed_queries` and `embed_documents` read."""
    model = make(RULES, prompts={"query": "who ", "document": "a "}, objective=LOSSES["ranking"][0])
    x = model.encode_columns(list(zip(*EXAMPLES, strict=True)))
    outputs = model(x)
    vectors, scored = to_numpy(outputs["vectors"]), to_numpy(outputs["scored"])
    for i, (texts, embed) in enumerate(zip(EXAMPLES, (model.embed_queries, *[model.embed_documents] * 2), strict=True)):
        for row, expected in enumerate(embed(texts)):
            np.testing.assert_allclose(vectors[row, i][scored[row, i]], expected, atol=1e-5)
    assert [array.shape[1] for array, _ in model.columns(outputs, x)] == [9, 10, 10]


# === Saving ===


def test_saved_and_loaded(make, tmp_path):
    layers = [Dense(8, "tanh"), Dense(8, "identity", bias=False, residual=True), Normalize()]
    options = dict(similarity="mean_max_sim", prompts={"query": "who "}, objective=LOSSES["mean"][0])
    model = make(RULES, projection=layers, **options)
    expected = model.embed_queries(QUERIES)
    model.save_to_preset(tmp_path / "folder")
    model.save(tmp_path / "model.keras")
    for again in (kerasbert.load(tmp_path / "folder"), keras.models.load_model(tmp_path / "model.keras")):
        assert type(again) is MultiVectorEmbedder and again.arguments() == model.arguments()
        for one, other in zip(again.embed_queries(QUERIES), expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.one_backend
def test_other_projections_are_new(make, tmp_path):
    make().save_to_preset(tmp_path)
    with pytest.warns(UserWarning, match="no weights for the projection"):
        model = MultiVectorEmbedder.from_preset(tmp_path, projection=5)
    assert model.embedding_dim == 5 and model.embed("Ann").shape == (3, 5)


# === Bad input ===


@pytest.mark.one_backend
def test_what_is_refused(make):
    for objective in (CoSENT(), "ranking", "PairClasses"):
        with pytest.raises(ValueError, match="trained by a loss that compares token vectors"):
            make(objective=objective)
    with pytest.raises(ValueError, match="the 32 positions of the model. Received: 33"):
        make(TokenRules(expansion=QueryExpansion(33)))
    with pytest.warns(UserWarning, match="`max_length` is 99, but the model has 32 positions"):
        make(TokenRules(query_length=99))
    with pytest.warns(UserWarning, match=r"tokens of the vocabulary. Received: \['zebra'\]"):
        assert make(TokenRules(skip_words=("zebra", "."))).embed("zebra . zebra").shape == (4, 6)
    with pytest.raises(ValueError, match="needs a token of the vocabulary"):
        make(TokenRules(expansion=QueryExpansion(5, token="zebra")))
    with pytest.raises(ValueError, match="must be at least the length of the expansion. Received: 4 and 5"):
        TokenRules(query_length=4, expansion=QueryExpansion(5))
    with pytest.raises(ValueError, match="fixed or min"):
        QueryExpansion(5, "max")
    with pytest.raises(ValueError, match="skip_in"):
        TokenRules(skip_in=("passage",))
    with pytest.raises(ValueError, match="with the fields query_length"):
        make({"length": 3})
    with pytest.raises(ValueError, match="cannot be applied to the vectors of tokens. Received: LayerNorm"):
        make(projection=[LayerNorm()])
    with pytest.raises(ValueError, match="`similarity` must be one of max_sim"):
        make(similarity="cosine")
    with pytest.raises(ValueError, match="`query` must be a str"):
        make().rank(QUERIES, DOCUMENTS)
    for documents, top_k, message in (("c d", None, "must be a list of str. Received: one str"), ([], 0, "at least 1")):
        with pytest.raises(ValueError, match=message):
            make().rank("a b", documents, top_k)
    with pytest.raises(ValueError, match="Only a TextEmbedder can leave prompts out"):
        make(prompts=Prompts({}, pooled=False))
    with pytest.raises(ValueError, match="same width"):
        make().similarity([np.zeros((2, 6))], [np.zeros((2, 5))])
    with pytest.raises(ValueError, match=r"arrays \(tokens, width\)"):
        make().similarity(np.zeros((2, 3, 6, 1)), [np.zeros((2, 6))])
