"""Mixtures: batches from several tasks or languages, with mixing rates as in the papers."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from ..sampling import MIXTURE, raw_bits
from .batches import Batches
from .passes import PassBatches

_BLOCK = 256  # updates whose parts are shuffled together


def mixing_rates(sizes: Sequence[float], exponent: float = 1.0, limit: float | None = None) -> np.ndarray:
    """Shares in proportion to min(size, limit) ** exponent.

    The exponent of mBERT is 0.7, that of XLM 0.5, that of XLM-R and mT5 0.3; T5's temperature T is the exponent 1 / T,
    and its examples-proportional mixing is exponent 1 with a limit. Exponent 0 makes all shares equal.

    sizes 900 90 10, exponent 0.7 -> 0.8049 0.1606 0.0345
    sizes 1,000,000 100,000 1,000, limit 65,536 -> 0.4962 0.4962 0.0076

    Raises:
        ValueError: if there are no sizes, or one is not above 0.
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    if not len(sizes) or not (sizes > 0).all() or not np.isfinite(sizes).all():
        raise ValueError(f"Every part of a mixture must have a size above 0. Received: {sizes.tolist()}.")
    if not 0 <= exponent < np.inf or (limit is not None and not limit > 0):
        raise ValueError(f"`exponent` must be at least 0 and `limit` above 0. Received: {exponent}, {limit}.")
    weights = np.minimum(sizes, np.inf if limit is None else limit)
    weights = (weights / weights.max()) ** exponent
    return weights / weights.sum()


def mixed_documents(sources: Mapping[str, Iterable[str]], rates: Mapping[str, float], characters: int) -> Iterator[str]:
    """Documents from several languages in given shares of the text, to train a vocabulary on.

    The next document always comes from the source that is furthest below its share; a source that ends starts again.

    Args:
        sources: documents by name, as lists or other iterables that can be iterated more than once.
        rates: share of each source (see `mixing_rates`, with the exponent used in training).
        characters: amount of text.
    """
    if not sources or set(sources) != set(rates) or not all(rate > 0 for rate in rates.values()):
        raise ValueError(f"`rates` must give every source a number above 0. Received: {dict(rates)} for {[*sources]}.")
    running = {name: iter(documents) for name, documents in sources.items()}
    done, at_start = dict.fromkeys(sources, 0), dict.fromkeys(sources, 0)
    while sum(done.values()) < characters:
        name = min(sources, key=lambda name: done[name] / rates[name])
        document = next(running[name], None)
        if document is None:
            running[name] = iter(sources[name])
            document = next(running[name], None)
            if document is None or done[name] == at_start[name]:  # no documents, or only empty ones
                raise ValueError(f"Every source must have documents on every iteration. Received: none from {name!r}.")
            at_start[name] = done[name]
        done[name] += len(document)
        yield document


class MixtureBatches(Batches):
    """Rows of several `Batches`, mixed with a given share of each part.

    After every update, or with by="batches" after every block of updates, each part has contributed its share up to
    rounding; the order is random. Each part makes separate passes over its text.

    Args:
        parts: by name. Their `batch_size`, steps and accumulation are ignored; where a pass of a part that is not from
            a `Corpus` ends, its padding rows are included.
        rates: share of each part, by name; they need not add up to 1 (see `mixing_rates`). Default: in proportion to
            the rows of one pass.
        batch_size: rows per update.
        steps: number of updates in the run.
        seed: determines the order.
        by: "rows" mixes within a batch, which requires all parts to have the same keys and shapes; "batches" takes each
            update from one part, as in XLM.
        accumulation: number of items per update.
    """

    def __init__(
        self,
        parts: Mapping[str, Batches],
        rates: Mapping[str, float] | None = None,
        batch_size: int = 32,
        steps: int = 0,
        seed: int = 0,
        by: Literal["rows", "batches"] = "rows",
        accumulation: int = 1,
    ):
        if not parts:
            raise ValueError("A mixture needs at least one part. Received: none.")
        if by not in ("rows", "batches"):
            raise ValueError(f'`by` must be "rows" or "batches". Received: {by!r}.')
        if rates is None:
            rates = {name: part.num_rows for name, part in parts.items()}
        if set(rates) != set(parts) or not all(rate > 0 for rate in rates.values()):
            raise ValueError(
                f"`rates` must give every part a number above 0. Received: {dict(rates)} for the parts "
                f"{', '.join(parts)}. Leave out parts that should not be used."
            )
        self.parts = {n: part.endless() if isinstance(part, PassBatches) else part for n, part in parts.items()}
        total = sum(rates.values())
        self.rates = {name: float(rates[name] / total) for name in parts}
        self.by = by
        self.length = max(part.length for part in parts.values())
        self._shares = np.array(list(self.rates.values()))
        super().__init__(batch_size, steps, seed, accumulation)
        self._check_shapes()

    @property
    def tokens_per_step(self) -> int:
        """Token slots of one item, including padding: the mean over the parts."""
        each = [part.tokens_per_step / part.rows for part in self.parts.values()]
        return round(self.rows * float(self._shares @ each))

    def recipe(self) -> dict:
        parts = {name: part.recipe() for name, part in self.parts.items()}
        return {**super().recipe(), "parts": parts, "rates": self.rates, "by": self.by}

    def shape_steps(self) -> list[int]:
        if self.by == "rows":
            return super().shape_steps()
        first: dict[tuple, int] = {}
        for step in range(min(len(self), self._period * self.accumulation)):
            name, before = self._turn((self._start + step) // self.accumulation)
            start = before * self.batch_size
            shape = _shapes(_running(self.parts[name], start, start + 1))
            first.setdefault((name, *sorted(shape.items())), step)
        return sorted(first.values())

    def part_of(self, step: int) -> list[str]:
        """Names of the parts from which the rows of a step come."""
        names = list(self.parts)
        update, micro = divmod(self._start + step, self.accumulation)
        first = micro * (self.batch_size // self.accumulation) + self._part * self.rows
        if self.by == "batches":
            return [self._turn(update)[0]] * self.rows
        return [names[number] for number in self._drawn(update, self.batch_size)[1][first : first + self.rows]]

    def _rows(self, update: int, first: int, last: int) -> tuple:
        parts = list(self.parts.values())
        if self.by == "batches":
            name, before = self._turn(update)
            start = before * self.batch_size
            return _running(self.parts[name], start + first, start + last)
        counts, order = self._drawn(update, self.batch_size)
        batch, here = None, order[first:last]
        for number in np.unique(here):
            start = int(counts[number] + np.count_nonzero(order[:first] == number))
            places = np.flatnonzero(here == number)
            found = _running(parts[number], start, start + len(places))
            if batch is None:
                batch = _like(found, last - first)
            _put(batch, found, places)
        return batch

    @property
    def _period(self) -> int:
        """Number of updates after which every part has been used, with by="batches"."""
        return _BLOCK + math.ceil(1 / float(self._shares.min()))

    def _turn(self, update: int) -> tuple[str, int]:
        """The part that an update uses, and the number of updates of that part before it."""
        block, place = divmod(update, _BLOCK)
        counts, order = self._drawn(block, _BLOCK)
        number = order[place]
        return list(self.parts)[number], int(counts[number] + np.count_nonzero(order[:place] == number))

    def _drawn(self, block: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Number of rows (updates) of each part before a block, and the parts of those in the block, in order."""
        before, after = self._quotas(block * size), self._quotas((block + 1) * size)
        order = np.repeat(np.arange(len(before)), after - before)
        return before, order[np.argsort(raw_bits(self.seed, MIXTURE, size, step=block), kind="stable")]

    def _quotas(self, count: int) -> np.ndarray:
        """Number of the first `count` rows that belong to each part, by Webster's method: no quota ever shrinks."""
        quotas = np.floor(self._shares * count + 0.5).astype(np.int64)
        while (excess := quotas.sum() - count) != 0:
            times = (quotas + (0.5 if excess < 0 else -0.5)) / self._shares
            if excess < 0:
                quotas[np.argmin(times)] += 1
            else:
                quotas[len(times) - 1 - np.argmax(times[::-1])] -= 1
        return quotas

    def _check_shapes(self) -> None:
        shapes = {name: _shapes(_running(part, 0, 1)) for name, part in self.parts.items()}
        first = next(iter(shapes))
        for name, shape in shapes.items():
            if "x.stream_start" in shape:
                raise ValueError(
                    "Rows of a stream must continue from step to step, which those of a mixture do not. Received: "
                    f"{name!r}, whose rows are for a memory. Write all the text into one corpus."
                )
            if self.by == "rows" and shape != shapes[first]:
                different = sorted(key for key in {*shape, *shapes[first]} if shape.get(key) != shapes[first].get(key))
                raise ValueError(
                    "Parts that are mixed within a batch must have the same keys and shapes. Received: "
                    f"{name!r} and {first!r}, which differ in {', '.join(different)}. Give them the same lengths and "
                    'options, or use by="batches".'
                )


def _running(part: Batches, start: int, stop: int) -> tuple:
    """Rows [start, stop) of a part, counted from the start of its run."""
    if isinstance(part, PassBatches):
        return part._rows(0, start, stop)
    batch, place = None, start
    while place < stop:
        update, first = divmod(place, part.batch_size)
        last = min(first + stop - place, part.batch_size)
        found = part._rows(update, first, last)
        batch = _like(found, stop - start) if batch is None else batch
        _put(batch, found, np.arange(place - start, place - start + last - first))
        place += last - first
    return batch


def _parts(batch: tuple) -> list[tuple[str, np.ndarray]]:
    """The arrays of a batch with their names."""
    found = []
    for name, value in zip(("x", "y", "weights"), batch, strict=True):
        found += [(f"{name}.{key}", v) for key, v in value.items()] if isinstance(value, dict) else [(name, value)]
    return found


def _shapes(batch: tuple) -> dict[str, tuple]:
    return {name: (array.shape[1:], array.dtype) for name, array in _parts(batch)}


def _like(batch: tuple, rows: int) -> tuple:
    def empty(value):
        if isinstance(value, dict):
            return {name: empty(array) for name, array in value.items()}
        return np.empty((rows, *value.shape[1:]), value.dtype)

    return tuple(map(empty, batch))


def _put(batch: tuple, rows: tuple, places: np.ndarray) -> None:
    for (_, whole), (_, part) in zip(_parts(batch), _parts(rows), strict=True):
        whole[places] = part
