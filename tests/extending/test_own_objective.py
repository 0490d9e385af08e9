"""A new objective with a new corruption: find where the token that was moved to the front of the row came from."""

import keras
import numpy as np

import kerasbert
from kerasbert.data import Batches
from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import Objective
from tests.extending.small import SIZES


class MovedTokenBatches(Batches):
    """Rows of ascending ids, one of which has been moved to the front; y: the place that it came from."""

    def __init__(self, batch_size, length, steps, seed=0):
        self.length = length
        super().__init__(batch_size, steps, seed)

    def _rows(self, update, first, last):
        random = np.random.default_rng([self.seed, update])
        places = random.integers(1, self.length, self.batch_size)[first:last]
        rows = np.arange(10, 10 + self.length) + np.zeros((len(places), 1), int)
        moved = np.stack(
            [np.insert(np.delete(row, place), 0, row[place]) for row, place in zip(rows, places, strict=True)]
        )
        return {"token_ids": moved.astype("int32")}, places.astype("int32"), np.ones(len(places), "float32")


@keras.saving.register_keras_serializable("extending")
class MovedToken(Objective):
    def __init__(self, backbone, tokenizer=None, **kwargs):
        super().__init__(backbone, tokenizer, **kwargs)
        self.tagger = self.backbone.make_head("tagger", num_labels=1)
        self.build_now()

    def call(self, inputs):
        return self.tagger(self.backbone(inputs))[..., 0]

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        losses = keras.ops.sparse_categorical_crossentropy(y, y_pred, from_logits=True)
        return self.mean_loss(x, losses, keras.ops.cast(sample_weight, "float32"))


def test_own_objective_learns_and_comes_back(tmp_path):
    model = MovedToken(Bert(BertConfig(**SIZES), pooler=False))
    model.compile(keras.optimizers.Adam(5e-3))
    batches = MovedTokenBatches(32, 8, steps=60)
    first = model.evaluate(batches, verbose=0)
    model.fit(batches, verbose=0)
    assert abs(first - np.log(8)) < 0.5 and model.evaluate(batches, verbose=0) < 0.5 * np.log(7)
    model.save_to_preset(tmp_path / "moved")
    again = kerasbert.load(tmp_path / "moved")
    x, _, _ = batches[0]
    assert type(again) is MovedToken
    np.testing.assert_array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))
