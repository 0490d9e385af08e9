"""Dropout (Srivastava et al. 2014, JMLR 15)."""

import keras

from ..backend.random_masks import dropped
from .registered import Registered


class Dropout(Registered, keras.layers.Dropout):
    """Keras's dropout layer, with cheaply drawn masks, which JAX and TensorFlow need not keep for the gradient.

    Call:
        inputs: float, any shape.
        training: whether to drop.

    Returns: float, shaped as `inputs`: a share `rate` of the values is 0, the others are divided by 1 - `rate`.
    """

    def call(self, inputs, training=False):
        if not training or not 0 < self.rate < 1:
            return super().call(inputs, training=training)
        y = dropped(inputs, self.rate, self.noise_shape, self.seed_generator)
        return super().call(inputs, training=training) if y is None else y
