"""The base classes of layers, which Keras saves as their arguments, and rebuilds with the same weights."""

import functools
import inspect

import keras

from ..core.keras_adapter import all_layers
from .registered import Registered


class Layer(Registered, keras.layers.Layer):
    """A layer whose config contains the arguments that it was created with.

    Arguments may be plain values, initializers, configs, other layers, and whatever else Keras can serialise. Layers of
    other packages must be registered with `keras.saving.register_keras_serializable`, as must their configs.
    """

    def __new__(cls, *args, **kwargs):
        layer = super().__new__(cls, *args, **kwargs)
        # In a tuple or a dict, Keras would track the layers among them, and save their weights under this name.
        layer._created_by = functools.partial(cls, *args, **kwargs)
        return layer

    def get_config(self):
        """The arguments of this layer, in a form that JSON can represent."""
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
        """The input shapes of this layer and of those inside it; None before it is built."""
        if not self.built:
            return None
        inside = all_layers(self, include_self=False, recursive=False)
        return {**(super().get_build_config() or {}), "sublayers": [layer.get_build_config() for layer in inside]}

    def build_from_config(self, config):
        """Creates the weights of this layer and of those inside it, from the result of `get_build_config`."""
        super().build_from_config(config)
        inside = all_layers(self, include_self=False, recursive=False)
        with keras.name_scope(self.name):
            # Files of version 0.1 have no shapes of sublayers, which are then built by the first call.
            for layer, shapes in zip(inside, config.get("sublayers", ()), strict=False):
                if shapes and not layer.built:
                    layer.build_from_config(shapes)


class Composite(Layer):
    """A layer that has no weights except those of its sublayers, which the first call builds.

    Without a `build` method, Keras would build the sublayers by a symbolic call, and repeat this inside each of them,
    so that the time of a call is multiplied by the nesting depth. Keras also warns if such a call fails, for example
    on a pair of tensors.
    """

    def build(self, input_shape=None):
        """The sublayers build themselves."""
