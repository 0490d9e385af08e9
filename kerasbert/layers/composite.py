"""Base classes of layers that Keras can save together with their arguments and restore from a file."""

import functools
import inspect

import keras

from ..backend.keras_adapter import all_layers
from ..core.registered import Registered


class Layer(Registered, keras.layers.Layer):
    """A layer whose `get_config` returns the arguments with which the layer was created.

    Arguments may be plain values, initializers, configs, other layers, and anything else that Keras can serialize.
    Layers and configs of other packages must be registered with `keras.saving.register_keras_serializable`.
    """

    def __new__(cls, *args, **kwargs):
        layer = super().__new__(cls, *args, **kwargs)
        # The arguments are not stored in a tuple or dict, because Keras would track layers among them as sublayers.
        layer._created_by = functools.partial(cls, *args, **kwargs)
        return layer

    def get_config(self):
        """Returns the arguments of this layer as a dict that JSON can represent."""
        signature = inspect.signature(type(self).__init__)
        bound = signature.bind(self, *self._created_by.args, **self._created_by.keywords)
        bound.apply_defaults()
        _, *arguments = bound.arguments.items()
        config = {}
        for name, value in arguments:
            is_rest = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            config |= value if is_rest else {name: value}
        return {**keras.saving.serialize_keras_object(config), **super().get_config()}

    @classmethod
    def from_config(cls, config):
        return cls(**{name: keras.saving.deserialize_keras_object(value) for name, value in config.items()})

    def get_build_config(self):
        """Returns the input shapes of this layer and of its sublayers, or None before the layer is built."""
        if not self.built:
            return None
        inside = all_layers(self, include_self=False, recursive=False)
        return {**(super().get_build_config() or {}), "sublayers": [layer.get_build_config() for layer in inside]}

    def build_from_config(self, config):
        """Creates the weights of this layer and of its sublayers from the result of `get_build_config`."""
        super().build_from_config(config)
        inside = all_layers(self, include_self=False, recursive=False)
        with keras.name_scope(self.name):
            for layer, shapes in zip(inside, config["sublayers"], strict=True):
                if shapes and not layer.built:
                    layer.build_from_config(shapes)


class Composite(Layer):
    """A layer without weights other than those of its sublayers, which are built by the first call.

    Without the empty `build` method, Keras would build the sublayers with a symbolic call. It would repeat this for the
    sublayers of each sublayer, so that the time of the first call is multiplied by the nesting depth. Keras also warns
    if a symbolic call fails, for example on a pair of tensors.
    """

    def build(self, input_shape=None):
        """Does nothing: the sublayers build themselves."""
