"""TextEmbedder: pooling, order, folders of sentence-transformers, and a real checkpoint."""

import json

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.data import Tokenizer
from kerasbert.data.batches import bucketing
from kerasbert.models import Backbone, Bert, BertConfig, Elmo, ElmoConfig
from kerasbert.tasks import Prompts, TextEmbedder
from kerasbert.tasks.poolings import POOLINGS
from tests.models.reference import randomize, to_numpy

WORDS = "the cat sat on a mat and dogs ran home fast while birds sang old songs all day".split()
TEXTS = [" ".join(WORDS[i % 5 : i % 5 + n]) for i, n in enumerate([3, 12, 1, 7, 7, 2, 14, 5, 9, 4, 6])]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train("wordpiece", [" ".join(WORDS * 5), " ".join(TEXTS)], 80, lowercase=True)


@pytest.fixture(scope="module")
def backbone(tokenizer):
    config = BertConfig(
        vocabulary_size=tokenizer.vocabulary_size,
        num_layers=1,
        num_heads=3,
        hidden_dim=24,
        feed_forward_dim=40,
        max_length=64,
    )
    return randomize(Bert(config, pooler=False))


@pytest.mark.one_backend
def test_states_that_are_wider_than_hidden_dim(tokenizer):
    """ELMo's have two directions."""
    sizes = dict(vocabulary_size=tokenizer.vocabulary_size, num_layers=1, hidden_dim=8, cell_dim=12)
    model = TextEmbedder(Elmo(ElmoConfig(**sizes, characters=False)), tokenizer=tokenizer)
    assert model.embedding_dim == 16 and model.embed(TEXTS).shape == (len(TEXTS), 16)


# === Pooling ===

HIDDEN = np.array([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]], "float32")


@pytest.mark.parametrize(
    ("name", "real", "pooled"),
    [
        ("mean", [1, 1, 0], [2.0, 3.0]),
        ("mean", [0, 0, 0], [0.0, 0.0]),
        ("mean_sqrt_len_tokens", [1, 1, 0], [4.0 / 2**0.5, 6.0 / 2**0.5]),
        ("max", [1, 1, 0], [3.0, 4.0]),
        ("cls", [1, 1, 0], [1.0, 2.0]),
        ("cls", [0, 1, 1], [3.0, 4.0]),
        ("lasttoken", [1, 1, 0], [3.0, 4.0]),
        ("lasttoken", [0, 1, 1], [5.0, 6.0]),
        ("weightedmean", [0, 1, 1], [(3.0 + 10.0) / 3, (4.0 + 12.0) / 3]),
    ],
)
def test_worked_examples_of_pooling(name, real, pooled):
    found = POOLINGS[name][0](keras.ops.convert_to_tensor(HIDDEN), keras.ops.convert_to_tensor([real]) > 0)
    np.testing.assert_allclose(to_numpy(found), [pooled], rtol=1e-6)


@pytest.mark.one_backend
def test_vectors_of_several_poolings_stand_side_by_side(backbone, tokenizer):
    both = TextEmbedder(backbone, ["mean", "cls"], tokenizer=tokenizer)
    assert both.poolings == ["mean", "cls"] and both.embedding_dim == 48
    parts = [TextEmbedder(backbone, name, tokenizer=tokenizer).embed(TEXTS) for name in ("mean", "cls")]
    np.testing.assert_allclose(both.embed(TEXTS), np.concatenate(parts, axis=1), atol=1e-6)


# === Embedding ===


def test_embeddings_come_in_the_order_of_the_texts_in_few_shapes(backbone, tokenizer, monkeypatch):
    embedder = TextEmbedder(backbone, normalize=True, tokenizer=tokenizer)
    shapes = []
    program = embedder._vectors_of
    monkeypatch.setattr(
        embedder, "_vectors_of", lambda batch: shapes.append(batch["token_ids"].shape) or program(batch)
    )
    monkeypatch.setattr(bucketing, "TEXT", 16)
    texts = [*TEXTS, " ".join(WORDS * 3)]
    vectors = embedder.embed(texts, batch_size=4)
    exact = keras.backend.backend() == "torch"  # it compiles nothing
    assert shapes == ([(1, 56), (4, 16), (7, 9)] if exact else [(1, 56), (4, 16), (4, 16), (4, 16)])
    assert vectors.shape == (12, 24) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    for text, vector in zip(texts, vectors, strict=True):
        np.testing.assert_allclose(embedder.embed(text), vector, atol=1e-5)
    assert embedder.embed([]).shape == (0, 24)
    np.testing.assert_allclose(embedder.predict(TEXTS, verbose=0), vectors[:-1], atol=1e-5)


@pytest.mark.one_backend
def test_embeddings_follow_the_weights(backbone, tokenizer):
    embedder = TextEmbedder(backbone, tokenizer=tokenizer)
    before = embedder.embed(TEXTS[:2])
    bias = backbone.embedding_norm.beta
    bias.assign(bias + 1.0)
    after = embedder.embed(TEXTS[:2])
    bias.assign(bias - 1.0)
    assert np.abs(after - before).max() > 0.01
    np.testing.assert_allclose(embedder.embed(TEXTS[:2]), before, atol=1e-5)


@pytest.mark.one_backend
def test_left_padding_changes_nothing_for_a_mean(backbone, tokenizer):
    embedder = TextEmbedder(backbone, tokenizer=tokenizer)
    encoded = embedder.encode(TEXTS[:3])
    ids, lengths = encoded["token_ids"], encoded["lengths"]
    real = np.arange(ids.shape[1]) < lengths[:, None]
    positions = np.maximum(np.arange(ids.shape[1]) - (ids.shape[1] - lengths)[:, None], 0).astype("int32")
    left = np.zeros_like(ids)
    for row, source, length in zip(left, ids, lengths, strict=True):
        row[len(row) - length :] = source[:length]
    turned = {"token_ids": left, "padding_mask": real[:, ::-1].copy(), "position_ids": positions}
    np.testing.assert_allclose(to_numpy(embedder(turned)), to_numpy(embedder(encoded)), atol=1e-5)


@pytest.mark.one_backend
def test_prompts_and_lower_case(backbone, tokenizer):
    embedder = TextEmbedder(
        backbone, lowercase=True, prompts=Prompts({"query": "the old "}, "query"), tokenizer=tokenizer
    )
    plain = TextEmbedder(backbone, tokenizer=tokenizer)
    np.testing.assert_allclose(embedder.embed("CAT sat"), plain.embed("the old cat sat"), atol=1e-6)
    with pytest.raises(ValueError, match="`prompt` must be one of \\['query'\\]. Received: 'passage'"):
        embedder.embed("cat", prompt="passage")


@pytest.mark.one_backend
def test_lower_case_leaves_special_tokens(tmp_path):
    """As in sentence-transformers, for a tokenizer that distinguishes case."""
    from sentence_transformers import SentenceTransformer

    cased = Tokenizer.train("wordpiece", [" ".join(WORDS * 5)], 60)
    sizes = dict(num_layers=1, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=64)
    bert = randomize(Bert(BertConfig(vocabulary_size=cased.vocabulary_size, **sizes), pooler=False))
    ours = TextEmbedder(bert, lowercase=True, prompts=Prompts({"fill": "[MASK] "}, "fill"), tokenizer=cased)
    ours.save_to_preset(tmp_path)
    texts = ["The CAT [SEP] Sat", "[mask] ÉΣ the"]
    theirs = SentenceTransformer(str(tmp_path), device="cpu")
    np.testing.assert_allclose(ours.embed(texts), theirs.encode(texts), atol=1e-5)
    (word,) = cased.encode(["cat"], add_special_tokens=False)
    assert ours.encode(["[MASK] CAT"])["token_ids"].tolist() == [[cased.cls_id, cased.mask_id, *word, cased.sep_id]]


@pytest.mark.one_backend
def test_bad_input(backbone, tokenizer):
    with pytest.raises(ValueError, match="`pooling` must be one or several of .*Received: 'median'"):
        TextEmbedder(backbone, "median")
    with pytest.raises(ValueError, match="`default` must be one of the prompts"):
        Prompts({}, "query")
    with pytest.raises(ValueError, match="Text needs a tokenizer"):
        TextEmbedder(backbone).embed(["a"])
    embedder = TextEmbedder(backbone, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="needs an objective"):
        embedder.compile("adam")
    packed = {"token_ids": np.ones((1, 4), "int32"), "sequence_ids": np.ones((1, 4), "int32")}
    with pytest.raises(ValueError, match="packed rows"):
        embedder(packed)
    for wrong in (("a", "b"), None):
        with pytest.raises(ValueError, match="must be a str. Received: .*, as text 1"):
            embedder.embed(["a", wrong])


# === Folders ===


@pytest.mark.one_backend
def test_folders_are_those_of_sentence_transformers(backbone, tokenizer, tmp_path):
    import sentence_transformers

    for number, pooling in enumerate(["mean", "weightedmean", ["cls", "max", "lasttoken"]]):
        embedder = TextEmbedder(backbone, pooling, normalize=number % 2 == 0, max_length=12, tokenizer=tokenizer)
        embedder.save_to_preset(tmp_path / "ours")
        theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "ours"), device="cpu")
        assert theirs.max_seq_length == 12
        expected = theirs.encode(TEXTS)
        np.testing.assert_allclose(embedder.embed(TEXTS), expected, atol=1e-5, err_msg=str(pooling))
        theirs.save(str(tmp_path / f"theirs_{number}"))
        again = kerasbert.load(tmp_path / f"theirs_{number}")
        assert type(again) is TextEmbedder and again.poolings == embedder.poolings
        assert (again.normalize, again.max_length) == (embedder.normalize, 12)
        np.testing.assert_allclose(again.embed(TEXTS), expected, atol=1e-5, err_msg=str(pooling))


@pytest.mark.one_backend
@pytest.mark.parametrize("normalize", [False, True])
def test_truncated_vectors_are_those_of_sentence_transformers(normalize, backbone, tokenizer, tmp_path):
    """The first components, which are not normalized again."""
    import sentence_transformers

    embedder = TextEmbedder(backbone, normalize=normalize, max_length=12, truncate_dim=5, tokenizer=tokenizer)
    whole = TextEmbedder(backbone, normalize=normalize, max_length=12, tokenizer=tokenizer).embed(TEXTS)
    assert embedder.embedding_dim == 5 and embedder.embed(TEXTS[0]).shape == (5,)
    np.testing.assert_allclose(embedder.embed(TEXTS), whole[:, :5], atol=1e-6)
    np.testing.assert_allclose(embedder.predict(TEXTS, verbose=0), whole[:, :5], atol=1e-6)
    embedder.save_to_preset(tmp_path / "ours")
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    np.testing.assert_allclose(theirs.encode(TEXTS), whole[:, :5], atol=1e-5)
    theirs.save(str(tmp_path / "theirs"))
    again = kerasbert.load(tmp_path / "theirs")
    assert again.truncate_dim == 5
    np.testing.assert_allclose(again.embed(TEXTS), whole[:, :5], atol=1e-5)
    assert TextEmbedder.from_preset(tmp_path / "theirs", truncate_dim=3).embed(TEXTS).shape == (len(TEXTS), 3)
    with pytest.raises(ValueError, match="`truncate_dim` must be at least 1. Received: 0"):
        TextEmbedder(backbone, truncate_dim=0)
    path = tmp_path / "theirs" / "config_sentence_transformers.json"
    path.write_text(path.read_text().replace('"truncate_dim": 5', '"truncate_dim": -1'))
    with pytest.raises(ValueError, match="`truncate_dim` in .* must be at least 1. Received: -1"):
        kerasbert.load(tmp_path / "theirs")


@pytest.mark.one_backend
def test_round_trip_and_keras_file(backbone, tokenizer, tmp_path):
    prompts = Prompts({"q": "a ", "query": "the ", "document": ""}, "q")
    embedder = TextEmbedder(backbone, ["cls", "max"], True, 20, True, prompts, tokenizer=tokenizer)
    embedder.save_to_preset(tmp_path / "folder")
    again = kerasbert.load(tmp_path / "folder")
    assert again.arguments() == embedder.arguments() and again.tokenizer.hash == tokenizer.hash
    np.testing.assert_array_equal(again.embed(TEXTS), embedder.embed(TEXTS))
    embedder.save(tmp_path / "x.keras")
    again = keras.saving.load_model(tmp_path / "x.keras")
    np.testing.assert_array_equal(again.embed(TEXTS), embedder.embed(TEXTS))
    loaded = Backbone.from_preset(tmp_path / "folder")
    np.testing.assert_array_equal(to_numpy(loaded.token_table), to_numpy(backbone.token_table))


@pytest.mark.one_backend
def test_a_plain_encoder_gets_mean_pooling(backbone, tokenizer, tmp_path):
    backbone.save_to_preset(tmp_path)
    tokenizer.save(tmp_path)
    embedder = TextEmbedder.from_preset(tmp_path)
    assert embedder.poolings == ["mean"] and not embedder.normalize
    np.testing.assert_allclose(
        embedder.embed(TEXTS), TextEmbedder(backbone, tokenizer=tokenizer).embed(TEXTS), atol=1e-6
    )


@pytest.mark.one_backend
def test_older_folders_and_modules_that_are_not_ours(backbone, tokenizer, tmp_path):
    folder = tmp_path / "old"
    encoder = folder / "0_BERT"
    encoder.mkdir(parents=True)
    backbone.save_to_preset(encoder)
    tokenizer.save(encoder)
    (encoder / "sentence_bert_config.json").write_text('{"max_seq_length": 9}')
    (folder / "1_Pooling").mkdir()
    pooling = folder / "1_Pooling" / "config.json"
    pooling.write_text('{"word_embedding_dimension": 24, "pooling_mode_max_tokens": true}')
    kinds = {"0_BERT": "Transformer", "1_Pooling": "Pooling"}

    def write(kinds):
        modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
        (folder / "modules.json").write_text(json.dumps(modules))

    write(kinds)
    embedder = kerasbert.load(folder)
    assert embedder.poolings == ["max"] and embedder.max_length == 9
    write({**kinds, "2_Dense": "Dense"})
    with pytest.raises(ValueError, match="must have the settings of a Dense.*Received: no in_features, out_features"):
        kerasbert.load(folder)


@pytest.mark.one_backend
def test_prompts_that_are_not_pooled(backbone, tokenizer, tmp_path):
    """As sentence-transformers does it: the tokens of the prompt are read, but left out of the pooling."""
    import sentence_transformers

    prompts = Prompts({"query": "the old ", "other": ""}, pooled=False)
    for pooling in ("mean", "weightedmean", "cls"):
        model = TextEmbedder(backbone, pooling, prompts=prompts, tokenizer=tokenizer)
        model.save_to_preset(tmp_path / pooling)
        peer = sentence_transformers.SentenceTransformer(str(tmp_path / pooling), device="cpu")
        again = kerasbert.load(tmp_path / pooling)
        assert again.prompts == prompts
        for name in ("query", "other"):
            vectors = again.embed(TEXTS, prompt=name)
            np.testing.assert_allclose(vectors, peer.encode(TEXTS, prompt_name=name), atol=2e-5)
        assert np.abs(again.embed(TEXTS) - again.embed(TEXTS, prompt="query")).max() > 1e-2


def test_queries_and_documents(backbone, tokenizer):
    """Queries and documents have prompts of their own, or the default one where there is none for them."""
    prompts = Prompts({"query": "the ", "passage": "old ", "other": "mat "}, "other")
    model = TextEmbedder(backbone, prompts=prompts, tokenizer=tokenizer)
    queries, documents = model.embed_queries(TEXTS[:2]), model.embed_documents(TEXTS)
    np.testing.assert_array_equal(queries, model.embed(TEXTS[:2], prompt="query"))
    np.testing.assert_array_equal(documents, model.embed(TEXTS, prompt="passage"))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, documents)]
    np.testing.assert_allclose(model.similarity(queries, documents), unit[0] @ unit[1].T, atol=1e-5)
    with pytest.raises(ValueError, match=r"same width.*\(2, 24\) and \(11, 2\)"):
        model.similarity(queries, documents[:, :2])
    model = TextEmbedder(backbone, prompts={"document": "old "}, tokenizer=tokenizer)
    np.testing.assert_array_equal(model.embed_queries(TEXTS[:2]), model.embed(TEXTS[:2]))
