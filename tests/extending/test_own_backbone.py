"""A subclass of a family, `class MyBert(Bert)`: from a preset of its parent, saved, and loaded as itself."""

import keras
import numpy as np

import kerasbert
from kerasbert.models import Backbone, Bert, BertConfig
from kerasbert.tasks import TextClassifier
from tests.extending.small import SIZES, random_ids


@keras.saving.register_keras_serializable("extending")
class MyBert(Bert):
    """BERT whose output is scaled to unit length."""

    def call(self, inputs, **options):
        outputs = super().call(inputs, **options)
        return {**outputs, "sequence_output": keras.ops.normalize(outputs["sequence_output"], axis=-1)}


def test_a_subclass_loads_the_weights_of_its_parent_and_comes_back_as_itself(tmp_path):
    bert, x = Bert(BertConfig(**SIZES)), {"token_ids": random_ids(3, 7)}
    bert.save_to_preset(tmp_path / "bert")
    mine = MyBert.from_preset(tmp_path / "bert")
    found = keras.ops.convert_to_numpy(mine(x)["sequence_output"])
    states = keras.ops.convert_to_numpy(bert(x)["sequence_output"])
    np.testing.assert_allclose(found, states / np.linalg.norm(states, axis=-1, keepdims=True), rtol=1e-5, atol=1e-6)  # pyright: ignore

    assert type(kerasbert.load(tmp_path / "bert")) is Bert
    mine.save_to_preset(tmp_path / "mine")
    for again in (kerasbert.load(tmp_path / "mine"), Backbone.from_preset(tmp_path / "mine")):
        assert type(again) is MyBert
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(again(x)["sequence_output"]), found)

    task = TextClassifier(mine, labels=2)
    task.save_to_preset(tmp_path / "task")
    again = kerasbert.load(tmp_path / "task")
    assert type(again) is TextClassifier and type(again.backbone) is MyBert
    np.testing.assert_array_equal(again.predict(x, verbose=0), task.predict(x, verbose=0))
