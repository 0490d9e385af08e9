"""Batches by settings that can be written into a recipe, in place of objects."""

import inspect
import warnings


class SettingsBatches:
    """Base class of batches that take objects, such as `noise=`, and can be made from plain settings, too.

    A subclass has a static method `arguments(length, **settings)`, which returns the arguments that the settings stand
    for. Until version 0.3, `__init__` accepts the settings as well, with a DeprecationWarning.
    """

    settings: dict | None = None  # those that the batches were made from, with their defaults

    @classmethod
    def from_settings(cls, corpus, batch_size: int, length: int, **settings):
        """The batches by the settings of a recipe: arguments of the class or of its `arguments`."""
        known = inspect.signature(cls.arguments).parameters
        named = {name: settings.pop(name) for name in list(settings) if name in known}
        batches = cls(corpus, batch_size, length, **settings, **cls.arguments(length, **named))
        batches.settings = cls._with_defaults(named)
        return batches

    @classmethod
    def _with_defaults(cls, settings: dict) -> dict:
        """Settings with the defaults of those that are missing, JSON-serialisable."""
        defaults = {name: parameter.default for name, parameter in inspect.signature(cls.arguments).parameters.items()}
        del defaults["length"]
        return {name: list(v) if isinstance(v, tuple) else v for name, v in {**defaults, **settings}.items()}

    def replaced_settings(self, length: int, settings: dict) -> dict:
        """The arguments for the settings of version 0.1 among the arguments of `__init__`, with a warning."""
        known = inspect.signature(self.arguments).parameters
        unknown = [name for name in settings if name not in known and name != "noise"]
        if unknown:
            raise TypeError(f"{type(self).__name__} has no argument {unknown[0]!r}.")
        if settings.pop("noise", None) is not None:
            raise ValueError(f"A `noise` replaces {', '.join(sorted(settings))}. Received: both. Use `noise` alone.")
        warnings.warn(
            f"{', '.join(sorted(settings))}: in version 0.3 {type(self).__name__} will take objects instead, such as "
            f"`noise=`. Use {type(self).__name__}.from_settings(...) for plain settings.",
            DeprecationWarning,
            stacklevel=3,
        )
        self.settings = self._with_defaults(settings)
        return self.arguments(length, **settings)
