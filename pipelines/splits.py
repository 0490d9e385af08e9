"""Which examples are for what: held-out data by name, and a part of the training data that is kept out of it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .examples import Examples


def named_sources(held_out: str | Path | Sequence[str]) -> dict[str, str]:
    """Held-out data by name: `de=test.de.tsv`, or the name of the file; one alone that has no name has the name "".

    Two parallel files are one source, `test.de,test.en`.
    """
    entries = [held_out] if isinstance(held_out, (str, Path)) else list(held_out or ())
    named: dict[str, str] = {}
    for entry in map(str, entries):
        name, equals, path = entry.partition("=")
        if not equals or not name.replace("_", "a").replace("-", "a").isalnum() or Path(entry).exists():
            name, path = "" if len(entries) == 1 else Path(entry.replace("#", "_")).name.split(".")[0], entry
        if name in named:
            raise ValueError(f"Held-out data must have different names. Received twice: {name!r}. Write name=path.")
        named[name] = path
    return named


def split_tenth(examples: Examples) -> tuple[Examples, Examples]:
    """All but a tenth of the examples, and this tenth: of every ten one, at a place that is drawn.

    Every tenth one would be of one class where the classes take turns.
    """
    if len(examples) < 10:
        raise ValueError(f"A tenth of the examples is one or more of them. Received: {len(examples)} examples.")
    places = np.random.Generator(np.random.Philox(0)).integers(0, 10, len(examples) // 10)
    drawn = {10 * ten + int(place) for ten, place in enumerate(places)}
    parts: tuple[list[int], list[int]] = ([], [])
    for number in range(len(examples)):
        parts[number in drawn].append(number)
    return tuple(Examples([examples.x[i] for i in part], [examples.y[i] for i in part]) for part in parts)
