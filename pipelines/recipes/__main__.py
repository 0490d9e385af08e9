"""Runs `python -m pipelines.recipes`."""

from . import main

if __name__ == "__main__":
    main()
