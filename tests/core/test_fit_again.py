"""A second `fit`, and the learning rate that a user sets."""

import keras
import numpy as np
import pytest

from kerasbert.data.batches.batches import ExampleBatches
from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TextClassifier
from kerasbert.training import WarmupDecay, adamw

RNG = np.random.default_rng(0)
X = {"token_ids": RNG.integers(3, 61, (8, 5)).astype("int32")}
Y = np.arange(8, dtype="int32") % 2


def make_model(cls=TextClassifier, dtype=None, **options):
    config = BertConfig(
        vocabulary_size=61, num_layers=1, num_heads=3, hidden_dim=12, feed_forward_dim=20, max_length=8, dropout=0.0
    )
    return cls(Bert(config, dtype=dtype), **options)


def weights(model):
    return np.concatenate([np.ravel(keras.ops.convert_to_numpy(v)) for v in model.trainable_variables])


def moved(model, **options):
    """How far the weights go in a `fit` of four steps."""
    before = weights(model)
    model.fit(X, Y, batch_size=2, verbose=0, **options)
    return float(np.abs(weights(model) - before).max())


def rate(model):
    return float(keras.ops.convert_to_numpy(model.optimizer.learning_rate))


def test_fit_again_starts_a_new_schedule(tmp_path):
    model = make_model()
    assert moved(model) > 1e-6 and rate(model) == 0
    assert moved(model) > 1e-6 and rate(model) == 0
    model.save(tmp_path / "model.keras")
    assert moved(keras.saving.load_model(tmp_path / "model.keras")) > 1e-6
    assert moved(model, epochs=2) > 1e-6
    assert model.optimizer.iterations == 8


@pytest.mark.one_backend
def test_texts_and_objectives_too():
    model = make_model(MaskedLM)
    batches = ExampleBatches(X, X["token_ids"], batch_size=4)
    for _ in range(2):
        before = weights(model)
        model.fit(batches, verbose=0)
        assert np.abs(weights(model) - before).max() > 1e-6


@pytest.mark.one_backend
@pytest.mark.parametrize("dtype", [None, "mixed_float16"])
def test_a_rate_that_is_set_replaces_the_schedule(dtype):
    model = make_model(dtype=dtype)
    moved(model)
    model.optimizer.learning_rate = 0.25
    assert rate(model) == 0.25
    assert moved(model) > 1e-2 and rate(model) == 0.25
    model.optimizer.learning_rate = 0.0
    assert moved(model) == 0


@pytest.mark.one_backend
def test_a_rate_can_be_set_before_and_within_a_fit():
    """Keras's callback sets it before every epoch, in a program that is compiled already."""
    model = make_model()
    model.compile(adamw(1e-3, warmup=2, steps=100, clip_norm=None, weight_decay=0.0))
    model.optimizer.learning_rate = 0.0
    assert moved(model) == 0
    rates, found = [0.0, 1e-2, 0.0], []

    class Watch(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            found.append(weights(model))

    schedule = keras.callbacks.LearningRateScheduler(lambda epoch: rates[epoch])
    start = weights(model)
    model.fit(X, Y, batch_size=2, epochs=3, verbose=0, callbacks=[schedule, Watch()])
    np.testing.assert_array_equal(found[0], start)
    assert np.abs(found[1] - found[0]).max() > 1e-3
    np.testing.assert_array_equal(found[2], found[1])


@pytest.mark.one_backend
def test_a_constant_rate_is_set_as_in_keras():
    model = make_model()
    model.compile(adamw(1e-2, weight_decay=0.0))
    assert moved(model) > 1e-4
    model.optimizer.learning_rate = 0.0
    assert moved(model) == 0


@pytest.mark.one_backend
def test_another_schedule_takes_the_place_of_the_first():
    model = make_model()
    model.compile(adamw(1e-2, steps=4))
    assert moved(model) > 1e-4
    model.optimizer.learning_rate = WarmupDecay(0.5, 0, 1_000)
    assert rate(model) == pytest.approx(0.5 * 0.996) and moved(model) > 0.05
    assert model.optimizer.get_config()["learning_rate"]["config"]["peak"] == 0.5


@pytest.mark.one_backend
def test_a_schedule_that_has_ended_is_a_warning():
    model = make_model()
    model.compile(adamw(1e-2, warmup=1, steps=4))
    assert moved(model) > 1e-4
    before = weights(model)
    with pytest.warns(UserWarning, match="that has ended, with a rate of 0 from update 4 on. Compile"):
        moved(model)
    np.testing.assert_array_equal(weights(model), before)
    model.optimizer.learning_rate = 1e-2
    assert moved(model) > 1e-4


@pytest.mark.one_backend
def test_a_rate_below_0_is_refused():
    optimizer = adamw(1e-2, steps=4)
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="`learning_rate` must be at least 0"):
            optimizer.learning_rate = wrong
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert again.schedule.steps == 4 and again.get_config() == optimizer.get_config()


@pytest.mark.one_backend
def test_evaluation_of_a_fresh_model():
    model = make_model()
    found = model.evaluate(X, Y, verbose=0, return_dict=True)
    assert set(found) == {"loss", "accuracy"}
    before = weights(model)
    np.testing.assert_array_equal(weights(model), before)
    assert moved(model) > 1e-6 and rate(model) == 0
    assert set(make_model(MaskedLM).evaluate(X, X["token_ids"], verbose=0, return_dict=True)) >= {"loss", "perplexity"}
