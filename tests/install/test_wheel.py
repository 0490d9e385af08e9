"""The wheel: what it carries, and that its pipelines run as `kerasbert.pipelines`."""

import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from kerasbert import __version__
from kerasbert.checkpoints.folder import SHIPPED
from kerasbert.models import Bert, BertConfig
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

FOLDERS, FILES = ("kerasbert", "pipelines"), ("setup.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE")
MODEL = "saved_models/bert_mini_en"
ADDRESSES = {"DOCS_REPOSITORY": "https://code.example/kerasbert/", "DOCS_SITE": "https://pages.example/"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of a copy of the repository with a model to ship and another one."""
    copy = tmp_path_factory.mktemp("copy")
    for name in FOLDERS:
        shutil.copytree(REPOSITORY / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(REPOSITORY / name, copy)
    sizes = dict(num_layers=1, num_heads=1, hidden_dim=2, feed_forward_dim=2, max_length=4)
    for folder in (MODEL, "saved_models/mine"):
        Bert(BertConfig(vocabulary_size=11, **sizes)).save_to_preset(copy / folder)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(copy / "dist"), str(copy)]
    process = subprocess.run(build, capture_output=True, text=True, env={**os.environ, **ADDRESSES})
    assert process.returncode == 0, process.stdout + process.stderr
    (path,) = (copy / "dist").iterdir()
    return path


def python_files(folder):
    files = (REPOSITORY / folder).rglob("*.py")
    return {path.relative_to(REPOSITORY).as_posix() for path in files if "__pycache__" not in path.parts}


def test_the_wheel_lists_the_package_its_pipelines_and_a_model(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = {"config.json", "kerasbert.json", "model.safetensors"}
    expected = python_files("kerasbert") | {f"kerasbert/{name}" for name in python_files("pipelines")}
    assert names == expected | {"kerasbert/py.typed"} | {f"kerasbert/{MODEL}/{name}" for name in files}


@pytest.fixture(scope="module")
def information(wheel):
    """The files about the package in the wheel."""
    archive = zipfile.ZipFile(wheel)
    names = [name for name in archive.namelist() if ".dist-info/" in name]
    return {name.partition("/")[2]: archive.read(name).decode() for name in names}


def test_the_wheel_has_the_command_and_its_extras(information):
    assert "kerasbert = kerasbert.command_line:main" in information["entry_points.txt"]
    metadata = information["METADATA"].splitlines()
    assert {"Provides-Extra: cuda", "Provides-Extra: tpu", "Provides-Extra: all"} <= {*metadata}
    assert "Requires-Dist: jax[cuda12]>=0.7; extra == 'cuda'".replace("'", '"') in metadata
    assert "Requires-Dist: jax[tpu]>=0.7; extra == 'tpu'".replace("'", '"') in metadata


def test_the_wheel_has_licenses_and_addresses(information):
    """What it carries is named with its terms, and links of the README lead to the repository, which has the files."""
    assert "Version 2.0, January 2004" in information["licenses/LICENSE"]
    for name in SHIPPED:
        assert f"kerasbert/saved_models/{name} " in information["licenses/NOTICE"]
    header, readme = information["METADATA"].split("\n\n", 1)
    assert f"Version: {__version__}" in header and f"Project-URL: Documentation, {ADDRESSES['DOCS_SITE']}" in header
    links = re.findall(r'\]\(([^)]*)\)|src(?:set)?="([^"]*)"', readme)
    assert len(links) > 15 and all(f"{link}{source}".startswith("https://") for link, source in links)
    assert f"{ADDRESSES['DOCS_REPOSITORY']}raw/HEAD/docs/_static/objectives" in readme


USE = """
import importlib, pkgutil, sys
from pathlib import Path
import kerasbert
from kerasbert.command_line import main, pipelines_name

assert Path(kerasbert.__file__).is_relative_to(sys.argv[1]), kerasbert.__file__
assert pipelines_name() == "kerasbert.pipelines"
assert kerasbert.load("bert_mini_en").config.vocabulary_size == 11
package = importlib.import_module("kerasbert.pipelines")
for module in pkgutil.walk_packages(package.__path__, "kerasbert.pipelines."):
    importlib.import_module(module.name)
assert len(importlib.import_module("kerasbert.pipelines.recipes.recipe").all_recipes()) > 100
assert not [name for name in sys.modules if name.partition(".")[0] == "pipelines"]
sys.argv[1:] = ["tokenizer", "--source", "text.txt", "--output", "tokenizer", "--vocabulary-size", "30"]
main()
"""


def test_the_pipelines_of_the_wheel_import_each_other_only(wheel, tmp_path):
    """Unpacked into a folder, which is what installing does, and away from the repository."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    (tmp_path / "text.txt").write_text("the cat sat\n\nthe dog ran\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    command = [sys.executable, "-c", USE, str(tmp_path / "installed")]
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "tokenizer" / "tokenizer.json").is_file() and "tokens in tokenizer" in process.stdout
