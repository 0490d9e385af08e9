"""Dropout (Srivastava et al. 2014, JMLR 15)."""

import keras

from ..backend.random_masks import kept


class Dropout(keras.layers.Dropout):
    """Keras's dropout layer, with masks on JAX that are cheap to draw and need not be kept for the gradient.

    Call:
        inputs: float, any shape.
        training: whether to drop.

    Returns: float, as `inputs`: `rate` of them 0, the others divided by 1 - `rate`.
    """

    def call(self, inputs, training=False):
        if not training or not 0 < self.rate < 1 or keras.backend.backend() != "jax":
            return super().call(inputs, training=training)
        shape = tuple(inputs.shape)
        if self.noise_shape is not None:
            shape = tuple(own or size for own, size in zip(self.noise_shape, shape, strict=True))
        mask = kept(shape, self.rate, self.seed_generator.next())
        return keras.ops.where(mask, inputs / (1 - self.rate), keras.ops.zeros((), inputs.dtype))
