"""Every published figure has a command, and every command and file that pages name is there."""

import re

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.one_backend

FOLDER = REPOSITORY / "benchmarks"
PAGES = [
    *(path for folder in ("benchmarks", "docs", "saved_models") for path in (REPOSITORY / folder).rglob("*.md")),
    *(path for folder in ("benchmarks", "docs") for path in (REPOSITORY / folder).rglob("*.py")),
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md")),
]


def programs(folder):
    return {path for path in (FOLDER / folder).rglob("*.py") if 'if __name__ == "__main__"' in path.read_text()}


def module_of(path):
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)


def test_commands_and_files_exist():
    commands, missing = 0, []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for module in re.findall(r"python -m (benchmarks\.[\w.]*\w)", text):
            commands += 1
            if not REPOSITORY.joinpath(*module.split(".")).with_suffix(".py").is_file():
                missing.append(f"{page}: {module}")
        for name in re.findall(r"`(benchmarks/[\w/.]+)`", text):
            if not (REPOSITORY / name).exists():
                missing.append(f"{page}: {name}")
    assert commands > 60 and not missing, missing


@pytest.mark.parametrize("folder", ["speed", "devices", "studies"])
def test_every_program_is_in_the_readme_of_its_folder(folder):
    text = (FOLDER / folder / "README.md").read_text(encoding="utf-8")
    parts = {"pack", "packages", "check", "pretraining", "steps", "parity", "attention", "transformers_step", "pieces"}
    left_out = [
        module_of(path)
        for path in programs(folder)
        if f"`{path.stem}`" not in text
        and module_of(path) not in text
        and not (folder == "devices" and path.stem in parts)
    ]
    assert programs(folder) and not left_out, left_out


def test_every_table_of_speeds_names_its_script():
    text = (FOLDER / "speed" / "README.md").read_text(encoding="utf-8").partition("## Measured")[2]
    rows = [row for row in text.splitlines() if row.startswith("| ") and " script |" not in row]
    scripts = {row.rstrip(" |").rpartition("| ")[2].strip("` ") for row in rows}
    assert len(rows) > 40 and scripts <= {path.stem for path in programs("speed")}, scripts


def test_every_study_has_a_program_and_its_rows():
    text = (FOLDER / "studies" / "README.md").read_text(encoding="utf-8")
    for folder in (path for path in (FOLDER / "studies").iterdir() if path.is_dir() and path.name != "__pycache__"):
        assert f"\n## {folder.name}\n" in text
        if folder.name != "shipped_models":
            assert (folder / "run.py").is_file()
            assert (folder / "rows.jsonl").is_file() or list(folder.glob("*/cells.jsonl"))
