"""Finds the folder of a model: on this machine, among the models that come with the package, or on the Hub."""

import difflib
import re
from pathlib import Path

from ..core.family import size_names
from ..data.text import shipped
from ..data.text.json_files import closest
from ..data.text.shipped import ONLY_IN_CLONES, SHIPPED, SHIPPED_FOLDERS
from .hub import download


def shipped_folder(name):
    """Returns the folder of a model that comes with the package or its repository, or None if there is none."""
    return shipped.shipped_folder(name, SHIPPED_FOLDERS)


def find_folder(path, revision=None, token=None):
    """Returns the local folder of a model, which is downloaded if necessary.

    Args:
        path: a local folder, `"hf://org/name"`, or the name of a model that comes with the package.
        revision: branch, tag or commit on the Hugging Face Hub.
        token: access token for the Hub.

    Raises: FileNotFoundError if there is no such folder. ImportError if `huggingface_hub` is needed but not installed.
    """
    if str(path).startswith("hf://"):
        return download(str(path)[5:], revision, token)
    if not Path(path).is_dir():
        if Path(path).name != str(path):
            hub = f". For a model on the hub, use hf://{path}" if re.fullmatch(r"[\w.-]+/[\w.-]+", str(path)) else ""
            raise FileNotFoundError(f"There is no folder {path}{hub}")
        shipped = shipped_folder(str(path))
        if shipped is not None:
            return shipped
        known = ", ".join(filter(shipped_folder, SHIPPED + ONLY_IN_CLONES)) or f"{', '.join(SHIPPED)}, missing here"
        sizes = closest(path, size_names())
        close = difflib.get_close_matches(str(path), [*SHIPPED, *ONLY_IN_CLONES, *size_names()], n=1)
        raise FileNotFoundError(
            f"A preset is a folder, hf://org/name, a model that comes with kerasbert ({known}) or, in `from_preset`, a "
            f"size ({sizes}). Received: {str(path)!r}, which is none of them."
            + (f" Did you mean {close[0]}?" if close else "")
        )
    return Path(path)
