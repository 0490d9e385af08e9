"""Public functions, constructors and methods have annotations, by which editors complete and check users' code."""

import ast
import importlib
import inspect
import json

import pytest

import kerasbert
from tests import type_errors

pytestmark = pytest.mark.one_backend

PACKAGES = ("data", "metrics", "models", "objectives", "tasks", "training")
# Methods that users call on models. The other public methods of models are called by `fit` and by subclasses.
OF_MODELS = {
    *("compile", "fit", "evaluate", "predict", "from_preset", "save_to_preset", "push_to_hub", "quantize"),
    *("save_adapter", "load_adapter", "rematerialize", "make_head", "summary", "task_batches"),
    *(
        "classify",
        "tag",
        "predict_words",
        "answer",
        "choose",
        "embed",
        "fill_mask",
        "generate",
        "score",
        "score_tokens",
    ),
}


def public_objects():
    """Yields (name, object) of all functions and classes in the `__all__` of the packages."""
    for package in PACKAGES:
        module = importlib.import_module(f"kerasbert.{package}")
        names = getattr(module, "__all__", None) or [name for name in vars(module) if name[0] != "_"]
        for name in names:
            target = getattr(module, name)
            if callable(target) and getattr(target, "__module__", "").startswith("kerasbert"):
                yield name, target


def functions_of(name, target):
    """Yields (name, function): a function itself, or the constructor and the called methods of a class."""
    if inspect.isfunction(target):
        yield name, target
        return
    is_model = hasattr(target, "from_preset")
    for parent in target.__mro__:
        if not parent.__module__.startswith("kerasbert"):
            continue
        for key, method in vars(parent).items():
            method = getattr(method, "__func__", method)
            is_called = key == "__init__" or (key in OF_MODELS if is_model else _is_of_data(parent, key))
            if inspect.isfunction(method) and is_called:
                yield f"{parent.__name__}.{key}", method


def _is_of_data(parent, key):
    return parent.__module__.startswith("kerasbert.data") and key[0] != "_"


def missing(function):
    """The parameters without annotation."""
    parameters = list(inspect.signature(function).parameters.values())
    return [p.name for p in parameters if p.annotation is p.empty and p.name not in ("self", "cls")]


def test_every_parameter_of_the_public_interface_is_annotated():
    found = {
        key: missing(function) for name, target in public_objects() for key, function in functions_of(name, target)
    }
    assert len(found) > 250, len(found)  # `functions_of` has found the interface
    wrong = {key: names for key, names in found.items() if names}
    assert not wrong, wrong


def test_users_see_every_name_of_the_package():
    """Editors read the names from imports that are not executed, so the two lists could differ."""
    tree = ast.parse(inspect.getsource(kerasbert))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    assert sorted(alias.asname for node in block.body for alias in node.names) == sorted(kerasbert.__all__)


def test_type_errors_may_only_become_fewer():
    known = {"a.py": 2, "b.py": 1, "c.py": 3}
    found = {"a.py": 1, "b.py": 2, "d.py": 1}
    assert type_errors.more(found, known) == ["b.py", "d.py"]
    error = dict(file=str(type_errors.ROOT / "kerasbert/a.py"), range=dict(start=dict(line=6)), message="no\nwhy")
    report = dict(generalDiagnostics=[dict(error, severity="error"), dict(error, severity="warning")])
    assert type_errors.counted(report) == ({"kerasbert/a.py": 1}, ["kerasbert/a.py:7: no"])
    kept = json.loads(type_errors.KNOWN.read_text())
    assert kept and all(count > 0 for count in kept.values())
