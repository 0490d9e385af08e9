"""Batches of rows of similar length, in a few fixed widths that limit both padding and compilation."""

import collections
import copy
import dataclasses
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..sampling import shuffled
from .batches import ExampleBatches

WIDTHS = (16, 32, 64, 128, 256, 512)  # the width of longer rows is a multiple of the last one
FINE_WIDTHS = (8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512)
MOST_WIDTHS = 12  # maximum number of widths in a training run
PADDING = 0.12  # maximum share of padding: more widths are used only if the share would be larger
# Widths for prediction. There are few, because a model compiles a program for each width that occurs.
PREDICTED_WIDTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
TEXT = 64  # tokens in a typical text: batches for prediction contain about batch_size * TEXT tokens


def bucket_width(length: int, limit: int | None = None, widths: Sequence[int] = WIDTHS) -> int:
    """Returns the bucket width for rows of `length` tokens: the smallest of `widths` that fits, but at most `limit`.

    70 -> 128, or 100 with a limit of 100
    """
    width = next((width for width in widths if width >= length), -(-length // widths[-1]) * widths[-1])
    return max(length, width if limit is None else min(width, limit))


def batches_by_length(
    lengths: np.ndarray, batch_size: int, limit: int | None = None, exact: bool = False
) -> Iterator[tuple[np.ndarray, int, int]]:
    """Groups examples of similar length into batches, the longest first.

    All batches contain about the same number of tokens, so wide batches have fewer rows. Only the last batch is padded
    with rows, up to a power of two. A width that is only in `FINE_WIDTHS` is used only if there are enough examples for
    a full batch of that width.

    lengths 3 90 5 -> one batch of the examples [1, 2, 0], with 4 rows of width 128

    Args:
        lengths: int (n,), number of tokens in each example.
        batch_size: number of rows in a batch of width `TEXT`.
        limit: maximum width of a row, unless an example is longer.
        exact: whether every batch is exactly as wide as its longest example.

    Yields: (indices of the examples, number of rows, width) of each batch.
    """
    order = np.argsort(-lengths, kind="stable")
    fine, counts = np.unique([bucket_width(int(n), limit, FINE_WIDTHS) for n in lengths], return_counts=True)
    tokens = batch_size * TEXT
    worth = {int(width) for width, count in zip(fine, counts, strict=True) if count >= tokens // width}
    start = 0
    while start < len(order):
        longest = int(lengths[order[start]])
        width = bucket_width(longest, limit, FINE_WIDTHS)
        width = longest if exact else width if width in worth else bucket_width(longest, limit)
        rows = max(1, tokens // max(width, 1))
        examples = order[start : start + rows]
        yield examples, min(rows, 1 << (len(examples) - 1).bit_length()), width
        start += len(examples)


def row_lengths(x: dict) -> np.ndarray:
    """Number of tokens in every row, int32 (n,). For several texts per row, the length of the longest."""
    lengths = _text_lengths(x)
    return lengths if lengths.ndim == 1 else lengths.max(axis=-1)


def _text_lengths(x: dict) -> np.ndarray:
    """Number of tokens in every text, int32 (n,), or (n, c) for examples of c texts."""
    if "lengths" in x:
        lengths = np.asarray(x["lengths"])
    elif "padding_mask" in x:
        lengths = np.asarray(x["padding_mask"]).sum(axis=-1)
    else:
        lengths = np.full(x["token_ids"].shape[:-1], x["token_ids"].shape[-1])
    return lengths.astype(np.int32)


def token_count(x: dict) -> int:
    """Total number of tokens in all rows, without padding."""
    if "lengths" in x:
        return int(np.asarray(x["lengths"]).sum())
    return int(np.asarray(x["padding_mask"]).sum()) if "padding_mask" in x else int(np.size(x["token_ids"]))


def resized(array: np.ndarray, width: int, left: bool = False) -> np.ndarray:
    """Truncates the last axis of an array, or pads it with zeros, to `width` columns (on the left if `left`)."""
    missing = width - array.shape[-1]
    if missing <= 0:
        return array[..., -width:] if left else array[..., :width]
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(missing, 0) if left else (0, missing)])


def fine_width(length: int, limit: int | None = None) -> int:
    """Rounds `length` up to an even width that is at most about one sixteenth larger, and at most `limit`.

    13 -> 14, 33 -> 34, 70 -> 72, 201 -> 208
    """
    step = max(2, 1 << max(0, (length - 1).bit_length() - 5))
    width = -(-length // step) * step
    return max(length, width if limit is None else min(width, limit))


def training_widths(
    needed: Sequence[int], most: int, tokens: float, cost: float = 0.0, limit: int | None = None
) -> list[int]:
    """Selects the width of each training batch, using few different widths without much padding.

    The number of widths is the smallest (up to `most`) for which the share of padding is at most `PADDING`. If no
    number of widths achieves this, it is the smallest for which the total number of tokens, including padding, is at
    most 4% larger than with `most` widths. In a short run, in which compiling takes longer than computing with padding,
    there are fewer widths. A single width is one of `WIDTHS` if that costs little, so that later runs on other texts
    can use the same program.

    Args:
        needed: the minimum width of each batch, in descending order.
        most: maximum number of different widths.
        tokens: mean number of tokens per row, without padding.
        cost: cost of compiling a program, in columns of a batch in each pass.
        limit: maximum width.
    """
    plans = _cheapest_plans(needed, most)
    bound = max(tokens * len(needed) / (1 - PADDING), 1.04 * min(total for total, _ in plans))
    little_padding = next(number for number, (total, _) in enumerate(plans) if total <= bound)
    cheapest = min(range(len(plans)), key=lambda number: plans[number][0] + (number + 1) * cost)
    widths = plans[min(little_padding, cheapest)][1]
    if len(set(widths)) == 1:
        width = bucket_width(widths[0], limit)
        return [width if 2 * len(widths) * (width - widths[0]) <= cost else widths[0]] * len(widths)
    return widths


def prediction_widths(needed: Sequence[int], cost: float, compiled: Iterable[int] = ()) -> list[int]:
    """Selects the width of each prediction batch so that compiling and running take the least time in total.

    Args:
        needed: the minimum width of each batch, in descending order.
        cost: cost of compiling a program, in columns of a batch.
        compiled: widths whose programs are already compiled.
    """
    return min(_cheapest_plans(needed, len(needed), cost, frozenset(compiled)))[1]


def _cheapest_plans(
    needed: Sequence[int], most: int, cost: float = 0.0, compiled: Collection[int] = ()
) -> list[tuple[float, list[int]]]:
    """Finds the cheapest assignment of widths to batches for 1, 2, ... `most` different widths.

    Consecutive batches form groups that share one width: the width of the first batch, or a larger one that is already
    compiled.

    Returns: for each number of widths, the cost (the sum of the widths, plus `cost` for every width that is not
        compiled) and the width of each batch.
    """
    groups = sorted(collections.Counter(needed).items(), reverse=True)
    ends = [0, *itertools.accumulate(count for _, count in groups)]

    def part(begin: int, end: int) -> tuple[float, int]:
        """The lowest cost, and its width, if the groups [begin, end) share one width: (cost, width)."""
        count, width = ends[end] - ends[begin], groups[begin][0]
        free = [(width * count, width) for width in compiled if width > groups[begin][0]]
        return min([(width * count + (0.0 if width in compiled else cost), width), *free])

    parts = {(i, j): part(i, j) for j in range(1, len(groups) + 1) for i in range(j)}
    best: list[tuple[float, list]] = [(0.0, [])] + [(math.inf, [])] * len(groups)
    plans = []
    for _ in range(max(1, min(most, len(groups)))):
        best = best[:1] + [
            min(((best[i][0] + parts[i, j][0], [*best[i][1], (i, j)]) for i in range(j)), key=lambda found: found[0])
            for j in range(1, len(groups) + 1)
        ]
        total, cuts = best[-1]
        plans.append((total, [parts[cut][1] for cut in cuts for _ in range(ends[cut[1]] - ends[cut[0]])]))
    return plans


@dataclasses.dataclass(frozen=True)
class Widths:
    """How the widths of batches are selected.

    Args:
        limit: maximum width of a row, unless an example is longer.
        least_steps: limits the number of widths, because each width requires compiling a program. With `shuffle`, each
            width is used for at least this many steps per pass on average. Without `shuffle`, it is the time to compile
            a program, measured in steps of width 64.
        program_tokens: number of tokens that the model is trained on in the time of compiling a program, which also
            limits the number of widths. 0 if programs are free.
        by_text: whether the texts of an example may have different widths, such as short queries beside documents. The
            batches then have the keys of `text_width_key`, if that saves more than a tenth of the tokens.
    """

    limit: int | None = None
    least_steps: float = 2
    program_tokens: float = 0.0
    by_text: bool = False


def text_width_key(text: int) -> str:
    """The key of an array bool (b, w) which says by its shape that text number `text` of a row has at most w tokens.

    Compiled programs know shapes and no values, so that only a shape can tell them to compute fewer tokens.
    """
    return f"text_width_{text}"


class BucketedBatches(ExampleBatches):
    """Batches of examples of similar length from arrays in memory, padded to one of a few widths.

    The examples are sorted by length and divided into batches. Consecutive batches share a width, so that there are few
    programs to compile and little padding (see `training_widths`). Every pass uses a different order, in which the
    examples of each width are shuffled among its batches. Only the last batch of the narrowest width has padding rows.
    The first two steps of a pass are a widest batch, which reveals at once if memory is too small, and a narrowest one.

    Args:
        x: dict of arrays with "token_ids" (n, s) or (n, c, s), and "lengths" or "padding_mask". All keys but "lengths"
            have one column per token.
        y, sample_weight, batch_size, epochs, seed, shuffle: as in `ExampleBatches`. With shuffle=False, narrow batches
            come first, and examples of the same width keep their order.
        tagged: whether y and the weights also have one column per token, and are resized to the width of x.
        widths: how the widths are selected. Default: `Widths()`.
    """

    def __init__(
        self,
        x: dict,
        y: Any = None,
        sample_weight: Any = None,
        batch_size: int = 32,
        epochs: int = 1,
        seed: int = 0,
        shuffle: bool = True,
        tagged: bool = False,
        widths: Widths | None = None,
    ):
        super().__init__(x, y, sample_weight, batch_size, epochs, seed, shuffle)
        widths = widths or Widths()
        self._tagged, self._limit, self._least = tagged, widths.limit, widths.least_steps
        self._by_text = widths.by_text and shuffle and self._texts_per_row > 1
        self.pads_left = "padding_mask" in self.x
        self._lengths = row_lengths(self.x)
        self.tokens = token_count(self.x)
        self._program = widths.program_tokens / (batch_size * self._texts_per_row)  # in columns of a batch
        self._plan_buckets()

    def _plan_buckets(self, multiple: int = 1, cost: float | None = None, compiled: Iterable[int] = ()) -> None:
        """Assigns examples to batches and widths, so that the number of steps per pass is a multiple of `multiple`."""
        order = np.argsort(-self._lengths, kind="stable")
        steps = -(-len(order) // self.batch_size)
        more = -steps % multiple
        places = [*range(0, len(order), self.batch_size)]
        if more and steps + more <= len(order):  # make the last batches smaller
            cut = next(cut for cut in range(steps - 1, -1, -1) if len(order) - places[cut] >= steps - cut + more)
            parts = np.linspace(places[cut], len(order), steps - cut + more + 1).astype(int)
            places = [*places[:cut], *parts[:-1].tolist()]
        longest = [int(self._lengths[order[place]]) for place in places]
        epochs = self._items // self.steps_per_epoch
        if self.shuffle:
            needed = [fine_width(length, self._limit) for length in longest]
            most = max(1, int(min(MOST_WIDTHS, len(places) / self._least)))
            tokens = self._lengths.sum() / self.batch_size / len(places)
            widths = training_widths(needed, most, tokens, self._program / max(1, epochs), self._limit)
        else:
            needed = [bucket_width(length, self._limit, PREDICTED_WIDTHS) for length in longest]
            # Validation computes a third of a training step for each token, and is repeated in every report.
            cost = max(self._least * TEXT, 1.5 * self._program) if cost is None else cost
            widths = prediction_widths(needed, cost, compiled)
        ends = [*places[1:], len(order)]
        self._buckets: list[tuple[int, np.ndarray, list[int]]] = []  # width, examples, sizes of the batches
        for width in sorted(set(widths)):
            mine = [place for place, found in enumerate(widths) if found == width]
            examples = np.sort(order[places[mine[0]] : ends[mine[-1]]])
            self._buckets.append((width, examples, [ends[place] - places[place] for place in mine]))
        self._text_widths = self._plan_texts() if self._by_text else {}
        self._plan: tuple = (None, None, None)
        self.steps_per_epoch = len(places)
        self._items = epochs * self.steps_per_epoch

    def _plan_texts(self) -> dict[int, list[int]]:
        """The width of each text of a row, {width of a batch: widths}; {} if the texts are of similar length."""
        lengths, found, computed, saved = _text_lengths(self.x), {}, 0, 0
        for width, examples, _ in self._buckets:
            found[width] = [min(width, fine_width(int(n), self._limit)) for n in lengths[examples].max(axis=0)]
            computed += len(examples) * width * len(found[width])
            saved += len(examples) * sum(width - narrow for narrow in found[width])
        return found if saved > computed / 10 else {}

    def in_multiples_of(self, number: int) -> "BucketedBatches":
        """Splits narrow batches further, so that the number of steps per pass is a multiple of `number`."""
        found = copy.copy(self)
        found._plan_buckets(number)
        return found

    def for_prediction(self, cost: float, compiled: Iterable[int] = ()) -> "BucketedBatches":
        """Returns the same examples in the widths for which prediction is fastest. Requires shuffle=False.

        Args:
            cost: time to compile a program, as the number of tokens that a compiled program processes in that time.
            compiled: widths whose programs are already compiled for the model.
        """
        found = copy.copy(self)
        found._plan_buckets(cost=cost / (self.batch_size * self._texts_per_row), compiled=compiled)
        return found

    @property
    def _texts_per_row(self) -> int:
        return int(np.prod(self.x["token_ids"].shape[1:-1], dtype=int))

    @property
    def widths(self) -> list[int]:
        """The different widths, narrowest first."""
        return [width for width, _, _ in self._buckets]

    @property
    def tokens_per_step(self) -> int:
        """Mean number of tokens per step over a pass, without padding."""
        return max(1, round(self.tokens / self.steps_per_epoch / (self.batch_size / self.rows)))

    def _pass(self, number: int) -> tuple[list[np.ndarray], list[int]]:
        """The examples and the width of every step of a pass."""
        plan = self._plan  # read only once, because other threads may set it
        if plan[0] == number:
            return plan[1:]
        batches, widths = [], []
        for width, examples, sizes in self._buckets:
            if self.shuffle:
                order = shuffled(np.arange(len(examples)), len(examples), self.seed, number)
                examples = examples[order]
            batches += np.split(examples, np.cumsum(sizes)[:-1])
            widths += [width] * len(sizes)
        if self.shuffle and len(batches) > 2:
            inner = 1 + shuffled(np.arange(len(batches) - 2), len(batches) - 2, self.seed, number)
            order = [len(batches) - 1, 0, *inner]
            batches, widths = [batches[i] for i in order], [widths[i] for i in order]
        self._plan = (number, batches, widths)
        return batches, widths

    def _rows(self, update: int, first: int, last: int) -> tuple:
        number, step = divmod(update, self.steps_per_epoch)
        batches, widths = self._pass(number)
        x, y, weight = self._taken(batches[step][first:last], last - first)
        x = {k: array if k == "lengths" else resized(array, widths[step], self.pads_left) for k, array in x.items()}
        for text, width in enumerate(self._text_widths.get(widths[step], ())):
            x[text_width_key(text)] = np.zeros((last - first, width), bool)
        if self._tagged and y is not None:
            y, weight = (resized(array, widths[step], self.pads_left) for array in (y, weight))
        return x, y, weight

    def shape_steps(self) -> list[int]:
        first: dict[int, int] = {}
        # Search two passes: a run that begins in the middle of a pass may reach some widths only late in the next one.
        for step in range(min(len(self), 2 * self.steps_per_epoch * self.accumulation)):
            number, place = divmod((self._start + step) // self.accumulation, self.steps_per_epoch)
            first.setdefault(self._pass(number)[1][place], step)
        return sorted(first.values())

    def parts(self) -> Iterator[tuple["BucketedBatches", np.ndarray]]:
        """Yields the batches of each width with the indices of their examples. Requires shuffle=False."""
        batches, widths = self._pass(0)
        for width in sorted(set(widths)):
            steps = [step for step, w in enumerate(widths) if w == width]
            part = copy.copy(self)
            part._start, part._items = steps[0], steps[-1] + 1
            yield part, np.concatenate([batches[step] for step in steps])
