"""Segment recurrence in `fit`: carries the backbone's memory of earlier segments over from batch to batch.

An objective whose backbone has a memory (`backbone.empty_memory`) has an attribute `memory`, which is a `StreamMemory`
or None. Batches with the key `stream_start` (b,) use the memory: row r of such a batch continues the text of row r of
the previous batch, unless its `stream_start` is True. Batches without this key are independent.
"""

from typing import Any

import keras
from keras import ops
from keras.backend import standardize_dtype

from ..backend.distribution import divide_rows, host_share, num_replicas
from ..training.sources import first_batch


class StreamMemory(keras.layers.Layer):
    """Variables that hold the memory of each row between batches.

    There is one set of variables for training, and another for evaluation and prediction. They are part of training
    checkpoints, but not of `weights`, so that presets and `.keras` files do not contain them.

    Args:
        empty_memory: the backbone's method, which takes a number of rows and returns an empty memory as a dict.
    """

    def __init__(self, empty_memory, **kwargs):
        super().__init__(**kwargs)
        self.empty_memory = empty_memory
        self.built = True  # the layer is never called; marking it as built lets it create variables later

    def start(self, rows, training):
        """Creates an empty memory for `rows` rows. Returns False if the memory already has this number of rows."""
        if self.rows(training) == rows:
            return False
        for key, value in self.empty_memory(rows).items():
            name = self._name(key, training)
            if hasattr(self, name):
                delattr(self, name)
            options: dict[str, Any] = dict(
                shape=value.shape, dtype=standardize_dtype(value.dtype), trainable=False, autocast=False
            )
            setattr(self, name, self.add_weight(name=name, initializer="zeros", **options))
            divide_rows(getattr(self, name))
        return True

    def rows(self, training):
        """The number of rows of the memory, or None before `start` has been called."""
        variable = getattr(self, self._name("memory", training), None)
        return None if variable is None else variable.shape[0]

    def read(self, training):
        """Returns the memory as a dict of batch keys."""
        # Return copies, because on PyTorch, `write` changes the variables in place before the gradients are computed.
        return {key: ops.copy(getattr(self, self._name(key, training)).value) for key in self.empty_memory(1)}

    def write(self, outputs, training):
        """Stores the memory in the outputs of a backbone."""
        for key in self.empty_memory(1):
            getattr(self, self._name(key, training)).assign(ops.stop_gradient(outputs[key]))

    def _name(self, key, training):
        return f"{'training' if training else 'evaluation'}_{key}"

    @property
    def weights(self):
        return []

    def save_own_variables(self, store):
        """Saves nothing, because a memory belongs to a training run, whose checkpoints contain `variables`."""

    def load_own_variables(self, store):
        """Loads nothing, because `save_own_variables` saves nothing."""


# === Functions for objectives with a `memory` ===


def run_backbone(model, inputs, training=False):
    """Returns the outputs of the backbone. If `inputs` has `stream_start`, the memory is used and updated."""
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
    """Prepares the memory of a model for batches with `rows` rows; see `CausalLM.start_memory`."""
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
        model.forget_programs()


def prepare_memory(model, batches, training):
    """Prepares the memory if the first batch has `stream_start`; see `Fitting.prepare`."""
    if model.memory is None:
        return batches
    (inputs, *_), batches = first_batch(batches)
    if inputs.get("stream_start") is not None:
        model.start_memory(inputs["token_ids"].shape[0] * host_share()[1], training)
    return batches
