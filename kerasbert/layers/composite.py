"""Layers that consist of other layers and are built by their first call."""

import keras


class Composite(keras.layers.Layer):
    """A layer that has no weights except those of its sublayers, which the first call builds.

    Without a `build` method, Keras would build the sublayers by a symbolic call, and repeat this inside each of them,
    so that the time of a call is multiplied by the nesting depth. Keras also warns if such a call fails, for example
    on a pair of tensors.
    """

    def build(self, input_shape=None):
        """The sublayers build themselves."""
