"""Which backend `import kerasbert` picks, and the lazy public names."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kerasbert

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
    assert "pip install 'kerasbert[jax]'" in backend(INSTALLED.format(names=[]) + PRINT_BACKEND, tmp_path)


def test_the_environment_decides_first(tmp_path):
    (tmp_path / "keras.json").write_text('{"backend": "jax"}')
    assert backend(PRINT_BACKEND, tmp_path, KERAS_BACKEND="torch") == "torch"


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
    only_jax = INSTALLED.format(names=["jax"]) + "import kerasbert, os; print(os.environ['KERAS_BACKEND'])"
    pytest.importorskip("jax")
    assert backend(code, tmp_path) == "jax"
    assert json.loads((tmp_path / "keras.json").read_text())["backend"] == "tensorflow"
    assert backend(only_jax, tmp_path) == "jax"


def test_an_imported_keras_is_left_alone(tmp_path):
    code = "import sys, types; sys.modules['keras'] = types.ModuleType('keras'); " + PRINT_BACKEND
    assert backend(code, tmp_path) == ""


def test_public_names():
    assert kerasbert.data.Tokenizer.__module__.startswith("kerasbert.data")
    folders = {path.parent.name for path in (ROOT / "kerasbert").glob("*/__init__.py")}
    assert folders | {"load", "metrics"} == set(kerasbert.__all__) <= set(dir(kerasbert))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kerasbert.nothing
