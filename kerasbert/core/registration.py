"""Makes the classes of this package known to Keras without importing them.

A stand-in is registered for each class and imports the class on first use. So, after `import kerasbert`,
`keras.models.load_model("model.keras")` finds every class of the package by its registered name.
"""

import importlib
import importlib.abc
import importlib.util
import sys

from .registered_classes import REGISTERED

# {name of a class: its module}
CLASSES = {name: f"kerasbert.{module}" for module, names in REGISTERED.items() for name in names.split()}

# What computes the outputs of a model in place of its layers, by the `engine` of `from_preset`: each a class, or the
# `Deferred` stand-in for one. The package registers them here, because `checkpoints` may not import `exporting`.
ENGINES = {}


class Deferred:
    """A stand-in for a class, which it imports on first use.

    Args:
        module: the module of the class.
        name: the name of the class.
    """

    def __init__(self, module, name):
        self.__name__ = name
        self._place = module, name

    def __getattr__(self, attribute):
        return getattr(self.resolve(), attribute)

    def __call__(self, *args, **kwargs):
        return self.resolve()(*args, **kwargs)

    def resolve(self):
        """Imports the module, which registers the class with Keras, and returns the class."""
        module, name = self._place
        return getattr(importlib.import_module(module), name)


class _AfterKeras(importlib.abc.MetaPathFinder):
    """An import hook that registers the stand-ins as soon as Keras has been imported."""

    def find_spec(self, name, path=None, target=None):
        if name != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("keras")
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module):
                load(module)
                register(module)

            spec.loader.exec_module = load_and_register
        return spec


class _Refusal(importlib.abc.MetaPathFinder):
    """An import hook that raises an error when Keras is imported."""

    def __init__(self, message):
        self.message = message

    def find_spec(self, name, path=None, target=None):
        if name == "keras":
            raise ImportError(self.message)
        return None


def refuse_keras(message):
    """Has every import of Keras raise an ImportError."""
    sys.meta_path.insert(0, _Refusal(message))


def register(keras):
    """Registers a stand-in with the module `keras` for each class that is not registered yet."""
    known = keras.saving.get_custom_objects()
    for name, module in CLASSES.items():
        known.setdefault(f"kerasbert>{name}", Deferred(module, name))


def register_with_keras():
    """Registers the stand-ins now if Keras has been imported, and otherwise as soon as it is."""
    keras = sys.modules.get("keras")
    if keras is None:
        sys.meta_path.insert(0, _AfterKeras())
    elif hasattr(keras, "saving"):
        register(keras)
