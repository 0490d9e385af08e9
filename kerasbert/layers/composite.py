"""Layers of layers, which build themselves in their first call."""

import keras


class Composite(keras.layers.Layer):
    """A layer that has no weights but those of its parts, which the first call builds.

    Without a `build`, Keras would first call it on symbols to build its parts, and each part again on symbols inside:
    the time is that of the call times the depth of the layers. It also warns where such a call fails, as on a pair of
    tensors.
    """

    def build(self, input_shape=None):
        """The parts build themselves."""
