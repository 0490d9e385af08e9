"""Batches of several shapes reach every backend's trainer, wherever in a run it begins."""

import keras
import numpy as np
import pytest

from kerasbert.backend import seed_everything
from kerasbert.data import Seq2SeqBatches
from kerasbert.data.bucketing import BucketedBatches
from kerasbert.models import Transformer, TransformerConfig
from kerasbert.objectives import Seq2SeqLM
from kerasbert.training import Checkpoints, adamw

SIZE = dict(vocabulary_size=30, num_layers=1, num_heads=2, hidden_dim=8, feed_forward_dim=16, dropout=0.0)
RNG = np.random.default_rng(0)


def sequences(lengths):
    return [RNG.integers(3, 30, length).astype("int32") for length in lengths]


# The first two of these buckets have targets of one width.
PAIRS = sequences([2, 2, 3, 3, 5, 5, 8, 9] * 3), sequences([4, 4, 4, 4, 4, 6, 7, 7] * 3)


def seq2seq(**options):
    return Seq2SeqBatches(*PAIRS, batch_size=2, end_id=1, **options)


def bucketed(**options):
    ids = RNG.integers(3, 30, (24, 20)).astype("int32")
    x = {"token_ids": ids, "lengths": RNG.integers(1, 20, 24).astype("int32")}
    y = RNG.integers(0, 2, 24).astype("int32")
    return BucketedBatches(x, y, batch_size=4, steps_per_width=1, **options)


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


@pytest.mark.parametrize("make", [seq2seq, bucketed])
@pytest.mark.parametrize("shuffle", [False, True])
def test_shape_steps_have_every_shape(make, shuffle):
    batches = make(shuffle=shuffle, num_buckets=4) if make is seq2seq else make(shuffle=shuffle, epochs=2)

    def shapes(part, steps):
        return {tuple(array.shape for array in keras.tree.flatten(part[step])) for step in steps}

    for part in (batches, batches.starting_at(1)):
        steps = part.shape_steps()
        assert len(steps) == len(shapes(part, steps)) > 1
        assert shapes(part, steps) == shapes(part, range(len(part)))


def test_evaluation_over_buckets_is_that_of_padded_rows():
    model = Seq2SeqLM(Transformer(TransformerConfig(**SIZE)))
    model.compile(adamw(1e-3))
    wide, cut = (model.evaluate(seq2seq(shuffle=False, num_buckets=n), return_dict=True, verbose=0) for n in (1, 4))
    assert cut["perplexity"] == pytest.approx(wide["perplexity"], rel=1e-4)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_training_over_widths_goes_on_in_the_middle_of_a_pass(tmp_path, accumulation):
    """Four updates in one go, and in two, the second of which begins with two batches of other shapes."""
    found = []
    for parts in ([4], [2, 4]):
        for stop in parts:
            seed_everything(0)
            model = Seq2SeqLM(Transformer(TransformerConfig(**SIZE)))
            model.compile(adamw(1e-2, accumulation=accumulation))
            batches = seq2seq(num_buckets=4, steps=4, accumulation=accumulation)
            callbacks = [Checkpoints(tmp_path / str(len(parts)), keep=1), Stop(stop * accumulation)]
            model.fit(batches, steps_per_epoch=2 * accumulation, callbacks=callbacks, verbose=0)
        found.append([keras.ops.convert_to_numpy(weight) for weight in model.trainable_weights])
    assert model.optimizer.iterations == 4
    for whole, resumed in zip(*found, strict=True):
        np.testing.assert_array_equal(whole, resumed)
