"""Dropout (Srivastava et al. 2014, JMLR 15)."""

import keras

from ..backend.random_masks import dropped
from ..core.registered import Registered


class Dropout(Registered, keras.layers.Dropout):
    """Keras's dropout layer, with the same arguments, but with masks that take less time and memory.

    On CPUs, JAX and TensorFlow do not store the mask for the backward pass. On GPUs, XLA stores it in one byte a value,
    which takes less time to read than the hash takes to compute.

    Call:
        inputs: float, any shape.
        training: whether dropout is active.

    Returns: float, in the shape of `inputs`. During training, each value is 0 with probability `rate`, and is otherwise
        divided by 1 - `rate`.
    """

    def call(self, inputs, training=False):
        if not training or not 0 < self.rate < 1:
            return super().call(inputs, training=training)
        y = dropped(inputs, self.rate, self.noise_shape, self.seed_generator)
        return super().call(inputs, training=training) if y is None else y
