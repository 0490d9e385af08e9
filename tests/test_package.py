"""Which backend `import kerasbert` picks, and the lazy public names."""

import importlib
import importlib.util
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import kerasbert
from kerasbert.core import registration
from kerasbert.core.registered import Registered
from kerasbert.layers import TokenHead
from kerasbert.models import Bert, BertConfig
from kerasbert.tasks import TextClassifier

pytestmark = pytest.mark.one_backend

ROOT = Path(__file__).resolve().parent.parent

PRINT_BACKEND = "import kerasbert, os; print(os.environ.get('KERAS_BACKEND'))"
INSTALLED = "import importlib.util as u; u.find_spec = lambda name, find=u.find_spec: name in {names} or None; "


def backend(code, home, **environment):
    environment = {**os.environ, "KERAS_HOME": str(home), "KERAS_BACKEND": "", **environment}
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    return process.stdout.strip() or process.stderr


@pytest.mark.parametrize(
    "names, expected",
    [(["jax", "torch", "tensorflow"], "jax"), (["torch", "tensorflow"], "tensorflow"), (["torch"], "torch")],
)
def test_the_first_installed_backend_is_picked(names, expected, tmp_path):
    assert backend(INSTALLED.format(names=names) + PRINT_BACKEND, tmp_path) == expected


def test_no_backend_is_an_error_that_names_the_fix(tmp_path):
    """It is raised where Keras is imported: exports are answered without a backend."""
    code = INSTALLED.format(names=[])
    assert backend(code + "import kerasbert.runtime; print('fine')", tmp_path) == "fine"
    assert "pip install 'kerasbert[jax]'" in backend(code + "import kerasbert.models", tmp_path)


def test_the_environment_decides_first(tmp_path):
    (tmp_path / "keras.json").write_text('{"backend": "jax"}')
    assert backend(PRINT_BACKEND, tmp_path, KERAS_BACKEND="torch") == "torch"


@pytest.mark.parametrize(
    "name, what", [("foo", "does not support"), ("numpy", "does not support"), ("jax", "not installed")]
)
def test_a_backend_that_cannot_be_used_is_an_error_that_names_the_others(name, what, tmp_path):
    code = INSTALLED.format(names=["torch"]) + "import kerasbert; print('no Keras'); import kerasbert.models"
    found = backend(code, tmp_path, KERAS_BACKEND=name)
    assert found == "no Keras"
    (tmp_path / "keras.json").write_text(json.dumps({"backend": name}))
    for environment in ({"KERAS_BACKEND": name}, {}):
        found = backend(INSTALLED.format(names=["torch"]) + "import kerasbert.models", tmp_path, **environment)
        where = "KERAS_BACKEND" if environment else "keras.json"
        assert f"Received: {name!r} from {where}, which" in found and what in found and "Installed: torch." in found


def test_keras_json_decides_second(tmp_path):
    (tmp_path / "keras.json").write_text('{"backend": "tensorflow"}')
    assert backend(PRINT_BACKEND, tmp_path) == ""  # left to Keras, which reads the file itself
    (tmp_path / "keras.json").write_text('{"floatx": "float32"}')
    assert backend(INSTALLED.format(names=["torch"]) + PRINT_BACKEND, tmp_path) == "torch"
    (tmp_path / "keras.json").write_text("not JSON")
    assert backend(INSTALLED.format(names=["torch"]) + PRINT_BACKEND, tmp_path) == "torch"


def test_the_file_that_keras_writes_by_itself_is_no_choice(tmp_path):
    """Keras writes "tensorflow" into a new keras.json even when it runs on JAX: the second run must equal the first."""
    code = "import kerasbert, keras; print(keras.backend.backend())"
    installed = next(name for name in ("jax", "tensorflow", "torch") if importlib.util.find_spec(name))
    assert backend(code, tmp_path) == installed
    assert json.loads((tmp_path / "keras.json").read_text())["backend"] == "tensorflow"
    assert backend(INSTALLED.format(names=["jax"]) + PRINT_BACKEND, tmp_path) == "jax"


def test_an_imported_keras_is_left_alone(tmp_path):
    code = "import sys, types; sys.modules['keras'] = types.ModuleType('keras'); " + PRINT_BACKEND
    assert backend(code, tmp_path) == ""


LOAD = """
import json, sys
import numpy as np
{first}
head = keras.saving.deserialize_keras_object(json.loads(sys.argv[2]))
assert type(head) is sys.modules["kerasbert.layers"].TokenHead and head.dense.units == 3
assert not any(name.startswith("kerasbert.models") for name in sys.modules)
model = keras.models.load_model(sys.argv[1])
assert type(model) is sys.modules["kerasbert.tasks"].TextClassifier
assert type(model.optimizer).__module__.startswith("kerasbert.training")
found = model.predict({{"token_ids": np.array([[1, 2]])}}, verbose=0)
np.testing.assert_array_equal(found, np.load(sys.argv[1] + ".npy"))
"""


def test_keras_loads_our_models_and_layers_once_kerasbert_is_imported(tmp_path):
    """Before Keras or after it, and without importing them for it."""
    path = tmp_path / "c.keras"
    config = BertConfig(vocabulary_size=11, num_layers=1, num_heads=1, hidden_dim=2, feed_forward_dim=2, max_length=4)
    model = TextClassifier(Bert(config), labels=2)
    model.compile(kerasbert.training.adamw(learning_rate=1e-3, warmup=2, steps=20))
    model.save(path)
    np.save(f"{path}.npy", model.predict({"token_ids": np.array([[1, 2]])}, verbose=0))
    head = json.dumps(keras.saving.serialize_keras_object(TokenHead(3)))
    for first in ("kerasbert, keras", "keras, kerasbert"):
        command = [sys.executable, "-c", LOAD.format(first=f"import {first}"), str(path), head]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)


def test_every_registered_class_is_known_beforehand():
    for module in pkgutil.walk_packages(kerasbert.__path__, "kerasbert."):
        importlib.import_module(module.name)
    known = {name: cls for name, cls in keras.saving.get_custom_objects().items() if name.startswith("kerasbert>")}
    places = {name.removeprefix("kerasbert>"): cls.__module__ for name, cls in known.items()}
    assert registration.CLASSES == places, "write what core/registered_classes.py lacks"
    for name, module in places.items():
        stand_in = registration.Deferred(module, name)
        assert stand_in.from_config.__self__ is known[f"kerasbert>{name}"]


def test_no_two_layers_are_registered_under_one_name():
    def subclasses(cls):
        return {cls}.union(*map(subclasses, cls.__subclasses__()))

    ours = [cls for cls in subclasses(Registered) - {Registered} if cls.__module__.startswith("kerasbert.")]
    assert len(ours) > 60
    assert len({cls.__name__ for cls in ours}) == len(ours)


def test_public_names():
    assert kerasbert.data.Tokenizer.__module__.startswith("kerasbert.data")
    folders = {path.parent.name for path in (ROOT / "kerasbert").glob("*/__init__.py")}
    assert folders | {"export", "load", "metrics"} == set(kerasbert.__all__) <= set(dir(kerasbert))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kerasbert.nothing
