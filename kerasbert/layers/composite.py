"""Layers of layers that Keras cannot build by itself."""

import keras


class Composite(keras.layers.Layer):
    """A layer that has no weights but those of its parts, which build themselves in the first call.

    Keras tries to build such a layer by a call on shapes, and warns where that fails: where an argument is a pair of
    tensors, or an object such as an `AttentionMask` comes along with more than one tensor.
    """

    def build(self, x_shape=None):
        """Nothing of its own."""
