"""Runs `python -m pipelines.serve`."""

from . import main

main()
