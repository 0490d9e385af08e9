"""Computes the rows of many requests together: threads for the engine, a bounded queue, batches by length."""

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any

from kerasbert.runtime import ExportedModel, Job, Row

WINDOW = 4  # batches whose rows are sorted by length
LEAST_TOKENS = 256  # of a batch, with padding; below, starting the engine costs more than padding
PADDING = 0.12  # maximum share of padding in a batch of more than `LEAST_TOKENS`
BATCH_SECONDS = 0.2  # a batch has fewer tokens where its maximum would take longer: others wait for it
LATER_SECONDS = 0.5  # for which a long text may be passed by shorter ones
UNKNOWN_RATE = 1_000.0  # tokens a second, until the speed is known
RATE_SECONDS = 2.0  # of computing, after which a measurement of the speed counts half
ADMITTED = 0.75  # of `queue_seconds`, which a request may be expected to wait: the engine may become slower meanwhile


class Overloaded(Exception):
    """The queue is full, a request has waited for too long, or the server is stopping.

    Args:
        seconds: when the client may try again.
    """

    def __init__(self, seconds: int):
        super().__init__(f"The server has more requests than it can answer. Try again in {seconds} s.")
        self.seconds = seconds


@dataclass(eq=False)
class _Request:
    """A request whose rows are computed, in one batch or in several."""

    model: ExportedModel
    rows: Sequence[Row]
    future: Future = field(default_factory=Future)
    outputs: list[Any] = field(default_factory=list)
    missing: int = 0
    tokens: int = 0  # that wait in the queue
    since: float = field(default_factory=time.monotonic)
    begun: bool = False  # whether rows of it were taken from the queue


class Batcher:
    """Computes rows in threads, each in batches of rows of similar length.

    A row is due when it would be computed if all requests that are there shared the engine equally, so that a short
    request does not wait for all of a long one. As that time does not change, no row waits forever. A batch has the row
    that is due first, and those of the next ones whose lengths are closest.

    Args:
        batch_tokens: maximum number of tokens per batch, with padding, unless a single row has more.
        queue_tokens: maximum number of tokens for which a request waits. It is refused if there are more.
        queue_seconds: maximum time for which it waits until its first rows are computed. It is refused at once if it
            would probably wait for longer, and after this time if the engine has become slower meanwhile.
        observe: function that is called with (rows, tokens, seconds) of each batch.
        threads: number of batches that are computed at the same time.
    """

    def __init__(
        self,
        batch_tokens: int = 1_024,
        queue_tokens: int = 262_144,
        queue_seconds: float = float("inf"),
        observe: Callable[[int, int, float], None] = lambda rows, tokens, seconds: None,
        threads: int = 1,
    ):
        self.batch_tokens, self.queue_tokens, self.queue_seconds = batch_tokens, queue_tokens, queue_seconds
        self.observe = observe
        self._requests: set[_Request] = set()  # that have rows in the queue
        self._queues: dict[ExportedModel, list[tuple]] = {}  # heaps of (due, number, request, index of the row)
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._speed = Speed()
        self._closing = False
        self._threads = [threading.Thread(target=self._run, name="engine", daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, model: ExportedModel, job: Job) -> Future:
        """Queues the rows of a job. Returns a future of the list of their outputs, which may be canceled.

        Raises: Overloaded if the queue is full.
        """
        request = _Request(model, job.rows, outputs=[None] * len(job.rows), missing=len(job.rows))
        if not job.rows:
            request.future.set_result([])
            return request.future
        with self._changed:
            request.tokens = job.tokens
            self.check(request.tokens)
            queue = self._queues.setdefault(model, [])
            self._requests.add(request)
            share = (self._speed.rate or UNKNOWN_RATE) / len(self._requests)
            due = request.since + min(LATER_SECONDS, len(job.rows[0]) / share)
            for index, row in enumerate(job.rows):
                heapq.heappush(queue, (due, next(self._numbers), request, index))
                due += len(row) / share
            self._changed.notify()
        request.future.add_done_callback(lambda future: self._forget(request))
        return request.future

    def check(self, tokens: int = 0) -> None:
        """Raises Overloaded if a request of this many tokens would be refused, and for 0, if any would be."""
        with self._changed:
            before = sum(min(max(tokens, LEAST_TOKENS), other.tokens) for other in self._requests)
            seconds = before / self._speed.rate if self._speed.rate else 0.0
            if self._closing or before > self.queue_tokens or seconds > ADMITTED * self.queue_seconds:
                raise Overloaded(max(1, math.ceil(seconds / 2)))

    @property
    def waiting(self) -> int:
        """Number of tokens in the queue."""
        with self._changed:
            return sum(request.tokens for request in self._requests)

    def close(self) -> None:
        """Refuses new requests, and returns when those in the queue are answered."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _forget(self, request):
        """Removes a request that is done, or canceled, from those that wait. Its rows are dropped when they are due."""
        with self._changed:
            self._requests.discard(request)

    # === The threads ===

    def _run(self):
        while True:
            free = time.monotonic()  # when this thread could start its batch
            with self._changed:
                while not (batch := self._next_batch()):
                    if self._closing:
                        return
                    self._changed.wait()
                    free = time.monotonic()
            self._compute(batch, free)

    def _next_batch(self):
        """Takes a batch from the queue: a list of (request, index of the row), or an empty list."""
        due = {model: queue[0][:2] for model, queue in self._queues.items() if self._drop(queue)}
        if not due:
            return []
        queue = self._queues[min(due, key=lambda model: due[model])]
        most = self.batch_tokens
        if self._speed.rate:
            most = min(most, max(LEAST_TOKENS, int(self._speed.rate / len(self._threads) * BATCH_SECONDS)))
        window, tokens = [heapq.heappop(queue)], 0
        first = window[0]
        while tokens < WINDOW * most and self._drop(queue):
            window.append(heapq.heappop(queue))
            tokens += _length(window[-1])
        window.sort(key=_length)
        start, stop = chosen(list(map(_length, window)), window.index(first), most)
        for entry in (*window[:start], *window[stop:]):
            heapq.heappush(queue, entry)
        batch = [(request, index) for _, _, request, index in window[start:stop]]
        for request, index in batch:
            request.begun = True
            request.tokens -= len(request.rows[index])
            if not request.tokens:
                self._requests.discard(request)
        return batch

    def _drop(self, queue):
        """Removes the rows at the top of a queue whose requests are done or have waited for too long.

        Returns whether there are others.
        """
        while queue:
            request = queue[0][2]
            if not request.begun and time.monotonic() - request.since > self.queue_seconds:
                _finish(request.future.set_exception, Overloaded(math.ceil(self.queue_seconds / 2)))
            if not request.future.done():
                return True
            heapq.heappop(queue)
        return False

    def _compute(self, batch, free):
        rows = [request.rows[index] for request, index in batch]
        requests = list(dict.fromkeys(request for request, _ in batch))
        try:
            outputs = requests[0].model.compute(rows)
        except Exception as error:
            if len(requests) == 1:
                _finish(requests[0].future.set_exception, error)
            else:  # each by itself, so that the others are answered
                for request in requests:
                    self._compute([entry for entry in batch if entry[0] is request], time.monotonic())
            return
        tokens, seconds = sum(map(len, rows)), time.monotonic() - free
        self.observe(len(rows), tokens, seconds)
        with self._changed:
            if tokens >= LEAST_TOKENS / 2:  # shorter ones say how long the engine takes to start
                self._speed.observe(tokens, seconds / len(self._threads))  # as the others compute meanwhile
            for (request, index), output in zip(batch, outputs, strict=True):
                request.outputs[index] = output
                request.missing -= 1
        for request in requests:
            if not request.missing:
                _finish(request.future.set_result, request.outputs)


class Speed:
    """Tokens per second, of which the last batches count most.

    Attributes:
        rate: the speed, or 0.0 while it is unknown.
    """

    def __init__(self) -> None:
        self.rate = self._tokens = self._seconds = 0.0

    def observe(self, tokens: int, seconds: float) -> None:
        """Counts a batch."""
        weight = 0.5 ** (seconds / RATE_SECONDS)
        self._tokens, self._seconds = weight * self._tokens + tokens, weight * self._seconds + seconds
        self.rate = self._tokens / self._seconds


def chosen(lengths: Sequence[int], first: int, tokens: int) -> tuple[int, int]:
    """Selects rows around a row that needs little padding with them. Returns start and stop.

    lengths 3 9 10 30, first 1, tokens 1000 -> (0, 4), but with `LEAST_TOKENS` of 12 -> (1, 3)

    Args:
        lengths: numbers of tokens, ascending.
        first: the row that must be among them.
        tokens: maximum number of tokens, with padding.
    """
    start, stop, total = first, first + 1, lengths[first]
    while start > 0 or stop < len(lengths):
        count = stop - start
        below = lengths[stop - 1] - lengths[start - 1] if start > 0 else float("inf")
        above = (lengths[stop] - lengths[stop - 1]) * count if stop < len(lengths) else float("inf")
        shorter = below <= above
        width, added = (lengths[stop - 1], lengths[start - 1]) if shorter else (lengths[stop], lengths[stop])
        size = width * (count + 1)
        if size > tokens or (size > LEAST_TOKENS and total + added < (1 - PADDING) * size):
            break
        start, stop, total = (start - 1, stop, total + added) if shorter else (start, stop + 1, total + added)
    return start, stop


def _length(entry):
    _, _, request, index = entry
    return len(request.rows[index])


def _finish(finish, value):
    try:
        finish(value)
    except InvalidStateError:  # the client has left
        pass
