"""Features of a frozen backbone: mixed or side by side, for texts and for words, from every kind of backbone."""

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.models import Elmo, ElmoConfig, WordVectors, WordVectorsConfig
from kerasbert.tasks import TextClassifier, TokenClassifier
from kerasbert.tasks.features import FeatureHead, feature_options
from tests.models.reference import to_numpy

WORDS = [["Ann", "lives", "in", "Rome", "."], ["in", "Bonn", "lives", "Bob"], ["a", "cat", "met", "Ann"]]
TAGS = [["NAME" if word in ("Ann", "Bob") else "O" for word in words] for words in WORDS]
TEXTS = [" ".join(words) for words in WORDS]


def _trains_its_head_alone(model):
    return {id(v) for v in model.trainable_variables} == {id(v) for v in model.feature_head.trainable_variables}


def test_mix_and_concatenation_by_hand():
    rng = np.random.default_rng(0)
    states = [rng.normal(size=(2, 5, 4)).astype("float32") for _ in range(3)]
    real = np.arange(5) < np.array([[5], [2]])
    layer = FeatureHead(2, "mix", pool=True)
    layer(states, real)
    layer.mix.assign([0.5, -1.0, 2.0])
    layer.scale.assign(1.5)
    shares = np.exp([0.5, -1.0, 2.0]) / np.exp([0.5, -1.0, 2.0]).sum()
    x = 1.5 * np.tensordot(shares, np.stack(states), 1)
    means = np.stack([x[0].mean(0), x[1, :2].mean(0)])
    expected = means @ to_numpy(layer.dense.kernel) + to_numpy(layer.dense.bias)
    np.testing.assert_allclose(to_numpy(layer(states, real)), expected, atol=1e-5)

    layer = FeatureHead(2, "concatenate", layers=2)
    x = np.concatenate(states[1:], axis=-1)
    np.testing.assert_allclose(to_numpy(layer(states, real)), x @ to_numpy(layer.dense.kernel), atol=1e-5)
    with pytest.raises(ValueError, match="between 1 and 3, the number of hidden states. Received: 4"):
        FeatureHead(2, "mix", layers=4)(states, real)
    assert feature_options("concatenate") == {"combine": "concatenate", "layers": 4, "lstm_dim": 0}
    for wrong in ("sum", {"width": 3}):
        with pytest.raises(ValueError, match="`features` must be one of"):
            feature_options(wrong)


@pytest.mark.parametrize("features", ["mix", {"combine": "concatenate", "layers": 2, "lstm_dim": 8}])
@pytest.mark.one_backend
def test_tags_words_without_training_the_backbone(tiny_backbone, tokenizer, tmp_path, features):
    backbone = tiny_backbone(dropout=0.5)
    before = [to_numpy(v).copy() for v in backbone.weights]
    model = TokenClassifier(backbone, ["O", "NAME"], features=features, tokenizer=tokenizer)
    names = {v.path.split("/")[1] for v in model.trainable_variables}
    assert names == {"feature_head"}
    model.compile(keras.optimizers.Adam(2e-2))
    model.fit(WORDS, TAGS, batch_size=3, epochs=40, verbose=0)
    assert [answer["labels"] for answer in model.tag(WORDS)] == TAGS
    for value, variable in zip(before, backbone.weights, strict=True):
        np.testing.assert_array_equal(value, to_numpy(variable))
    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    assert again.features == model.features and _trains_its_head_alone(again)
    np.testing.assert_array_equal(again.predict(WORDS, verbose=0), model.predict(WORDS, verbose=0))


@pytest.mark.one_backend
def test_a_frozen_backbone_drops_nothing_out(tiny_backbone, tokenizer):
    model = TextClassifier(tiny_backbone(dropout=0.5), features="mix", tokenizer=tokenizer)
    model.feature_head.dropout.rate = 0.0
    x = {"token_ids": np.array([[1, 2, 3]], "int32")}
    still = to_numpy(model(x, training=True))
    np.testing.assert_array_equal(to_numpy(model(x, training=False)), still)
    model.trains_backbone = True
    assert not np.array_equal(to_numpy(model(x, training=True)), still)


def elmo(size):
    return Elmo(ElmoConfig(vocabulary_size=size, characters=False, hidden_dim=8, cell_dim=12, dropout=0.0))


def word_vectors(size):
    return WordVectors(WordVectorsConfig(vocabulary_size=size, hidden_dim=16))


@pytest.mark.parametrize("make", [elmo, word_vectors])
@pytest.mark.one_backend
def test_backbones_with_states_of_their_own_kind(make, tokenizer, tmp_path):
    model = TextClassifier(make(tokenizer.vocabulary_size), features="mix", tokenizer=tokenizer)
    assert _trains_its_head_alone(model)
    model.compile(keras.optimizers.Adam(5e-2))
    model.fit(TEXTS, [0, 1, 1], batch_size=3, epochs=100, verbose=0)
    np.testing.assert_array_equal(model.predict(TEXTS, verbose=0).argmax(-1), [0, 1, 1])
    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    np.testing.assert_array_equal(again.predict(TEXTS, verbose=0), model.predict(TEXTS, verbose=0))
