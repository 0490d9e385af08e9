"""Batches of several shapes reach every backend's trainer, wherever in a run it begins."""

import keras
import numpy as np
import pytest

from kerasbert.backend import seed_everything
from kerasbert.data import MixtureBatches, Seq2SeqBatches, Seq2SeqLayout, TaskBatches
from kerasbert.data.batches.bucketing import BucketedBatches, Widths
from kerasbert.models import Transformer, TransformerConfig
from kerasbert.objectives import Seq2SeqLM
from kerasbert.training import Checkpoints, adamw
from kerasbert.training.feed import Feed
from pipelines.recipes.phases import Phases

SIZE = dict(vocabulary_size=30, num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=16, dropout=0.0)
RNG = np.random.default_rng(0)


def sequences(lengths):
    return [RNG.integers(3, 30, length).astype("int32") for length in lengths]


# The first two of these buckets have targets of one width.
PAIRS = sequences([2, 2, 3, 3, 5, 5, 8, 9] * 3), sequences([4, 4, 4, 4, 4, 6, 7, 7] * 3)


def seq2seq(num_buckets=1, shuffle=True, length=None, **options):
    layout = Seq2SeqLayout(length, num_buckets=num_buckets, end_id=1)
    return Seq2SeqBatches(*PAIRS, batch_size=2, layout=layout, seed=0 if shuffle else None, **options)


def bucketed(**options):
    ids = RNG.integers(3, 30, (24, 20)).astype("int32")
    x = {"token_ids": ids, "lengths": RNG.integers(1, 20, 24).astype("int32")}
    y = RNG.integers(0, 2, 24).astype("int32")
    return BucketedBatches(x, y, batch_size=4, widths=Widths(least_steps=0.01), **options)


class Stop(keras.callbacks.Callback):
    """Ends a run behind `step` batches."""

    def __init__(self, step):
        super().__init__()
        self.step = self.left = step

    def on_train_begin(self, logs=None):
        self.left = self.step - self.model.initial_step

    def on_epoch_end(self, epoch, logs=None):
        self.left -= self.params["steps"]
        self.model.stop_training = self.left <= 0


def phases(shuffle):
    """Two steps of each of three lengths, the last of several."""
    return Phases([seq2seq(steps=2, length=3, num_buckets=1), seq2seq(steps=2, num_buckets=1), seq2seq(num_buckets=4)])


RUNS = {
    "seq2seq": lambda shuffle: seq2seq(shuffle=shuffle, num_buckets=4),
    "bucketed": lambda shuffle: bucketed(shuffle=shuffle, epochs=2),
    "phases": phases,
    "mixture": lambda shuffle: MixtureBatches(
        {"short": seq2seq(length=3, num_buckets=1), "long": seq2seq(num_buckets=1)},
        dict(short=9, long=1),
        batch_size=2,
        steps=30,
        by="batches",
    ),
    "tasks": lambda shuffle: TaskBatches({n: bucketed(shuffle=shuffle, seed=n) for n in (0, 1)}, batch_size=4),
}


@pytest.mark.one_backend
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_shape_steps_have_every_shape(run, shuffle):
    batches = RUNS[run](shuffle)

    def shapes(part, steps):
        found = [[array.shape[1:] for array in keras.tree.flatten(part[step])] for step in steps]
        return [set(sizes) for sizes in zip(*found, strict=True)]

    for part in (batches, batches.starting_at(1), batches.starting_at(3)):
        assert shapes(part, part.shape_steps()) == shapes(part, range(len(part)))
    assert any(len(sizes) > 1 for sizes in shapes(batches, batches.shape_steps()))


def test_evaluation_over_buckets_is_that_of_padded_rows():
    model = Seq2SeqLM(Transformer(TransformerConfig(**SIZE)))
    model.compile(adamw(1e-3))
    wide, cut = (model.evaluate(seq2seq(shuffle=False, num_buckets=n), return_dict=True, verbose=0) for n in (1, 4))
    assert cut["perplexity"] == pytest.approx(wide["perplexity"], rel=1e-4)


@pytest.mark.backends("jax", "torch")
@pytest.mark.parametrize("accumulation", [pytest.param(1, marks=pytest.mark.one_backend), 2])
def test_training_over_widths_goes_on_in_the_middle_of_a_pass(tmp_path, accumulation):
    """Four updates in one go, and in two, the second of which begins with two batches of other shapes."""
    found = []
    for parts in ([4], [2, 4]):
        for stop in parts:
            seed_everything(0)
            model = Seq2SeqLM(Transformer(TransformerConfig(**SIZE)))
            model.compile(adamw(1e-2, accumulation=accumulation))
            batches = seq2seq(num_buckets=4, steps=4).accumulated(accumulation)
            callbacks = [Checkpoints(tmp_path / str(len(parts)), keep=1), Stop(stop * accumulation)]
            model.fit(batches, steps_per_epoch=2 * accumulation, callbacks=callbacks, verbose=0)
        found.append([keras.ops.convert_to_numpy(weight) for weight in model.trainable_weights])
    assert model.optimizer.iterations == 4
    for whole, resumed in zip(*found, strict=True):
        np.testing.assert_array_equal(whole, resumed)


@pytest.mark.backends("tensorflow")
def test_the_end_of_an_epoch_does_not_wait_for_the_tuner_of_the_dataset():
    dataset = Feed(seq2seq(), 2, lambda *batch: None).for_keras()
    assert dataset.options().autotune.enabled is False and len(list(dataset)) == 2


@pytest.mark.one_backend
def test_the_order_is_the_users(monkeypatch):
    """`shuffle=False` keeps it in every epoch, and `initial_epoch` leaves out the epochs before it."""
    model = Seq2SeqLM(Transformer(TransformerConfig(**SIZE)))
    model.compile("sgd")
    runs, make = [], model._batches
    monkeypatch.setattr(model, "_batches", lambda *args, **options: runs.append(make(*args, **options)) or runs[-1])
    ids = np.arange(4, 16, dtype="int32").reshape(6, 2)
    x, y = {"token_ids": ids, "decoder_token_ids": ids}, ids
    model.fit(x, y, batch_size=2, epochs=2, shuffle=False, verbose=0)
    model.fit(x, y, batch_size=2, epochs=2, verbose=0)
    kept, shuffled = ([batch["token_ids"][0, 0] for batch, *_ in run] for run in runs)
    assert kept == [4, 8, 12, 4, 8, 12] != shuffled
    steps = model.optimizer.iterations + 0
    history = model.fit(x, y, batch_size=2, epochs=3, initial_epoch=1, verbose=0)
    assert history.epoch == [1, 2] and model.optimizer.iterations - steps == 6
    with pytest.raises(ValueError, match="needs texts or arrays, and must be in .0, 2.. Received: 2"):
        model.fit(x, y, epochs=2, initial_epoch=2, verbose=0)
