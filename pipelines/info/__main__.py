"""Runs `python -m pipelines.info`."""

from . import main

main()
