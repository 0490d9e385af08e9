"""Command-line programs for kerasbert: `kerasbert NAME --help`, or `python -m pipelines.NAME --help` in a clone.

In the wheel, they are the package `kerasbert.pipelines`.
"""

import os
import sys
from pathlib import Path

import kerasbert  # noqa: F401  selects the backend before any of the scripts imports keras

# TensorFlow's C++ code logs several lines whenever it is imported; its errors are exceptions in Python, too.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# In an installed clone, the package could be imported under both names, which would create every class twice.
_other = sys.modules.get("pipelines" if __name__ == "kerasbert.pipelines" else "kerasbert.pipelines")
if _other is not None and Path(__file__).parent in map(Path, _other.__path__):
    raise ImportError(
        f"A program must import the pipelines under only one name. Received: {__name__} after {_other.__name__}. "
        f"Use {_other.__name__}."
    )
