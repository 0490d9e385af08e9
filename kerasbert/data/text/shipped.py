"""Finds the models that come with the package."""

from collections.abc import Sequence
from pathlib import Path

# An installed package has them in kerasbert/saved_models, a clone of the repository in saved_models, next to kerasbert,
# with two more models.
SHIPPED = ("bert_mini_en", "modernbert_mini_en_embedder")
ONLY_IN_CLONES = ("modernbert_mini_en", "gpt2_mini_en")
_PACKAGE = Path(__file__).parent.parent.parent
SHIPPED_FOLDERS = (_PACKAGE / "saved_models", _PACKAGE.parent / "saved_models")


def shipped_folder(name: str, folders: Sequence[Path] = SHIPPED_FOLDERS) -> Path | None:
    """Returns the folder of a model that comes with the package or its repository, or None if there is none."""
    found = [folder / name for folder in folders] if name in SHIPPED + ONLY_IN_CLONES else []
    return next((folder for folder in found if (folder / "config.json").is_file()), None)
