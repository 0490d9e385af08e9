"""Runs `python -m pipelines.show`."""

from . import main

main()
