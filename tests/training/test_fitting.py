"""`prepare` is called before data are read, by every method that reads them."""

import keras
import numpy as np
import pytest

from kerasbert.data import ExampleBatches
from kerasbert.models import Bert, BertConfig
from kerasbert.objectives import MaskedLM
from kerasbert.training import Checkpoints
from kerasbert.training.sources import first_batch

SIZES = dict(vocabulary_size=31, num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=12, max_length=16)
RNG = np.random.default_rng(0)


class Calls(keras.layers.Layer):
    """The number of calls for each row of a batch; never called itself, so that variables can still be added."""

    def start(self, rows, training):
        name = f"calls_{training}"
        if hasattr(self, name):
            assert getattr(self, name).shape == (rows,)
        else:
            options = dict(shape=(rows,), dtype="int32", trainable=False, initializer="zeros", name=name)
            setattr(self, name, self.add_weight(**options))

    def increase(self, token_ids, training):
        calls = getattr(self, f"calls_{training}", None)
        if calls is not None:
            # The count depends on the batch because TensorFlow only learns that a generator has ended when it reads the
            # next batch, after it has executed all that does not depend on one.
            calls.assign(calls + keras.ops.cast(token_ids[0, 0] >= 0, "int32"))

    def values(self):
        found = {training: getattr(self, f"calls_{training}", None) for training in (True, False)}
        return {key: keras.ops.convert_to_numpy(value).tolist() for key, value in found.items() if value is not None}


class CountingLM(MaskedLM):
    def __init__(self, backbone, **kwargs):
        super().__init__(backbone, **kwargs)
        self.prepared = []

    def build_now(self):
        self.calls = Calls(name="calls")
        super().build_now()

    def prepare(self, batches, training):
        (inputs, *_), batches = first_batch(batches)
        self.prepared.append((training, len(inputs["token_ids"])))
        self.calls.start(len(inputs["token_ids"]), training)
        return batches

    def call(self, inputs, training=False):
        self.calls.increase(inputs["token_ids"], bool(training))
        return super().call(inputs)


def model_of():
    model = CountingLM(Bert(BertConfig(**SIZES), pooler=False))
    model.compile(keras.optimizers.SGD(0.1))
    return model


def examples(count):
    ids = RNG.integers(0, 31, (count, 5)).astype("int32")
    return {"token_ids": ids}, ids


class Dataset(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return examples(4)


def batches(count, rows=4):
    return (examples(rows) for _ in range(count))


# name: (a call, what `prepare` receives, calls per row while training and while evaluating)
READERS = {
    "fit": (lambda m: m.fit(*examples(12), batch_size=4, verbose=0), [(True, 4)], {True: [3] * 4}),
    "fit on Batches": (lambda m: m.fit(ExampleBatches(*examples(12), batch_size=4), verbose=0), [(True, 4)], None),
    "fit on a PyDataset": (lambda m: m.fit(Dataset(), verbose=0), [(True, 4)], None),
    "fit on a generator": (lambda m: m.fit(batches(3), steps_per_epoch=3, verbose=0), [(True, 4)], {True: [3] * 4}),
    "validation": (
        lambda m: m.fit(*examples(8), batch_size=2, epochs=2, validation_data=examples(6), verbose=0),
        [(True, 2), (False, 2)],
        {True: [8] * 2, False: [6] * 2},
    ),
    "validation on a generator": (
        lambda m: m.fit(batches(2), validation_data=batches(3, rows=3), steps_per_epoch=2, verbose=0),
        [(True, 4), (False, 3)],
        {True: [2] * 4, False: [3] * 3},
    ),
    "evaluate": (lambda m: m.evaluate(*examples(12), batch_size=4, verbose=0), [(False, 4)], {False: [3] * 4}),
    "evaluate a generator": (lambda m: m.evaluate(batches(3), verbose=0), [(False, 4)], {False: [3] * 4}),
    "predict": (lambda m: m.predict(examples(12)[0], batch_size=4, verbose=0), [(False, 4)], {False: [3] * 4}),
    "predict a generator": (lambda m: m.predict(batches(3), verbose=0), [(False, 4)], {False: [3] * 4}),
    "train_on_batch": (lambda m: m.train_on_batch(*examples(4)), [(True, 4)], {True: [1] * 4}),
    "test_on_batch": (lambda m: m.test_on_batch(*examples(4)), [(False, 4)], {False: [1] * 4}),
    "predict_on_batch": (lambda m: m.predict_on_batch(examples(4)[0]), [(False, 4)], {False: [1] * 4}),
    "an eager call": (lambda m: m(examples(4)[0]), [(False, 4)], {False: [1] * 4}),
    "an eager call in training": (lambda m: m(examples(4)[0], training=True), [(True, 4)], {True: [1] * 4}),
}


@pytest.mark.one_backend
@pytest.mark.parametrize("name", READERS)
def test_all_readers_prepare(name):
    read, prepared, calls = READERS[name]
    model = model_of()
    model.prepared.clear()
    read(model)
    assert list(dict.fromkeys(model.prepared)) == prepared
    assert calls is None or model.calls.values() == calls


@pytest.mark.one_backend
def test_a_checkpoint_restores_what_was_prepared(tmp_path):
    data = ExampleBatches(*examples(12), batch_size=4)
    for epochs in (1, 2):
        model = model_of()
        run = ExampleBatches(data.x, data.y, batch_size=4, epochs=epochs)
        options = dict(steps_per_epoch=3, validation_data=examples(6), verbose=0)
        model.fit(run, callbacks=[Checkpoints(tmp_path)], **options)
    assert model.calls.values()[True] == [6] * 4


@pytest.mark.one_backend
def test_only_tensorflow_decides_on_xla_by_the_size_of_the_model(monkeypatch):
    monkeypatch.setattr("kerasbert.training.programs.JIT_FROM", 1)
    model = MaskedLM(Bert(BertConfig(**SIZES)))
    model.compile("sgd")
    assert model.jit_compile == (keras.backend.backend() != "torch")


class FailingLM(MaskedLM):
    fails = True

    def compute_loss(self, *args, **kwargs):
        if self.fails:
            raise ValueError("This batch is wrong.")
        return super().compute_loss(*args, **kwargs)


class Interrupts(keras.callbacks.Callback):
    """Ctrl-C after a step."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_test_batch_end(self, batch, logs=None):
        if batch == self.step:
            raise KeyboardInterrupt

    on_predict_batch_end = on_train_batch_end = on_test_batch_end


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
@pytest.mark.parametrize("step", [0, 2])
def test_an_interrupted_run_loses_no_weights(method, step):
    model = MaskedLM(Bert(BertConfig(**SIZES)))
    model.compile(keras.optimizers.SGD(0.0))
    x = {"token_ids": RNG.integers(5, 31, (8, 6)).astype("int32")}
    before, data = model.get_weights(), (x,) if method == "predict" else (x, x["token_ids"])
    with pytest.raises(KeyboardInterrupt):
        getattr(model, method)(*data, batch_size=2, verbose=0, callbacks=[Interrupts(step)])
    assert all(np.array_equal(old, new) for old, new in zip(before, model.get_weights(), strict=True))
    assert np.isfinite(model.evaluate(x, x["token_ids"], batch_size=2, verbose=0)).all()


@pytest.mark.one_backend
@pytest.mark.parametrize(
    "options, message",
    [
        (dict(epochs=0), "`epochs` must be an integer of at least 1. Received: 0"),
        (dict(epochs=1.5), "`epochs` must be an integer of at least 1. Received: 1.5"),
        (dict(epochs="3"), "`epochs` must be an integer of at least 1. Received: '3'"),
        (dict(epochs=True), "`epochs` must be an integer of at least 1. Received: True"),
        (dict(batch_size=0), "`batch_size` must be an integer of at least 1. Received: 0"),
        (dict(initial_epoch=0.5), "`initial_epoch` must be an integer of at least 0. Received: 0.5"),
        (dict(steps_per_epoch=2), "one pass over them.*Received: steps_per_epoch=2"),
        (dict(validation_split=float("nan")), "`validation_split` must leave examples in both parts. Received: nan"),
        (dict(validation_split="half"), "`validation_split` must leave examples in both parts. Received: half"),
        (dict(validation_data=0, validation_split=0.5), "`validation_data` or `validation_split`. Received: both"),
        (dict(validation_data=(0, 0, 0, 0)), "or \\(x, y, sample_weight\\). Received: a tuple of 4"),
        (dict(sample_weight=np.zeros(8)), "a weight above 0. Received: 0 for all"),
        (dict(epoch=3), "`fit` has no argument `epoch`. Did you mean epochs?"),
        (dict(learning_rate=1e-3), "`fit` has no argument `learning_rate`. It has batch_size"),
    ],
)
def test_arguments_of_fit_that_are_refused(options, message):
    model = MaskedLM(Bert(BertConfig(**SIZES)))
    x = {"token_ids": RNG.integers(5, 31, (8, 6)).astype("int32")}
    y = x["token_ids"]
    if "validation_data" in options:
        options = {**options, "validation_data": (x, y, None, None)[: 2 if "validation_split" in options else 4]}
    before = model.get_weights()
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(x, y, verbose=0, **options)
    assert all(np.array_equal(old, new) for old, new in zip(before, model.get_weights(), strict=True))


@pytest.mark.parametrize("method", ["fit", "evaluate"])
def test_an_error_in_the_first_step_loses_no_weights(method):
    model = FailingLM(Bert(BertConfig(**SIZES)))
    model.compile(keras.optimizers.SGD(0.1))
    x = {"token_ids": RNG.integers(5, 31, (4, 6)).astype("int32")}
    before = model.get_weights()
    with pytest.raises(ValueError, match="This batch is wrong"):
        getattr(model, method)(x, x["token_ids"], batch_size=2, verbose=0)
    assert all(np.array_equal(old, new) for old, new in zip(before, model.get_weights(), strict=True))
    model.fails = False
    assert np.isfinite(model.fit(x, x["token_ids"], batch_size=2, verbose=0).history["loss"]).all()
