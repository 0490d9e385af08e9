"""Runs `python -m pipelines.show`."""

from . import main

if __name__ == "__main__":
    main()
