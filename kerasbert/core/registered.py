"""Base classes that register layers and configs with Keras, so that saved models can refer to them by name."""

import dataclasses

import keras


class Registered:
    """Registers every subclass in this package with Keras as "kerasbert>NAME".

    Subclasses in other packages must register themselves, with `keras.saving.register_keras_serializable`.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("kerasbert."):
            keras.saving.register_keras_serializable("kerasbert")(cls)


class Config(Registered):
    """Base class of configs: frozen dataclasses of plain values, which Keras can save as arguments of layers."""

    def get_config(self):
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config):
        return cls(**config)
