"""Names held-out data sets, compares them with the training data, and splits a validation set off that data."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from .examples import Examples


def named_sources(held_out: str | Path | Sequence[str]) -> dict[str, str]:
    """Maps names to held-out data: the name in `de=test.de.tsv`, or else the file name, or "" for a single source.

    If files have equal stems, their names include as much of their paths as is needed to distinguish them. Two parallel
    files, `test.de,test.en`, are one source.

    de/test.tsv en/test.tsv -> de_test, en_test; test.csv test.tsv -> test.csv, test.tsv
    """
    entries = [held_out] if isinstance(held_out, (str, Path)) else list(held_out or ())
    given: list[str | None] = []
    paths: list[str] = []
    for entry in map(str, entries):
        name, equals, path = entry.partition("=")
        is_named = equals and name.replace("_", "a").replace("-", "a").isalnum() and not Path(entry).exists()
        given.append(name if is_named else None)
        paths.append(path if is_named else entry)
    bare = [path for name, path in zip(given, paths, strict=True) if name is None]
    names = [""] if len(entries) == 1 else _distinct_names(bare)
    found = iter(names)
    named: dict[str, str] = {}
    for name, path in zip(given, paths, strict=True):
        name = next(found) if name is None else name
        if name in named:
            raise ValueError(f"Held-out data must have different names. Received twice: {name!r}. Write name=path.")
        named[name] = path
    return named


def _distinct_names(paths: list[str]) -> list[str]:
    """Returns a short, unique name for each path."""
    parts = [Path(path.replace("#", "_")).parts for path in paths]
    stems = [part[-1].split(".")[0] for part in parts]

    def name(place: int) -> str:
        alike = [other for other, stem in enumerate(stems) if stem == stems[place] and paths[other] != paths[place]]
        if not alike:
            return stems[place]
        if len({parts[other][-1] for other in (*alike, place)}) > len(alike):
            return parts[place][-1]
        for count in range(1, max(map(len, parts))):
            folders = [part[-1 - count : -1] for part in parts]
            if all(folders[other] != folders[place] for other in alike):
                return "_".join((*(part.strip("/\\:") for part in folders[place]), stems[place]))
        return parts[place][-1]

    return [name(place) for place in range(len(paths))]


def count_repeated(training: Examples, testing: Mapping[str, Examples]) -> dict[str, int]:
    """Counts the examples of each held-out data set whose input is also in the training data, whatever their labels.

    The queries of a collection are compared with the first texts of the training data.
    """
    known = {repr(x) for x in training.x} | {repr(x[0]) for x in training.x if isinstance(x, tuple)}
    return {name: sum(repr(x) in known for x in examples.x) for name, examples in testing.items()}


def split_tenth(examples: Examples) -> tuple[Examples, Examples]:
    """Splits off a tenth of the examples for validation: one of every ten examples, at a random position.

    Positions are random because every tenth example could have the same label if labels alternate.

    Returns: (the other examples, the tenth).
    """
    if len(examples) < 10:
        raise ValueError(f"At least 10 examples are needed to split off a tenth. Received: {len(examples)}.")
    places = np.random.Generator(np.random.Philox(0)).integers(0, 10, len(examples) // 10)
    drawn = {10 * ten + int(place) for ten, place in enumerate(places)}
    parts: tuple[list[int], list[int]] = ([], [])
    for number in range(len(examples)):
        parts[number in drawn].append(number)
    return tuple(Examples([examples.x[i] for i in part], [examples.y[i] for i in part]) for part in parts)
