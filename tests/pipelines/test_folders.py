"""The top of pipelines/ has the commands and nothing else."""

import pytest

from kerasbert.command_line import NAMES
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

PARTS = {"command_line", "corpora", "reading", "recipes", "runs"}


def test_the_top_has_the_commands():
    top = {path.stem for path in (REPOSITORY / "pipelines").iterdir() if path.name != "__pycache__"}
    assert top == {"__init__", *(name.replace("-", "_") for name in NAMES), *PARTS}


def test_commands_of_several_files_are_run_as_modules():
    for folder in ("info", "serve", "show"):
        assert (REPOSITORY / "pipelines" / folder / "__main__.py").is_file()
