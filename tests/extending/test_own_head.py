"""A new kind of head for a family, and a task with a new loss that uses it and that is saved and loaded."""

import dataclasses

import keras
import numpy as np

import kerasbert
from kerasbert.layers import Composite, Dense
from kerasbert.models import Bert, BertConfig
from kerasbert.tasks import Task
from tests.extending.small import SIZES, random_ids


@keras.saving.register_keras_serializable("extending")
class AgeHead(Composite):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = Dense(1, name="dense", dtype=self.dtype_policy)

    def call(self, outputs):
        return self.dense(outputs["sequence_output"][:, 0])[:, 0]


HEADS = {**Bert.family.heads, "age": lambda config, **arguments: AgeHead(**arguments)}
NAMES = {**Bert.family.huggingface.names, "age/dense": "kerasbert.age.dense"}
LAYOUT = dataclasses.replace(Bert.family.huggingface, names=NAMES)


@keras.saving.register_keras_serializable("extending")
class AgeBert(Bert):
    family = dataclasses.replace(Bert.family, heads=HEADS, huggingface=LAYOUT)


@keras.saving.register_keras_serializable("extending")
class AgeTask(Task):
    def __init__(self, backbone, tokenizer=None, **kwargs):
        super().__init__(backbone, tokenizer, **kwargs)
        self.age = self.backbone.make_head("age")
        self.build_now()

    def call(self, inputs):
        return self.age(self.backbone(inputs))

    def default_loss(self):
        return keras.losses.MeanSquaredError()


def test_own_head_and_task_learn_and_come_back(tmp_path):
    model = AgeTask(AgeBert(BertConfig(**SIZES), pooler=False))
    x, y = {"token_ids": random_ids(8, 7)}, (random_ids(8, 7)[:, 0] / 61).astype("float32")
    model.compile(keras.optimizers.Adam(1e-2))
    losses = model.fit(x, y, epochs=20, batch_size=8, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    model.save_to_preset(tmp_path / "age")
    again = kerasbert.load(tmp_path / "age")
    assert type(again) is AgeTask and type(again.backbone) is AgeBert
    np.testing.assert_array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))
