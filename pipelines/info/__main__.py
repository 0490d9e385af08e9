"""Runs `python -m pipelines.info`."""

from . import main

if __name__ == "__main__":
    main()
