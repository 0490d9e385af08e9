"""Default values are part of the public interface: a changed default changes the results of programs that rely on it.

After a deliberate change, which belongs into CHANGELOG.md, write the new values with `python -m tests.test_defaults`.
"""

import dataclasses
import importlib
import inspect
import json

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

GOLDEN = REPOSITORY / "tests" / "goldens" / "defaults.json"
PACKAGES = ("", ".data", ".layers", ".models", ".objectives", ".tasks", ".training")


def defaults_of(function):
    """{argument: default} of a function, for defaults that are numbers, texts, bools, None or tuples of these."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: repr(p.default) for p in parameters if isinstance(p.default, (bool, int, float, str, tuple))}


def public_defaults():
    """{name of a public function, class or method: {argument: default}}, without those that have none."""
    found = {}
    for package in PACKAGES:
        module = importlib.import_module(f"kerasbert{package}")
        for name in module.__all__:
            target = getattr(module, name)
            if inspect.isfunction(target):
                found[name] = defaults_of(target)
            if not inspect.isclass(target):
                continue
            if dataclasses.is_dataclass(target) and target.__init__ is not object.__init__:
                found[name] = defaults_of(target)
            for parent in target.__mro__:
                if not parent.__module__.startswith("kerasbert"):
                    continue
                for key, method in vars(parent).items():
                    method = getattr(method, "__func__", method)
                    if inspect.isfunction(method) and (key in ("__init__", "__call__") or key[0] != "_"):
                        found[f"{parent.__name__}.{key}"] = defaults_of(method)
    return {name: values for name, values in sorted(found.items()) if values}


def test_defaults_are_unchanged():
    golden, found = json.loads(GOLDEN.read_text(encoding="utf-8")), public_defaults()
    names = golden.keys() | found.keys()
    changed = {name: (golden.get(name), found.get(name)) for name in names if golden.get(name) != found.get(name)}
    assert not changed, changed


if __name__ == "__main__":
    lines = (f"{json.dumps(name)}: {json.dumps(values)}" for name, values in public_defaults().items())
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
