"""What pyproject.toml cannot say: the packages, which lie in several folders, and the addresses, if there are any."""

import os
import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
# As for the pages: addresses of the repository on GitHub, GitLab or Bitbucket, and of the pages, both ending in "/".
REPOSITORY, SITE = os.environ.get("DOCS_REPOSITORY", ""), os.environ.get("DOCS_SITE", "")


def readme():
    """README.md, whose links to files lead to the repository: an index of packages does not have these files."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    if REPOSITORY:
        text = re.sub(r'(!\[[^]]*\]\(|(?:src|srcset)=")(?!https?:)', rf"\g<1>{REPOSITORY}raw/HEAD/", text)
        text = re.sub(r"((?<!!)\[[^]]*\]\()(?!https?:|#)", rf"\g<1>{REPOSITORY}blob/HEAD/", text)
    return text


def urls():
    found = {}
    if REPOSITORY:
        found = {"Repository": REPOSITORY, "Changelog": f"{REPOSITORY}blob/HEAD/CHANGELOG.md"}
    return found | ({"Documentation": SITE} if SITE else {})


packages = find_packages(include=["kerasbert", "kerasbert.*"])
packages += [f"kerasbert.{name}" for name in find_packages(include=["pipelines", "pipelines.*"])]
if Path("saved_models/bert_mini_en").is_dir():
    packages.append("kerasbert.saved_models")
setup(
    packages=packages,
    long_description=readme(),
    long_description_content_type="text/markdown",
    project_urls=urls(),
)
