"""The packages of the wheel, which pyproject.toml cannot name: they lie in several folders, all become kerasbert's."""

from pathlib import Path

from setuptools import find_packages, setup

packages = find_packages(include=["kerasbert", "kerasbert.*"])
packages += [f"kerasbert.{name}" for name in find_packages(include=["pipelines", "pipelines.*"])]
if Path("saved_models/bert_mini_en").is_dir():
    packages.append("kerasbert.saved_models")
setup(packages=packages)
