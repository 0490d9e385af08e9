"""Segment recurrence in `fit`: carries the backbone's memory of earlier segments from step to step.

An objective whose backbone has a memory (`backbone.empty_memory`) holds it as `memory`, a `StreamMemory`, or None. The
memory is carried over to batches that contain `stream_start` (b,): row r of a batch continues row r of the previous
batch, unless its `stream_start` is True. Batches without this key are independent.
"""

import keras
from keras import ops
from keras.backend import standardize_dtype

from ..backend.distribution import num_replicas
from ..core.sources import first_batch


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


# === Functions of a model with `memory` ===


def run_backbone(model, inputs, training=False):
    """The outputs of the backbone, which reads and updates the memory if `inputs` have `stream_start`."""
    if model.memory is None or inputs.get("stream_start") is None or inputs.get("memory") is not None:
        return model.backbone(inputs)
    rows, held = inputs["token_ids"].shape[0], model.memory.rows(training)
    if held is None or rows not in (None, held):
        raise ValueError(
            f"The number of rows of a stream must stay the same. Received: a batch of {rows} rows; the memory has "
            f"{'none yet' if held is None else held}. Call start_memory({rows}, training={bool(training)}) first."
        )
    outputs = model.backbone({**inputs, **model.memory.read(training)})
    model.memory.write(outputs, training)
    return outputs


def start_memory(model, rows, training):
    """Prepares the memory for batches of `rows` rows; see `CausalLM.start_memory`."""
    accumulation = getattr(getattr(model, "optimizer", None), "gradient_accumulation_steps", None) or 1
    if training and accumulation > 1:
        raise ValueError(
            "With a memory, every step must be an update: the micro-batches of an update hold different rows. "
            f"Received: an optimizer with gradient_accumulation_steps={accumulation}. Use smaller batches or shorter "
            "segments."
        )
    if num_replicas() > 1:
        raise ValueError(
            "A memory cannot be shared by several replicas. Received: a `tf.distribute` strategy of "
            f"{num_replicas()} replicas. Use one process per device, or keras.distribution."
        )
    if model.memory.start(rows, training):
        # Functions compiled earlier would still use the old variables.
        model.train_function = model.test_function = model.predict_function = None


def prepare_memory(model, batches, training):
    """Starts the memory for the rows of the first batch if it has `stream_start`; see `Fitting.prepare`."""
    if model.memory is None:
        return batches
    (inputs, *_), batches = first_batch(batches)
    if inputs.get("stream_start") is not None:
        model.start_memory(inputs["token_ids"].shape[0], training)
    return batches
