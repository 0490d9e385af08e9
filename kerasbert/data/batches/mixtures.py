"""Mixtures of batches from several tasks or languages, and the mixing rates used in the papers."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from ..sampling import MIXTURE, raw_bits
from .batches import Batches
from .passes import PassBatches

_BLOCK = 256  # with by="batches", the order of the parts is drawn at random for this many updates at a time


def mixing_rates(sizes: Sequence[float], exponent: float = 1.0, limit: float | None = None) -> np.ndarray:
    """Computes the share of each part of a mixture, proportional to min(size, limit) ** exponent.

    The exponent is 0.7 in mBERT, 0.5 in XLM, and 0.3 in XLM-R and mT5. T5's temperature T is equivalent to the exponent
    1 / T, and its examples-proportional mixing to the exponent 1 with a limit. With exponent 0, all shares are equal.

    sizes 900 90 10, exponent 0.7 -> 0.8049 0.1606 0.0345
    sizes 1,000,000 100,000 1,000, limit 65,536 -> 0.4962 0.4962 0.0076

    Returns: float64 (n,), with sum 1.

    Raises:
        ValueError: if there are no sizes, a size or `limit` is not positive, or `exponent` is below 0.
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    if not len(sizes) or not (sizes > 0).all() or not np.isfinite(sizes).all():
        raise ValueError(f"Every part of a mixture must have a positive, finite size. Received: {sizes.tolist()}.")
    if not 0 <= exponent < np.inf or (limit is not None and not limit > 0):
        raise ValueError(f"`exponent` must be at least 0, and `limit` must be positive. Received: {exponent}, {limit}.")
    weights = np.minimum(sizes, np.inf if limit is None else limit)
    weights = (weights / weights.max()) ** exponent
    return weights / weights.sum()


def mixed_documents(sources: Mapping[str, Iterable[str]], rates: Mapping[str, float], characters: int) -> Iterator[str]:
    """Yields documents of several languages in given shares, for training a vocabulary.

    The next document always comes from the source that is furthest below its share. When a source is exhausted, it
    starts again.

    Args:
        sources: the documents of each source, by name, as lists or other iterables that can be iterated more than once.
        rates: share of each source, by name. Use `mixing_rates` with the same exponent as in training.
        characters: total number of characters.

    Raises:
        ValueError: if `rates` lack a positive number for a source, or a source yields no text.
    """
    if not sources or set(sources) != set(rates) or not all(rate > 0 for rate in rates.values()):
        raise ValueError(
            f"`rates` must have a positive number for every source. Received: {dict(rates)} for {[*sources]}."
        )
    running = {name: iter(documents) for name, documents in sources.items()}
    done, at_start = dict.fromkeys(sources, 0), dict.fromkeys(sources, 0)
    while sum(done.values()) < characters:
        name = min(sources, key=lambda name: done[name] / rates[name])
        document = next(running[name], None)
        if document is None:
            running[name] = iter(sources[name])
            document = next(running[name], None)
            if document is None or done[name] == at_start[name]:  # no documents, or only empty ones
                raise ValueError(
                    f"Every source must yield text whenever it is iterated. Received: no text from {name!r}."
                )
            at_start[name] = done[name]
        done[name] += len(document)
        yield document


class MixtureBatches(Batches):
    """Mixes the rows of several `Batches` (the parts) in given shares.

    The order is random, but the number of rows that each part has contributed so far matches its share, up to rounding,
    after every update (with by="batches", after every 256 updates). Each part makes passes over its text independently.

    Args:
        parts: the `Batches`, by name. Their `batch_size` and steps are ignored. Parts that do not read a
            `Corpus` also contribute the padding rows at the end of each pass.
        rates: share of each part, by name. They need not add up to 1 (see `mixing_rates`). Default: proportional to the
            number of rows in one pass.
        batch_size: rows per update.
        steps: number of updates in the run.
        seed: seed of the order.
        by: "rows" mixes the parts within each batch, and requires that they have the same keys and shapes. "batches"
            takes all rows of an update from one part, as in XLM.

    Raises:
        ValueError: if there are no parts, `rates` lack a positive number for a part, `by` is unknown, parts for
            by="rows" differ in keys or shapes, or the rows of a part continue from step to step.
    """

    def __init__(
        self,
        parts: Mapping[str, Batches],
        rates: Mapping[str, float] | None = None,
        batch_size: int = 32,
        steps: int = 0,
        seed: int = 0,
        by: Literal["rows", "batches"] = "rows",
    ):
        if not parts:
            raise ValueError("A mixture needs at least one part. Received: none.")
        if by not in ("rows", "batches"):
            raise ValueError(f'`by` must be "rows" or "batches". Received: {by!r}.')
        if rates is None:
            rates = {name: part.num_rows for name, part in parts.items()}
        if set(rates) != set(parts) or not all(rate > 0 for rate in rates.values()):
            raise ValueError(
                f"`rates` must have a positive number for every part. Received: {dict(rates)} for the parts "
                f"{', '.join(parts)}. Leave out parts that should not be used."
            )
        self.parts = {n: part.endless() if isinstance(part, PassBatches) else part for n, part in parts.items()}
        total = sum(rates.values())
        self.rates = {name: float(rates[name] / total) for name in parts}
        self.by = by
        self.length = max(part.length for part in parts.values())
        self._shares = np.array(list(self.rates.values()))
        super().__init__(batch_size, steps, seed)
        self._check_shapes()

    @property
    def single_step(self) -> str:
        return next((part.single_step for part in self.parts.values() if part.single_step), "")

    @property
    def tokens_per_step(self) -> int:
        """Mean number of tokens in one step, including padding."""
        each = [part.tokens_per_step / part.rows for part in self.parts.values()]
        return round(self.rows * float(self._shares @ each))

    def corpora(self) -> list:
        return [corpus for part in self.parts.values() for corpus in part.corpora()]

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
        """The name of the part that each row of a step comes from."""
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
        """With by="batches", a number of consecutive updates that use every part at least once."""
        return _BLOCK + math.ceil(1 / float(self._shares.min()))

    def _turn(self, update: int) -> tuple[str, int]:
        """The name of the part that an update uses, and the number of earlier updates that use the same part."""
        block, place = divmod(update, _BLOCK)
        counts, order = self._drawn(block, _BLOCK)
        number = order[place]
        return list(self.parts)[number], int(counts[number] + np.count_nonzero(order[:place] == number))

    def _drawn(self, block: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Assigns the rows (or updates) of a block to the parts.

        Returns: the number of rows of each part before the block, and the index of the part of each row in the block.
        """
        before, after = self._quotas(block * size), self._quotas((block + 1) * size)
        order = np.repeat(np.arange(len(before)), after - before)
        return before, order[np.argsort(raw_bits(self.seed, MIXTURE, size, step=block), kind="stable")]

    def _quotas(self, count: int) -> np.ndarray:
        """Number of rows of each part among the first `count` rows, by Webster's method. It grows monotonically."""
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
                    "Rows for a model with a memory must continue from step to step, but rows of a mixture do not. "
                    f"Received: the part {name!r}, which has such rows. Write all the text into one corpus."
                )
            if self.by == "rows" and shape != shapes[first]:
                different = sorted(key for key in {*shape, *shapes[first]} if shape.get(key) != shapes[first].get(key))
                raise ValueError(
                    "Parts that are mixed within a batch must have the same keys and shapes. Received: "
                    f"{name!r} and {first!r}, which differ in {', '.join(different)}. Give them the same lengths and "
                    'options, or use by="batches".'
                )


def _running(part: Batches, start: int, stop: int) -> tuple:
    """Rows [start, stop) of a part, numbered consecutively over all updates of its run."""
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
    """The arrays of a batch as (name, array), with names such as "x.token_ids" and "y"."""
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
