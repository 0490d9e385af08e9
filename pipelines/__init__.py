"""Command lines over kerasbert: `python -m pipelines.NAME --help`. They run from a clone and are not installed."""

import kerasbert  # noqa: F401  picks the backend, before any of the scripts imports keras
