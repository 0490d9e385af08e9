"""Segment recurrence in `fit`: carries the backbone's memory of earlier segments from step to step."""

import itertools

import keras
from keras import ops
from keras.backend import standardize_dtype

from ..backend.compilation import concrete_array
from ..backend.distribution import num_replicas
from ..core.feeding import is_text
from ..core.inputs import inputs_are_checked
from ..data.batches.batches import Batches
from .objective import Objective


class StreamMemory(keras.layers.Layer):
    """The memory of every row of a stream: one set of variables for training, one for evaluation and prediction.

    Its variables are part of the training state, and thus of training checkpoints, but they are not weights: presets
    and `.keras` files do not contain them.

    Args:
        empty_memory: the backbone's method, a function from a number of rows to the dict of an empty memory.
    """

    def __init__(self, empty_memory, **kwargs):
        super().__init__(**kwargs)
        self.empty_memory = empty_memory
        self.built = True  # never called, so that variables can still be added later

    def start(self, rows, training):
        """Creates empty variables for `rows` rows. Returns False if the memory already has that many."""
        if self.rows(training) == rows:
            return False
        for key, value in self.empty_memory(rows).items():
            name = self._name(key, training)
            if hasattr(self, name):
                delattr(self, name)
            options = dict(shape=value.shape, dtype=standardize_dtype(value.dtype), trainable=False, autocast=False)
            setattr(self, name, self.add_weight(name=name, initializer="zeros", **options))
        return True

    def rows(self, training):
        """The number of rows of the memory; None before `start`."""
        variable = getattr(self, self._name("memory", training), None)
        return None if variable is None else variable.shape[0]

    def read(self, training):
        return {key: getattr(self, self._name(key, training)).value for key in self.empty_memory(1)}

    def write(self, outputs, training):
        for key in self.empty_memory(1):
            getattr(self, self._name(key, training)).assign(ops.stop_gradient(outputs[key]))

    def _name(self, key, training):
        return f"{'training' if training else 'evaluation'}_{key}"

    @property
    def weights(self):
        return []

    def save_own_variables(self, store):
        """Saves nothing: a memory belongs to a training run, whose checkpoints save `variables`."""

    def load_own_variables(self, store):
        """Loads nothing, as nothing was saved."""


class StreamObjective(Objective):
    """Base class of objectives whose backbone may have a memory (`backbone.empty_memory`).

    The memory is carried over to batches that contain `stream_start` (b,): row r of a batch continues row r of the
    previous batch, unless its `stream_start` is True. Batches without this key are independent.
    """

    def __init__(self, backbone, tokenizer=None, **kwargs):
        super().__init__(backbone, tokenizer, **kwargs)
        self.memory = None
        if hasattr(backbone, "empty_memory"):
            self.memory = StreamMemory(backbone.empty_memory, name="memory", dtype=self.dtype_policy)

    def run_backbone(self, inputs, training=False, **options):
        """The outputs of the backbone, which reads and updates the memory if `inputs` have `stream_start`."""
        if self.memory is None or inputs.get("stream_start") is None or inputs.get("memory") is not None:
            return self.backbone(inputs, **options)
        rows, held = inputs["token_ids"].shape[0], self.memory.rows(training)
        if held is None or rows not in (None, held):
            raise ValueError(
                f"The number of rows of a stream must stay the same. Received: a batch of {rows} rows; the memory has "
                f"{'none yet' if held is None else held}. Call start_memory({rows}, training={bool(training)}) first."
            )
        outputs = self.backbone({**inputs, **self.memory.read(training)}, **options)
        self.memory.write(outputs, training)
        return outputs

    def start_memory(self, rows, training):
        """Prepares the memory for batches of `rows` rows. `fit`, `evaluate`, `predict` and the like call it.

        Args:
            rows: rows per batch. A memory with this number of rows is kept, any other is replaced by an empty one.
            training: True for the memory of training, False for that of evaluation and prediction.
        """
        if training and (getattr(self.optimizer, "gradient_accumulation_steps", None) or 1) > 1:
            raise ValueError(
                "With a memory, every step must be an update: the micro-batches of an update hold different rows. "
                f"Received: an optimizer with gradient_accumulation_steps="
                f"{self.optimizer.gradient_accumulation_steps}. Use smaller batches or shorter segments."
            )
        if num_replicas() > 1:
            raise ValueError(
                "A memory cannot be shared by several replicas. Received: a `tf.distribute` strategy of "
                f"{num_replicas()} replicas. Use one process per device, or keras.distribution."
            )
        if self.memory.start(rows, training):
            # Functions compiled earlier would still use the old variables.
            self.train_function = self.test_function = self.predict_function = None

    # === Entry points, which prepare the memory ===

    def __call__(self, inputs, *args, **kwargs):
        is_batch = isinstance(inputs, dict) and concrete_array(inputs.get("token_ids")) is not None
        if is_batch and not inputs_are_checked():
            self._start(inputs, bool(kwargs.get("training")))
        return super().__call__(inputs, *args, **kwargs)

    def fit(self, x=None, y=None, batch_size=32, *args, validation_data=None, **kwargs):
        x = self._started(x, batch_size, training=True)
        validation_data = self._started(validation_data, batch_size, training=False)
        return super().fit(x, y, batch_size, *args, validation_data=validation_data, **kwargs)

    def evaluate(self, x=None, y=None, batch_size=32, *args, **kwargs):
        return super().evaluate(self._started(x, batch_size, training=False), y, batch_size, *args, **kwargs)

    def predict(self, x, batch_size=32, **kwargs):
        return super().predict(self._started(x, batch_size, training=False), batch_size, **kwargs)

    def train_on_batch(self, x, *args, **kwargs):
        self._start(x, training=True)
        return super().train_on_batch(x, *args, **kwargs)

    def test_on_batch(self, x, *args, **kwargs):
        self._start(x, training=False)
        return super().test_on_batch(x, *args, **kwargs)

    def predict_on_batch(self, x):
        self._start(x, training=False)
        return super().predict_on_batch(x)

    def _start(self, inputs, training, rows=None):
        if self.memory is not None and inputs.get("stream_start") is not None:
            self.start_memory(inputs["token_ids"].shape[0] if rows is None else rows, training)

    def _started(self, data, batch_size, training):
        """Prepares the memory for the first batch of `data`, and returns the data."""
        if self.memory is None or data is None:
            return data
        if isinstance(data, Batches):
            self._start(data[0][0], training)
        elif is_text(data) or (isinstance(data, tuple) and is_text(data[0])):
            self.start_memory(batch_size, training)
        elif isinstance(data, (dict, tuple)):
            self._start(data[0] if isinstance(data, tuple) else data, training, batch_size)
        else:
            batch, data = _first_batch(data)
            self._start(batch[0] if isinstance(batch, (tuple, list)) else batch, training)
        return data


def _first_batch(data):
    """(the first batch, the data including it) of any data that Keras accepts."""
    if isinstance(data, keras.utils.PyDataset):
        return data[0], data
    batches = iter(data)
    batch = next(batches)
    if batches is not data:
        return batch, data
    return batch, (item for item in itertools.chain([batch], batches))  # Keras expects a generator, not an iterator
