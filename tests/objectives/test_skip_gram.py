"""Skip-gram: its loss in closed form, its first step, what it learns, its folder, and vectors as frozen features."""

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.models import Backbone, WordVectors, WordVectorsConfig
from kerasbert.objectives import SkipGram
from kerasbert.tasks import TextClassifier, TokenClassifier
from tests.models.reference import to_numpy

TINY = dict(vocabulary_size=19, hidden_dim=8)


def shaken(model):
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(0, 0.5, variable.shape).astype("float32"))
    return model


def test_initial_values_and_loss():
    backbone = WordVectors(WordVectorsConfig(vocabulary_size=500, hidden_dim=40))
    table = to_numpy(backbone.token_table)
    assert np.abs(table).max() <= 0.5 / 40 and table.std() == pytest.approx(1 / 40 / 12**0.5, rel=0.03)
    model = SkipGram(backbone)
    assert not to_numpy(model.skip_gram.contexts.embeddings).any()
    x = {"token_ids": np.array([[3], [4]], "int32"), "context_ids": np.array([[5, 6, 7], [5, 5, 8]], "int32")}
    y = np.array([[1, 0, 0], [1, 0, 0]], "int32")
    model.compile(keras.optimizers.SGD(0.0))
    assert float(model.evaluate(x, y, verbose=0, return_dict=True)["loss"]) == pytest.approx(3 * np.log(2), rel=1e-5)


def test_the_loss_by_its_formula():
    model = shaken(SkipGram(WordVectors(WordVectorsConfig(**TINY))))
    x = {"token_ids": np.array([[3], [4]], "int32"), "context_ids": np.array([[5, 6, 7], [5, 5, 8]], "int32")}
    y = np.array([[1, 0, 0], [1, 0, 0]], "int32")
    weights = np.array([[1, 1, 1], [1, 0, 1]], "float32")
    words, contexts = to_numpy(model.backbone.token_table), to_numpy(model.skip_gram.contexts.embeddings)
    expected = 0
    for row in range(2):
        for column in range(3):
            score = words[x["token_ids"][row, 0]] @ contexts[x["context_ids"][row, column]]
            expected += weights[row, column] * np.log1p(np.exp(-score if column == 0 else score)) / 2
    model.compile(keras.optimizers.SGD(0.0))
    found = model.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)["loss"]
    assert float(found) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="context_ids"):
        model({"token_ids": x["token_ids"]})


@pytest.mark.one_backend
def test_words_in_the_same_places_get_like_vectors():
    """Words 2 and 3 stand among 6 to 9, words 4 and 5 among 10 to 13."""
    rng = np.random.default_rng(0)
    words = rng.integers(2, 6, (4_000, 1))
    near = np.where(words < 4, rng.integers(6, 10, (4_000, 1)), rng.integers(10, 14, (4_000, 1)))
    others = rng.integers(6, 14, (4_000, 3))
    x = {"token_ids": words.astype("int32"), "context_ids": np.concatenate([near, others], axis=1).astype("int32")}
    y = np.repeat([[1, 0, 0, 0]], 4_000, axis=0).astype("int32")
    model = SkipGram(WordVectors(WordVectorsConfig(**TINY)))
    model.compile(keras.optimizers.Adam(0.02))
    losses = model.fit(x, y, batch_size=100, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0] - 0.2
    table = to_numpy(model.backbone.token_table)
    [(found, cosine)] = model.backbone.nearest(table[2], count=1, without=[2])
    assert found == 3 and cosine > 0.9
    assert [i for i, _ in model.backbone.analogy(2, 3, 4, count=1)] == [5]


@pytest.mark.one_backend
def test_analogies_leave_out_what_they_are_asked_with():
    backbone = WordVectors(WordVectorsConfig(vocabulary_size=6, hidden_dim=2))
    backbone.token_embedding.embeddings.assign([[1, 0], [0, 1], [1, 0.1], [0.1, 1], [-1, 0], [0, -1]])
    found = backbone.analogy(0, 1, 2, count=6)
    assert found[0][0] == 3 and not {0, 1, 2} & {i for i, score in found if np.isfinite(score)}


@pytest.mark.parametrize("task", [TextClassifier, TokenClassifier])
@pytest.mark.one_backend
def test_frozen_features_of_a_task(task, tmp_path):
    backbone = shaken(WordVectors(WordVectorsConfig(**TINY)))
    backbone.trainable = False
    model = task(backbone, labels=2)
    ids = np.random.default_rng(0).integers(2, 19, (64, 6)).astype("int32")
    lengths = np.full(64, 4, "int32")
    y = (ids[:, 0] > 9).astype("int32") if task is TextClassifier else (ids > 9).astype("int32")
    before = to_numpy(backbone.token_table).copy()
    model.compile(keras.optimizers.Adam(0.05))
    weights = (np.arange(6) < 4).astype("float32") * np.ones((64, 1), "float32") if y.ndim == 2 else None
    history = model.fit({"token_ids": ids, "lengths": lengths}, y, sample_weight=weights, epochs=12, verbose=0).history
    assert history["loss"][-1] < 0.9 * history["loss"][0]
    np.testing.assert_array_equal(to_numpy(backbone.token_table), before)
    # Padding does not count.
    one = to_numpy(model({"token_ids": ids[:1, :4]}))
    other = to_numpy(model({"token_ids": ids[:1], "lengths": lengths[:1]}))
    np.testing.assert_allclose(one, other[:, :4] if task is TokenClassifier else other, atol=1e-6)
    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    assert type(again) is task and type(Backbone.from_preset(tmp_path)) is WordVectors
    np.testing.assert_array_equal(to_numpy(again({"token_ids": ids})), to_numpy(model({"token_ids": ids})))


@pytest.mark.one_backend
def test_vectors_are_written_in_the_format_of_word2vec(tmp_path):
    """A line with the counts, then each word with its digits or float32 bytes; ids without a word are left out."""
    model = WordVectors(WordVectorsConfig(vocabulary_size=5, hidden_dim=3))
    table = np.array([[0.1, -2, 3e-7], [1, 2, 3], [4, 5, 6], [0.3333333, 0, -0.0], [7, 8, 9]], "float32")
    model.token_embedding.set_weights([table])
    words = ["the", "▁人", "", "##s"]
    model.save_word2vec(tmp_path / "text", words)
    assert (tmp_path / "text").read_text(encoding="utf-8") == (
        "3 3\nthe 0.1 -2.0 3e-07\n▁人 1.0 2.0 3.0\n##s 0.3333333 0.0 -0.0\n"
    )
    model.save_word2vec(tmp_path / "binary", words, binary=True)
    parts = [word.encode() + b" " + table[i].tobytes() + b"\n" for i, word in enumerate(words) if word]
    assert (tmp_path / "binary").read_bytes() == b"3 3\n" + b"".join(parts)


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("words", "message"),
    [(["a", "New York"], r"no white space.*Received: \['New York'\]"), (list("abcdef"), "6 words for 5 vectors")],
)
def test_words_that_the_file_cannot_hold_are_refused(words, message, tmp_path):
    model = WordVectors(WordVectorsConfig(vocabulary_size=5, hidden_dim=3))
    with pytest.raises(ValueError, match=message):
        model.save_word2vec(tmp_path / "text", words)
    assert not list(tmp_path.iterdir())
