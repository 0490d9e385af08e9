"""Command-line programs for kerasbert: `python -m pipelines.NAME --help`. They run from a clone, not from the wheel."""

import kerasbert  # noqa: F401  selects the backend before any of the scripts imports keras
