"""Command lines over kerasbert: `python -m pipelines.NAME --help`. They run from a clone and are not installed."""
