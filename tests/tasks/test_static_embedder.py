"""Static embeddings, compared with those of sentence-transformers, in both directions."""

import json

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasbert
from kerasbert.data import Tokenizer
from kerasbert.models import Bert, BertConfig, WordVectors, WordVectorsConfig
from kerasbert.retrieval import Matryoshka, MultipleNegatives
from kerasbert.tasks import Dense, LayerNorm, Prompts, StaticEmbedder, TextEmbedder
from tests.models.reference import randomize, to_numpy

WORDS = "the cat sat on a mat and dogs ran home fast while birds sang old songs all day".split()
TEXTS = [" ".join(WORDS[i % 5 : i % 5 + n]) for i, n in enumerate([3, 12, 1, 0, 14, 5])]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train("wordpiece", [" ".join(WORDS * 5), *TEXTS], 80)


@pytest.fixture(scope="module")
def backbone(tokenizer):
    return randomize(WordVectors(WordVectorsConfig(vocabulary_size=tokenizer.vocabulary_size, hidden_dim=12)))


def peer(folder):
    import sentence_transformers

    return sentence_transformers.SentenceTransformer(str(folder), device="cpu")


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"layers": [Dense(7, "relu"), LayerNorm()], "normalize": True, "similarity": "dot"},
        {"truncate_dim": 5, "prompts": {"query": "the old ", "document": "a "}},
    ],
)
def test_folders_in_both_directions(options, backbone, tokenizer, tmp_path):
    model = StaticEmbedder(backbone, tokenizer=tokenizer, **options)
    model.save_to_preset(tmp_path / "ours")
    theirs = peer(tmp_path / "ours")
    theirs.save(str(tmp_path / "theirs"))
    again = kerasbert.load(tmp_path / "theirs")
    assert type(again) is StaticEmbedder
    assert {**again.arguments(), "prompts": None} == {**model.arguments(), "prompts": None}
    for ours in (model, again, kerasbert.load(tmp_path / "ours")):
        for call, their_call in (("embed", "encode"), ("embed_queries", "encode_query")):
            expected = getattr(theirs, their_call)(TEXTS)
            np.testing.assert_allclose(getattr(ours, call)(TEXTS), expected, atol=1e-5)
        np.testing.assert_allclose(
            ours.similarity(expected, expected), theirs.similarity(expected, expected), atol=1e-5
        )


@pytest.mark.one_backend
def test_texts_are_truncated_as_in_sentence_transformers(backbone, tokenizer, tmp_path):
    StaticEmbedder(backbone, max_length=4, tokenizer=tokenizer).save_to_preset(tmp_path / "ours")
    theirs = peer(tmp_path / "ours")
    theirs.save(str(tmp_path / "theirs"))
    for folder in ("ours", "theirs"):
        ours = kerasbert.load(tmp_path / folder)
        assert ours.max_length == 4
        np.testing.assert_allclose(ours.embed(TEXTS), theirs.encode(TEXTS), atol=1e-5)
    path = tmp_path / "theirs" / "tokenizer.json"
    path.write_text(path.read_text().replace('"Right"', '"Left"', 1))
    with pytest.raises(ValueError, match="`direction` of the truncation in .* must be Right. Received: 'Left'"):
        kerasbert.load(tmp_path / "theirs")


@pytest.mark.one_backend
def test_folders_of_model2vec(backbone, tokenizer, tmp_path):
    """Rows that tokens share, and a weight for each token."""
    StaticEmbedder(backbone, normalize=True, tokenizer=tokenizer).save_to_preset(tmp_path)
    table = load_file(tmp_path / "model.safetensors")["embedding.weight"]
    mapping = np.arange(len(table))[::-1] // 2
    weights = np.linspace(0.5, 2, len(table))
    save_file({"embeddings": table, "mapping": mapping, "weights": weights}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))
    (tmp_path / "kerasbert.json").unlink()
    model = kerasbert.load(tmp_path)
    np.testing.assert_allclose(to_numpy(model.backbone.token_table), table[mapping] * weights[:, None], rtol=1e-6)
    np.testing.assert_allclose(model.embed(TEXTS), peer(tmp_path).encode(TEXTS), atol=1e-5)
    save_file({"embeddings": table, "mapping": mapping + len(table)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="`mapping` in .* must number rows of a table of 80 vectors"):
        kerasbert.load(tmp_path)
    save_file({"table": table}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="must have a table, embedding.weight or embeddings"):
        kerasbert.load(tmp_path)


def test_a_step_and_files(tokenizer, tmp_path):
    backbone = randomize(WordVectors(WordVectorsConfig(vocabulary_size=tokenizer.vocabulary_size, hidden_dim=12)))
    loss = Matryoshka(MultipleNegatives(), dims=[12, 4])
    model = StaticEmbedder(backbone, [Dense(12, "identity")], objective=loss, tokenizer=tokenizer)
    before = to_numpy(backbone.token_table).copy()
    model.compile(keras.optimizers.SGD(0.5))
    pairs = [(text, text + " cat") for text in TEXTS if text]
    model.fit(pairs, batch_size=5, epochs=1, verbose=0)
    words = {i for row in tokenizer.encode([b for _, b in pairs], add_special_tokens=False) for i in row}
    assert {*np.flatnonzero(np.abs(to_numpy(backbone.token_table) - before).max(axis=1))} == words
    vectors = model.embed(TEXTS)
    np.testing.assert_allclose(model.predict(TEXTS, verbose=0), vectors, atol=1e-5)
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(keras.saving.load_model(tmp_path / "model.keras").embed(TEXTS), vectors)
    model.save_to_preset(tmp_path / "folder")
    np.testing.assert_array_equal(StaticEmbedder.from_preset(tmp_path / "folder").embed(TEXTS), vectors)


@pytest.mark.one_backend
def test_distillation(tokenizer):
    sizes = dict(num_layers=1, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=8)
    bert = randomize(Bert(BertConfig(vocabulary_size=tokenizer.vocabulary_size, **sizes), pooler=False))
    encoder = TextEmbedder(bert, tokenizer=tokenizer)
    whole = StaticEmbedder.distil(encoder, width=None, rarity=None)
    np.testing.assert_allclose(whole.embed("cat"), encoder.embed("cat"), atol=1e-5)
    table = to_numpy(whole.backbone.token_table)
    small = to_numpy(StaticEmbedder.distil(encoder, width=6, rarity=None).backbone.token_table)
    values = np.linalg.svd(table - table.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(np.linalg.norm(small, axis=0), values[:6], rtol=1e-3)
    weighted = to_numpy(StaticEmbedder.distil(encoder, width=6).backbone.token_table)
    share = 1 / np.arange(2, 82) / (1 / np.arange(2, 82)).sum()
    np.testing.assert_allclose(np.abs(weighted), np.abs(small) * (1e-4 / (1e-4 + share))[:, None], atol=1e-5)


@pytest.mark.one_backend
def test_bad_input(tokenizer, backbone, tmp_path):
    with pytest.raises(ValueError, match="must be a WordVectors. Received: Bert. For the vectors of an encoder"):
        sizes = dict(num_layers=1, num_heads=3, hidden_dim=24, feed_forward_dim=40, max_length=8)
        StaticEmbedder(Bert(BertConfig(vocabulary_size=80, **sizes)))
    with pytest.raises(ValueError, match="`max_length` must be a number of tokens, at least 1. Received: 0"):
        StaticEmbedder(backbone, max_length=0)
    with pytest.raises(ValueError, match="Only a TextEmbedder can leave prompts out"):
        StaticEmbedder(backbone, prompts=Prompts({}, pooled=False))
    StaticEmbedder(backbone, tokenizer=tokenizer).save_to_preset(tmp_path)
    path = tmp_path / "modules.json"
    rows = json.loads(path.read_text())
    path.write_text(json.dumps([*rows, {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]))
    with pytest.raises(ValueError, match="must be a StaticEmbedding, and then any of Dense, LayerNorm"):
        kerasbert.load(tmp_path)
