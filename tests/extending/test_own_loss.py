"""A loss for embedders is one class: it trains, in chunks too, says which data it needs, and is saved and loaded."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

import kerasbert
from kerasbert.models import Bert, BertConfig
from kerasbert.retrieval import Loss, Matryoshka
from kerasbert.tasks import TextEmbedder
from tests.extending.small import SIZES, random_ids


@dataclasses.dataclass(frozen=True)
class HuberLoss(Loss):
    """Like the squared error of the cosine similarity, but linear for errors above `bound`."""

    bound: float = 0.5

    max_texts = 2
    targets = "scores"

    def call(self, vectors, labels, step):
        u, v = (ops.normalize(vector, axis=-1) for vector in vectors)
        error = ops.abs(ops.sum(u * v, axis=-1) - labels)  # pyright: ignore
        near, far = ops.square(error) / 2, self.bound * (error - self.bound / 2)  # pyright: ignore
        return step.mean(ops.where(error < self.bound, near, far))  # pyright: ignore


@pytest.mark.parametrize(
    "objective", [HuberLoss(0.25, chunk=4), Matryoshka(HuberLoss(), (24, 8))], ids=["own", "inside"]
)
def test_own_loss_learns_and_comes_back(objective, tmp_path):
    model = TextEmbedder(Bert(BertConfig(**SIZES, attention_dropout=0.0), pooler=False), objective=objective)
    x, y = {"token_ids": np.stack([random_ids(8, 7, seed) for seed in (0, 1)], axis=1)}, np.linspace(-1, 1, 8)
    model.compile(keras.optimizers.Adam(1e-2))
    losses = model.fit(x, y.astype("float32"), epochs=25, batch_size=8, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    model.save_to_preset(tmp_path / "own")
    again = kerasbert.load(tmp_path / "own")
    assert again.objective == objective
    np.testing.assert_array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))


def test_own_loss_says_what_it_needs():
    assert HuberLoss(0.25).config() == {"name": "HuberLoss", "bound": 0.25}
    with pytest.raises(ValueError, match="`bound` in HuberLoss must be float. Received: 'x'"):
        HuberLoss("x")  # pyright: ignore
    with pytest.raises(ValueError, match="HuberLoss needs 2 texts per example. Received: 3"):
        HuberLoss()([np.ones((2, 3), "float32")] * 3)
