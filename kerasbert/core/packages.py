"""Packages that only some functions need."""

import importlib
from types import ModuleType


def required(package: str, extra: str) -> ModuleType:
    """Imports a package, or raises a ModuleNotFoundError that names the extra of kerasbert with it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        hint = f'This needs the package {package}. Install it with: pip install "kerasbert[{extra}]"'
        raise ModuleNotFoundError(hint, name=package) from error
