"""What outsiders meet first: the workflow, the hooks and the template of pull requests name what exists."""

import importlib.util
import re
import subprocess
import sys

import pytest
import yaml

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

WORKFLOW = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "tests.yml").read_text())
TARGETS = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), flags=re.MULTILINE))


def test_the_workflow_runs_what_a_change_must_pass():
    runs = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in WORKFLOW["jobs"].items()}
    assert runs == {"lint": ["make lint", "make types"], "test": ["make test"], "wheel": ["make test-install"]}
    assert {run.removeprefix("make ") for steps in runs.values() for run in steps} <= TARGETS
    test = WORKFLOW["jobs"]["test"]
    assert sorted(test["strategy"]["matrix"]["backend"]) == ["jax", "tensorflow", "torch"]
    assert test["env"] == {"KERAS_BACKEND": "${{ matrix.backend }}"}


def test_continuous_integration_runs_existing_targets():
    lines = re.findall(
        r"^make (?:-j2 )?([a-z -]+?)(?:  #.*)?$", (REPOSITORY / ".ci" / "run").read_text(), flags=re.MULTILINE
    )
    runs = [target for line in lines for target in line.split()]
    assert runs == ["lint", "test-all", "types", "test-install"] and {*runs} <= TARGETS


def test_hooks_find_large_files_and_broken_yaml(tmp_path):
    hooks = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    modules = {hook["id"]: re.match(r"python -m ([\w.]+)", hook["entry"])[1] for hook in hooks}
    assert {*modules} == {"ruff-check", "ruff-format", "large-files", "yaml"}
    assert all(importlib.util.find_spec(module) for module in modules.values())
    (tmp_path / "broken.yaml").write_text("a: [1\n")
    entry = next(hook["entry"] for hook in hooks if hook["id"] == "yaml").split()[1:]
    assert subprocess.run([sys.executable, *entry, tmp_path / "broken.yaml"], capture_output=True).returncode == 1


def test_the_template_names_existing_targets():
    template = (REPOSITORY / ".github" / "pull_request_template.md").read_text()
    assert {*re.findall(r"`make ([a-z-]+)`", template)} == {"lint", "types", "test"} <= TARGETS
