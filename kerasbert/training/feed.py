"""The dataset from which Keras reads the steps of a run, epoch by epoch."""

import keras
import numpy as np

from ..backend.datasets import reads_data, tensorflow_dataset
from ..backend.distribution import check_rows, host_share
from ..backend.hosts import total


class Feed(keras.utils.PyDataset):
    """A Keras dataset for one epoch, which consists of steps `first` to `first + steps - 1` of a run.

    If several processes train together, each reads its rows of every batch.

    Args:
        batches: the `Batches` of the run.
        steps: number of steps in an epoch.
        check: function that is called with the arrays of each batch, (x, y, sample_weight), and raises a ValueError if
            they are invalid.
    """

    def __init__(self, batches, steps, check):
        super().__init__()
        index, self.hosts = host_share()
        self.batches = batches.shard(index, self.hosts) if self.hosts > 1 else batches
        self.steps = steps
        self.check = check
        self._totals = {}
        self.start(0)

    def start(self, first):
        """Moves to the epoch that starts at step `first`, and creates its first batch at once.

        On JAX, Keras removes the weights from a model before it requests the first batch of an epoch. If that batch
        caused an error, the model would be left without weights.
        """
        self.first = first
        self._tokens = {}
        self._first_batch = self._checked(first) if first < len(self.batches) else None

    def for_keras(self):
        """The dataset to pass to Keras. On TensorFlow, it is a `tf.data` dataset that knows all shapes of the run."""
        if keras.backend.backend() != "tensorflow":
            return self
        return tensorflow_dataset(self, [self._checked(step) for step in self.batches.shape_steps()])

    def __len__(self):
        return self.steps

    @reads_data
    def __getitem__(self, index):
        return self._first_batch if index == 0 else self._checked(self.first + index)

    @property
    def tokens(self):
        """Number of tokens in the whole run, estimated from those of a step, as `tokens_per_step` counts them."""
        return len(self.batches) * self.batches.tokens_per_step

    @property
    def num_widths(self):
        """Number of different widths of the batches, of which each needs a compiled program."""
        return len(getattr(self.batches, "widths", [None]))

    def real_tokens(self, first, last):
        """Number of tokens in the steps [first, last) of the run, without padding.

        Steps outside the current epoch are not counted. If several processes train together, it is exact after
        `count_tokens`, and an estimate before.
        """
        estimate = self.hosts * sum(self._tokens.get(step, 0) for step in range(first, last))
        return self._totals.get((first, last), estimate)

    def count_tokens(self, last):
        """Counts the tokens of the current epoch before step `last` in the rows of all processes."""
        if self.hosts > 1:
            tokens = sum(self._tokens.get(step, 0) for step in range(self.first, last))
            self._totals[self.first, last] = total([tokens])[0]

    def _checked(self, step):
        batch = self.batches[step]
        self.check(*batch)
        check_rows(self.hosts * len(keras.tree.flatten(batch)[0]))
        self._tokens[step] = real_tokens(batch[0])
        return tuple(array for array in batch if array is not None)  # TensorFlow does not accept None


def tokens_of(dataset):
    """Number of tokens in a `Feed` or another dataset: 0 for None, and infinity if it is unknown."""
    return 0 if dataset is None else dataset.tokens if isinstance(dataset, Feed) else float("inf")


_CHECKED_STEPS = 20


def _has_targets(batch):
    """Whether a token of a batch with masked tokens is to be predicted. Other batches count as having targets."""
    x = batch[0]
    return (
        not isinstance(x, dict) or "masked_positions" not in x or bool((np.asarray(x["masked_positions"]) >= 0).any())
    )


def feed_of(model, batches, steps):
    """Returns the `Feed` from which a model reads `Batches`.

    Raises: ValueError if the ids of a corpus stand for other tokens than those of the model's tokenizer, or if no token
        of the run is to be predicted.
    """
    for corpus in batches.corpora() if model.tokenizer is not None else ():
        corpus.check_vocabulary(model.tokenizer)
    seen = min(len(batches), _CHECKED_STEPS)
    if seen and not any(_has_targets(batches[step]) for step in range(seen)):
        raise ValueError(
            f"A run must have targets. Received: {seen} steps without any token to predict. Use another masking rule, "
            "a higher rate, or longer rows: words with more tokens than a row may predict are never masked."
        )
    return Feed(batches, steps, model.check_batch)


class Epochs(keras.callbacks.Callback):
    """Moves a `Feed` to the first step of each epoch.

    Args:
        feed: the `Feed`.
        interval: the number of steps in an epoch. The first epoch of a resumed run may have fewer.
    """

    def __init__(self, feed, interval):
        super().__init__()
        self.feed, self.interval = feed, interval

    def on_epoch_begin(self, epoch, logs=None):
        if self.feed.first < epoch * self.interval:
            self.feed.start(epoch * self.interval)

    def on_epoch_end(self, epoch, logs=None):
        self.feed.count_tokens(self.feed.first + self.feed.steps)


def real_tokens(x):
    """The number of tokens in a batch that are not padding, including those of a decoder."""
    total = 0
    for prefix in ("", "decoder_"):
        if prefix + "lengths" in x:
            total += int(np.sum(x[prefix + "lengths"]))
        elif prefix + "padding_mask" in x:
            total += int(np.sum(x[prefix + "padding_mask"]))
        elif prefix + "sequence_ids" in x:
            total += int(np.count_nonzero(x[prefix + "sequence_ids"]))
        else:
            total += int(np.size(x.get(prefix + "token_ids", ())))
    return total
