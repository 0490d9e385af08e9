"""Models that were created in the scope of a `tf.distribute` strategy, and trained outside of it."""

import keras
import numpy as np
import pytest

from kerasbert.models import Bert, BertConfig
from kerasbert.tasks import TextClassifier

pytestmark = pytest.mark.backends("tensorflow")

SIZES = dict(vocabulary_size=40, num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=12, max_length=8)
X = {"token_ids": np.arange(4, 36, dtype="int32").reshape(8, 4), "padding_mask": np.arange(4) < np.full((8, 1), 3)}
Y = np.arange(8) % 2


def trained(compiles):
    keras.utils.set_random_seed(0)
    model = TextClassifier(Bert(BertConfig(**SIZES, initializer_range=0.3, dropout=0.0)), labels=2)
    if compiles:
        model.compile(keras.optimizers.Adam(0.01))
    return model


@pytest.mark.parametrize("compiles", [True, False])
def test_a_model_of_a_strategy_is_trained_outside_its_scope(compiles):
    import tensorflow as tf

    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = trained(compiles)
    found = model.fit(X, Y, epochs=2, shuffle=False, verbose=0).history["loss"]
    expected = trained(compiles).fit(X, Y, epochs=2, shuffle=False, verbose=0).history["loss"]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        untrained = trained(False)
    untrained.evaluate(X, Y, verbose=0)
    assert untrained.compiled
