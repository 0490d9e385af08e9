"""Makes batches from plain settings, which a recipe can store as JSON, instead of from objects."""

import inspect
import warnings
from typing import Any, Self


class SettingsBatches:
    """Base class of batches whose object arguments, such as `noise=`, can also be given as plain settings.

    A subclass has a static method `arguments(length, **settings)`, which converts settings to constructor arguments.
    Until version 0.3, `__init__` accepts the settings as well, with a DeprecationWarning.
    """

    settings: dict | None = None  # the settings given to `from_settings`, completed by defaults

    @classmethod
    def from_settings(cls, corpus: Any, batch_size: int, length: int, **settings: Any) -> Self:
        """Makes batches from the settings of a recipe.

        Args:
            corpus, batch_size, length: as in the class.
            **settings: further arguments of the class or of its method `arguments`.
        """
        known = inspect.signature(cls.arguments).parameters
        named = {name: settings.pop(name) for name in list(settings) if name in known}
        batches = cls(corpus, batch_size, length, **settings, **cls.arguments(length, **named))
        batches.settings = cls._with_defaults(named)
        return batches

    @classmethod
    def _with_defaults(cls, settings: dict) -> dict:
        """Adds the defaults of missing settings, and makes the result a dict that JSON can represent."""
        defaults = {name: parameter.default for name, parameter in inspect.signature(cls.arguments).parameters.items()}
        del defaults["length"]
        return {name: list(v) if isinstance(v, tuple) else v for name, v in {**defaults, **settings}.items()}

    def replaced_settings(self, length: int, settings: dict) -> dict:
        """Converts the settings that `__init__` accepted in version 0.1 to its arguments, with a DeprecationWarning."""
        known = inspect.signature(self.arguments).parameters
        unknown = [name for name in settings if name not in known and name != "noise"]
        if unknown:
            raise TypeError(f"{type(self).__name__} has no argument {unknown[0]!r}.")
        if settings.pop("noise", None) is not None:
            raise ValueError(f"`noise` replaces {', '.join(sorted(settings))}. Received: both. Pass only `noise`.")
        warnings.warn(
            f"{', '.join(sorted(settings))}: version 0.3 of {type(self).__name__} will only accept objects such as "
            "`noise=`. "
            f"For plain settings, use {type(self).__name__}.from_settings(...).",
            DeprecationWarning,
            stacklevel=3,
        )
        self.settings = self._with_defaults(settings)
        return self.arguments(length, **settings)
