"""Low-rank adaptation: what trains, that it learns, and that the folder is an ordinary model's."""

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.models import Bert, BertConfig
from kerasbert.tasks import TextClassifier
from kerasbert.training import add_lora
from tests.models.reference import to_numpy


@pytest.fixture
def model():
    keras.utils.set_random_seed(0)
    sizes = dict(vocabulary_size=20, num_layers=2, num_heads=2, hidden_dim=8, feed_forward_dim=12, max_length=8)
    return TextClassifier(Bert(BertConfig(**sizes, initializer_range=0.3, dropout=0.0)), labels=2)


@pytest.mark.one_backend
def test_few_parameters_learn_and_are_merged(model, tmp_path):
    rng = np.random.default_rng(0)
    x = {"token_ids": rng.integers(4, 20, (16, 6)).astype("int32")}
    y = (x["token_ids"][:, 1] > 11).astype("int32")
    untouched = to_numpy(model(x))
    # Two layers of two kernels (8 x 8) as (8 x 3) (3 x 8), and the head.
    assert add_lora(model, rank=3, alpha=6) == 2 * 2 * 2 * 8 * 3 + 8 * 2 + 2
    np.testing.assert_array_equal(to_numpy(model(x)), untouched)
    frozen = {v.path: to_numpy(v).copy() for v in model.backbone.weights if "lora" not in v.path}
    model.compile(keras.optimizers.Adam(3e-2))
    history = model.fit(x, y, batch_size=16, epochs=25, verbose=0)
    assert history.history["loss"][-1] < 0.5 * history.history["loss"][0]
    for variable in model.backbone.weights:
        if "lora" not in variable.path:
            np.testing.assert_array_equal(to_numpy(variable), frozen[variable.path])

    learned = to_numpy(model(x))
    model.save_to_preset(tmp_path)
    again = kerasbert.load(tmp_path)
    np.testing.assert_allclose(to_numpy(again(x)), learned, atol=1e-5)
    assert all(v.trainable for v in again.backbone.weights)
    before = frozen[model.backbone.blocks[0].attention.query._kernel.path]
    assert not np.array_equal(to_numpy(again.backbone.blocks[0].attention.query.kernel), before)


@pytest.mark.one_backend
def test_bad_targets(model):
    with pytest.raises(ValueError, match="Received: wq. It has: inner, key, outer, pooler, project, query, value"):
        add_lora(model, targets=("wq",))
    with pytest.raises(ValueError, match="`rank` must be at least 1"):
        add_lora(model, rank=0)


class Scaled(keras.layers.Layer):
    """A layer of a user, with a weight and a dense layer whose name is among the targets."""

    def __init__(self):
        super().__init__()
        self.inside = keras.layers.Dense(8, name="query")

    def build(self, shape):
        self.scale = self.add_weight(shape=(), initializer="ones")
        self.inside.build(shape)

    def call(self, inputs):
        return self.scale * self.inside(inputs)


@pytest.mark.one_backend
def test_layers_outside_the_backbones_of_a_keras_model_stay_trainable(model):
    first = model.backbone
    second = Bert(first.config, name="second")
    x = {"token_ids": np.arange(4, 20, dtype="int32").reshape(4, 4)}
    inputs = {"token_ids": keras.Input((None,), dtype="int32", name="token_ids")}
    states = [backbone(inputs)["sequence_output"][:, 0] for backbone in (first, second)]
    table = keras.layers.Embedding(20, 8)(inputs["token_ids"])[:, 0]
    frozen = keras.layers.Dense(8, name="theirs", trainable=False)(table)
    hidden = keras.layers.LayerNormalization()(Scaled()(keras.layers.Add()([*states, table, frozen])))
    whole = keras.Model(inputs, keras.layers.Dense(2, name="head")(hidden))
    outside = {id(v) for v in whole.trainable_variables} - {id(v) for b in (first, second) for v in b.weights}
    number = add_lora(whole, rank=2)
    trained = {id(v) for v in whole.trainable_variables}
    products = {id(v) for b in (first, second) for v in b.weights if "lora" in v.path}
    assert len(outside) == 1 + 3 + 2 + 2 and len(products) == 2 * 2 * 2 * 2
    assert trained == outside | products
    assert number == sum(int(np.prod(v.shape)) for v in whole.trainable_variables)
    whole.compile("sgd", loss="mse")
    before = [to_numpy(v).copy() for v in whole.get_layer("head").weights]
    whole.fit(x, np.ones((4, 2)), verbose=0)
    assert not any(np.array_equal(a, to_numpy(v)) for a, v in zip(before, whole.get_layer("head").weights, strict=True))


@pytest.mark.one_backend
def test_a_model_without_a_backbone():
    with pytest.raises(ValueError, match="`model` must be or contain a backbone of kerasbert. Received: Sequential"):
        add_lora(keras.Sequential([keras.layers.Dense(2, name="query")]))
