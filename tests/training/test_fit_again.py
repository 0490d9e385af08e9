"""A second `fit`, and the learning rate that a user sets."""

import keras
import numpy as np
import pytest

from kerasbert.data.batches.batches import ExampleBatches
from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import MaskedLM
from kerasbert.tasks import TextClassifier
from kerasbert.training import Checkpoints, WarmupDecay, adamw, programs

RNG = np.random.default_rng(0)
X = {"token_ids": RNG.integers(3, 61, (8, 5)).astype("int32")}
Y = np.arange(8, dtype="int32") % 2


def make_model(cls=TextClassifier, dtype=None, **options):
    sizes = dict(vocabulary_size=61, num_layers=1, num_heads=3, hidden_dim=12, feed_forward_dim=20, max_length=8)
    config = BertConfig(**sizes, dropout=0.0, attention_dropout=0.0)
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


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "options", [{}, {"loss": "sparse_categorical_crossentropy", "metrics": ["sparse_categorical_crossentropy"]}]
)
def test_compile_without_an_optimizer_takes_the_default_one(options, tmp_path):
    """It is that of a fit without `compile`, starts again in each fit, and leaves losses and metrics as they are."""
    plain, model = make_model(), make_model()
    model.set_weights(plain.get_weights())
    model.compile(**options)
    for epochs in (1, 2):
        for each in (plain, model):
            history = each.fit(X, Y, batch_size=2, epochs=epochs, verbose=0).history
            assert rate(each) == 0 and each.optimizer.schedule.steps == 4 * epochs
        np.testing.assert_allclose(weights(model), weights(plain), atol=1e-7)
        assert set(history) == {"loss", *options.get("metrics", ["accuracy"])}
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    history = again.fit(X, Y, batch_size=4, epochs=3, verbose=0).history
    assert set(history) == {"loss", *options.get("metrics", ["accuracy"])} and again.optimizer.schedule.steps == 6


@pytest.mark.one_backend
def test_a_loss_of_the_user_is_kept_when_fit_chooses_the_optimizer():
    model = make_model()
    model.compile(loss=lambda y, logits: 0.0 * logits[:, 0] + 7.0)
    assert model.fit(X, Y, batch_size=2, verbose=0).history["loss"] == [7.0]


class Programs(keras.callbacks.Callback):
    """Records the training programs of a model, one for each `fit`."""

    def __init__(self):
        super().__init__()
        self.found = []

    def on_train_begin(self, logs=None):
        self.found.append(self.model.train_function)


def programs_of(model, *fits):
    watch = Programs()
    for change, options in fits:
        change()
        model.fit(X, Y, batch_size=2, verbose=0, callbacks=[watch], **options)
    return [program is watch.found[0] for program in watch.found]


def test_the_program_of_a_fit_serves_the_next_one():
    """The schedule, which is part of the program, starts again with other numbers."""
    model = make_model()
    assert programs_of(model, (int, {}), (int, {}), (int, {"epochs": 3})) == [True, True, True]
    assert model.optimizer.iterations == 12 and model.optimizer.schedule.steps == 12 and rate(model) == 0


def test_a_fit_again_equals_the_fit_of_a_new_model():
    """Moments, counter, loss scale and rate start anew."""
    for dtype in (None, "mixed_float16") if keras.backend.backend() == "torch" else ("mixed_float16",):
        model = make_model(dtype=dtype)
        moved(model)
        other = make_model(dtype=dtype)
        other.set_weights(model.get_weights())
        for each in (model, other):
            moved(each, epochs=2)
        np.testing.assert_allclose(weights(model), weights(other), rtol=1e-6, atol=1e-8)
        for ours, theirs in zip(model.optimizer.variables, other.optimizer.variables, strict=True):
            ours, theirs = (keras.ops.convert_to_numpy(variable) for variable in (ours, theirs))
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-9)


def test_a_program_is_not_used_for_a_model_that_has_changed():
    model = make_model()
    dense = model.backbone.blocks[0]
    frozen = keras.ops.convert_to_numpy(dense.trainable_variables[0])

    def freeze():
        dense.trainable = False

    def flatten():
        model.backbone.embedding_norm.epsilon = 0.5

    def hurry():
        model.default_learning_rate = 0.25

    changes = [(int, {}), (flatten, {}), (freeze, {}), (hurry, {})]
    assert programs_of(model, *changes[:1]) == [True]
    before = keras.ops.convert_to_numpy(dense.variables[0])
    assert np.abs(before - frozen).max() > 1e-7
    assert programs_of(model, (int, {}), *changes[1:]) == [True, False, False, False]
    after = programs_of(model, (int, {}), (int, {}))
    assert after == [True, True] and model.optimizer.schedule.peak == 0.25
    assert len(model.optimizer.variables) < 3 + 2 * len(model.variables)


def test_a_fit_after_one_that_failed():
    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise RuntimeError("stopped by the test")

    model = make_model()
    with pytest.raises(RuntimeError, match="stopped by the test"):
        model.fit(X, Y, batch_size=2, verbose=0, callbacks=[Fails()])
    assert moved(model) > 1e-6 and model.optimizer.iterations == 4


@pytest.mark.one_backend
def test_a_checkpoint_does_not_bring_back_the_schedule_of_a_shorter_run(tmp_path):
    data = ExampleBatches(X, Y, batch_size=2)
    model = make_model()
    model.fit(data, verbose=0, steps_per_epoch=2, callbacks=[Checkpoints(tmp_path)])
    longer = make_model()
    longer.fit(
        ExampleBatches(X, Y, batch_size=2, epochs=2), verbose=0, steps_per_epoch=2, callbacks=[Checkpoints(tmp_path)]
    )
    assert longer.optimizer.schedule.steps == 8 and longer.optimizer.iterations == 8
    numbers = [v for v in longer.optimizer.variables if v.name == "schedule"]
    np.testing.assert_allclose(keras.ops.convert_to_numpy(numbers[0]), [3e-4, 0, 8])


@pytest.mark.backends("jax", "tensorflow")
def test_short_and_long_runs_have_programs_of_their_own(monkeypatch):
    """A short run compiles fast. Many short runs count as a long one, except for runs that can be resumed."""
    monkeypatch.setattr("kerasbert.training.programs.JIT_FROM", 1)
    model = make_model()
    model.compile(adamw(1e-4))
    factor = programs.XLA_TOKENS if keras.backend.backend() == "tensorflow" else programs.OPTIMIZED_TOKENS
    monkeypatch.setattr(programs, "program_tokens", lambda model: 2.5 * X["token_ids"].size / factor)
    fits = [(int, {})] * 4
    assert programs_of(model, *fits) == [True, True, False, False]
    assert model.jit_compile or keras.backend.backend() == "jax"
    model.compile(adamw(1e-4))
    assert programs_of(model, (int, {"epochs": 3})) == [True] and model._is_long


@pytest.mark.backends("tensorflow")
def test_tensorflow_traces_a_training_step_once(monkeypatch):
    traced = []
    train_step = TextClassifier.train_step
    monkeypatch.setattr(TextClassifier, "train_step", lambda self, data: traced.append(1) or train_step(self, data))
    moved(make_model())
    assert traced == [1]


@pytest.mark.backends("jax", "tensorflow")
def test_only_the_first_fit_says_that_it_compiles(capsys):
    model = make_model()
    for expected in (1, 0):
        model.fit(X, Y, batch_size=2)
        assert capsys.readouterr().out.count("compiling 1 program during the first steps") == expected
